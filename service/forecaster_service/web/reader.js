"use strict";
// Reads a table by the same rules as forecaster's own reader: separators, the decimal sign, the order
// of day and month. Ambiguous text is refused, and the message lists the possible readings.

class Refused extends Error {}

// ---- Times: milliseconds without a time zone, and the frequencies of pandas.

const DAY = 86400000;
const FIXED = { us: 0.001, ms: 1, s: 1000, min: 60000, h: 3600000, D: DAY, W: 7 * DAY };
const MONTHS = { MS: 1, ME: 1, QS: 3, QE: 3, YS: 12, YE: 12 };
const UNITS = { us: "microsecond", ms: "millisecond", s: "second", min: "minute", h: "hour", D: "day",
  W: "week", B: "weekday", MS: "month", ME: "month", QS: "quarter", QE: "quarter", YS: "year", YE: "year" };

const CLOCK = "(?<hour>\\d{1,2})(?:[:h](?<minute>\\d{2})(?::(?<second>\\d{2})(?:[.,](?<fraction>\\d{1,9}))?)?)?(?:\\s*(?<half>[ap])\\.?m\\.?)?";
const ZONE = "(?:\\s*(?<zone>z|utc|gmt|[+-]\\d{2}(?::?\\d{2})?))?";
const TIME = `(?:(?:\\s*t|,?\\s+)${CLOCK}${ZONE})?`;
const YEAR = "(?<year>\\d{4}|\\d{2})", MONTH = "(?<month>\\d{1,2})", DATE = "(?<day>\\d{1,2})";
const FORMS = {
  iso: new RegExp(`^(?<year>\\d{4})[-/]${MONTH}(?:[-/]${DATE}${TIME})?$`, "i"),
  "day-first": new RegExp(`^${DATE}[-/.]${MONTH}[-/.]${YEAR}${TIME}$`, "i"),
  "month-first": new RegExp(`^${MONTH}[-/.]${DATE}[-/.]${YEAR}${TIME}$`, "i"),
};

// The time of a stamp; NaN if the text does not have that form.
function parseTime(text, form = "iso") {
  const parts = FORMS[form].exec(text.trim())?.groups;
  if (!parts) return NaN;
  const [month, day, minute, second] = ["month", "day", "minute", "second"].map((name) => Number(parts[name] ?? (name === "day" ? 1 : 0)));
  let [year, hour] = [Number(parts.year), Number(parts.hour ?? 0)];
  if (parts.year.length === 2) year += year < 69 ? 2000 : 1900;
  if (parts.half) {
    if (hour < 1 || hour > 12) return NaN;
    hour = (hour % 12) + (parts.half.toLowerCase() === "p" ? 12 : 0);
  }
  const date = Date.UTC(year, month - 1, day);
  const clock = 60000 * (60 * hour + minute) + 1000 * second + 1000 * Number(`0.${parts.fraction ?? 0}`);
  if (month > 12 || new Date(date).getUTCDate() !== day || minute > 59 || second > 59 || clock > DAY) return NaN;
  const [, sign, hours, minutes] = /^([+-])(\d\d):?(\d\d)?$/.exec(parts.zone ?? "") || [];
  return date + clock - (sign ? Number(`${sign}1`) * 60000 * (60 * hours + Number(minutes ?? 0)) : 0);
}

const isZoned = (text, form) => Boolean(FORMS[form].exec(text.trim())?.groups.zone);

function isoTime(time) {
  return new Date(Math.round(time)).toISOString().replace(/(:00)?\.000Z$|Z$/, "").replace("T", " ");
}

// A stamp, as short as the time step allows.
function stamp(time, freq) {
  return /[DBWSE]/.test(freq) ? isoTime(time).replace(/ 00:00$/, "") : isoTime(time);
}

function stepOf(freq) {
  const [, count, unit] = /^(\d*)([A-Za-z]+)/.exec(freq);
  return [Number(count || 1), unit];
}

function later(time, steps, freq) {
  const [count, unit] = stepOf(freq);
  const by = steps * count;
  if (unit in FIXED) return time + by * FIXED[unit];
  const date = new Date(time);
  if (unit in MONTHS) {
    const end = unit.endsWith("E");
    const month = date.getUTCMonth() + by * MONTHS[unit] + (end ? 1 : 0);
    return Date.UTC(date.getUTCFullYear(), month, end ? 0 : 1) + (time - Math.floor(time / DAY) * DAY);
  }
  for (let left = by; left > 0; ) { // B: weekdays
    date.setUTCDate(date.getUTCDate() + 1);
    if (date.getUTCDay() % 6) left -= 1;
  }
  return date.getTime();
}

// "hour", "15 minutes": the time between two rows.
function between(freq) {
  const [count, unit] = stepOf(freq);
  const name = UNITS[unit] || freq;
  return count === 1 ? name : `${count} ${name}s`;
}

// "336 hours", "96 steps of 15 minutes".
function span(steps, freq) {
  const name = between(freq);
  return /^\d/.test(name) ? `${steps} steps of ${name}` : `${steps} ${name}${steps === 1 ? "" : "s"}`;
}

// Whether at least three times are evenly spaced: by a fixed length, or by whole months.
function isEven(found) {
  const times = [...new Set(found)].sort((a, b) => a - b);
  const months = times.map((time) => 12 * new Date(time).getUTCFullYear() + new Date(time).getUTCMonth());
  const rests = times.map((time) => time - Date.UTC(new Date(time).getUTCFullYear(), new Date(time).getUTCMonth()));
  const same = (list) => list.every((each, i) => i < 2 || each - list[i - 1] === list[1] - list[0]);
  return times.length > 2 && (same(times) || (same(months) && rests.every((rest) => rest === rests[0])));
}

// The form of all stamps: that of the model's data if they have it, else the one that fits them.
function formOf(texts, card, column) {
  const stamps = [...new Set(texts.map((text) => text.trim()).filter(Boolean))];
  const share = (form) => stamps.filter((text) => FORMS[form].test(text)).length / Math.max(1, stamps.length);
  const fits = (form) => stamps.every((text) => !FORMS[form].test(text) || !Number.isNaN(parseTime(text, form)));
  const told = card.reading.stamps?.form;
  if (told in FORMS && share(told) >= 0.5 && (told === "iso" || fits(told))) return told;
  if (share("iso") >= 0.5) return "iso";
  const orders = ["day-first", "month-first"].filter((form) => share(form) >= 0.5);
  const good = orders.filter(fits);
  if (good.length < 2) return good[0] || orders[0] || "iso";
  const even = good.filter((form) => isEven(stamps.map((text) => parseTime(text, form)).filter((time) => !Number.isNaN(time))));
  if (even.length === 1) return even[0];
  const unsure = stamps.find((text) => parseTime(text, good[0]) !== parseTime(text, good[1]));
  if (unsure === undefined) return good[0];
  const [one, other] = good.map((form) => new Date(parseTime(unsure, form)).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" }));
  throw new Refused(`Column '${column}': '${unsure}' is ${one} or ${other}, and no time in the file shows which. Write the year first, for example 2026-01-31.`);
}

// ---- Numbers.

const MISSING = new Set(["", "na", "n/a", "#na", "#n/a", "<na>", "nan", "-nan", "null", "none", "-", "--", "–", "—", ".", "..", "?", ":"]);
const BLANK = "[ \u00a0\u202f\u2009]";
const GROUPS = `[1-9]\\d{0,2}(?:(?:${BLANK}\\d{3})+|(?:['’]\\d{3})+`;
const POINT = `(?:${GROUPS}|(?:,\\d{3})+)(?:\\.\\d*)?|(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][-+]?\\d+)?)`;
const COMMA = `(?:${GROUPS}|(?:\\.\\d{3})+)(?:,\\d*)?|(?:\\d+,?\\d*|,\\d+)(?:[eE][-+]?\\d+)?)`;
const WRITTEN = { ".": new RegExp(`^${POINT}$`), ",": new RegExp(`^${COMMA}$`) };
const NUMBER = new RegExp(`^(?<minus>[-+−]?)${BLANK}?(?<body>${POINT}|${COMMA})$`);
const FLAG = /^(true|false|yes|no)$/i;
const LONGEST = 100; // the most characters of a number

const isMissing = (text) => MISSING.has(text.trim().toLowerCase());
const partsOf = (text) => (text.length > LONGEST ? null : NUMBER.exec(text.trim())?.groups);

// Examples of numbers with each decimal sign, and of unclear ones. If only numbers like "1,234" are
// unclear, whole numbers of at most three digits beside "1,230" show that the comma marks thousands;
// "1.234" has decimals if `pointed`.
function evidence(bodies, pointed) {
  const found = { ".": "", ",": "", unclear: "" };
  const unclear = [];
  let [longest, whole] = [0, false];
  for (const body of bodies) {
    const [point, comma] = [WRITTEN["."].test(body), WRITTEN[","].test(body)];
    if (point !== comma) found[point ? "." : ","] ||= body;
    else if (/[.,]/.test(body)) unclear.push(body);
    else if (/^\d+$/.test(body)) [whole, longest] = [true, Math.max(longest, body.length)];
  }
  found.unclear = unclear[0] || "";
  if (found["."] || found[","] || !unclear.length || pointed === null) return found;
  const sign = unclear[0].includes(",") ? "," : ".";
  if (!unclear.every((body) => body.includes(sign))) return found;
  if (pointed && sign === ".") found["."] = unclear[0];
  else if (whole && longest <= 3 && unclear.some((body) => body.endsWith("0"))) found[sign === "," ? "." : ","] = unclear[0];
  return found;
}

// The decimal sign of a table: as its numbers show, else that of the model's data if the separator is
// the same; "" if neither is known.
function decimalOf(csv, card) {
  const text = card.reading.text;
  const told = text && text.separator === csv.separator ? text.decimal : "";
  const seen = { ".": false, ",": false };
  for (const name of csv.columns) {
    const words = csv.rows.slice(0, 10000).map((row) => (row["=" + name] ?? "").trim()).filter((word) => !isMissing(word));
    const bodies = words.map((word) => partsOf(word)?.body).filter((body) => body !== undefined);
    if (2 * bodies.length < words.length) continue;
    const found = evidence(bodies, told ? null : csv.pointed);
    for (const sign of [".", ","]) seen[sign] ||= Boolean(found[sign]);
  }
  if (seen["."] === seen[","]) return seen["."] ? "" : told;
  return seen["."] ? "." : ",";
}

// The numbers of a column, by row; null where a value is missing.
function numbersOf(csv, rows, column, card, decimal) {
  const marks = card.reading.missing.map((mark) => mark.trim());
  const words = rows.map((row) => (row["=" + column] ?? "").trim()).map((word) => (isMissing(word) || marks.includes(word) ? null : word));
  const there = words.filter((word) => word !== null);
  if (there.length && there.every((word) => FLAG.test(word))) return words.map((word) => (word === null ? null : Number(/^(true|yes)$/i.test(word))));
  const where = (i) => `${placeOf(rows[i])}, column '${column}'`;
  const shown = (word) => `'${word.slice(0, 40)}'`;
  const all = words.map((word) => (word === null ? null : partsOf(word)));
  const bad = all.findIndex((parts, i) => words[i] !== null && !parts);
  if (bad >= 0) throw new Refused(`${where(bad)}: ${shown(words[bad])} is not a number.`);
  let sign = decimal;
  if (!sign) {
    const found = evidence(all.filter(Boolean).map(({ body }) => body), csv.pointed);
    const row = (body) => where(all.findIndex((parts) => parts?.body === body));
    if (found["."] && found[","]) throw new Refused(`${row(found[","])}: '${found[","]}' has a decimal comma, '${found["."]}' a decimal point. Write all numbers with one of them.`);
    if (found.unclear && !found["."] && !found[","]) {
      const [whole, part] = found.unclear.split(/[.,]/);
      throw new Refused(`${row(found.unclear)}: '${found.unclear}' may be ${whole}${part} or ${whole}.${part}. Write a decimal point, no thousands separators, and commas between fields.`);
    }
    sign = found[","] ? "," : ".";
  }
  return all.map((parts, i) => {
    if (!parts) return null;
    if (!WRITTEN[sign].test(parts.body)) throw new Refused(`${where(i)}: ${shown(words[i])} is not a number; the others have a decimal ${sign === "," ? "comma" : "point"}.`);
    const digits = parts.body.replace(sign === "," ? /[.'’ \u00a0\u202f\u2009]/g : /[,'’ \u00a0\u202f\u2009]/g, "").replace(",", ".");
    const value = Number(digits) * (/[-−]/.test(parts.minus) ? -1 : 1);
    return marks.some((mark) => mark !== "" && Number(mark) === value) ? null : value;
  });
}

// ---- Tables.

const SEPARATORS = [",", ";", "\t", "|"];

// How messages name a row: rows are counted below the header, lines from the top of the file.
const placeOf = ({ row, line }) => `Row ${row} (line ${line})`;

// The separator that gives most lines the same number of fields; of several, the one that splits no
// values.
function separatorOf(text) {
  const lines = text.split(/\r\n|\n|\r/, 1000).filter((line) => line.trim());
  const looks = SEPARATORS.map((separator) => {
    const rows = Papa.parse(lines.join("\n"), { delimiter: separator }).data;
    const counts = new Map();
    for (const { length } of rows) counts.set(length, (counts.get(length) || 0) + 1);
    const [width, often] = [...counts].sort((a, b) => b[1] - a[1] || b[0] - a[0])[0];
    const cells = rows.slice(0, 200).filter(({ length }) => length === width).flat();
    const whole = cells.filter((cell) => isMissing(cell) || partsOf(cell) || (/\d/.test(cell) && !(separator !== "," && cell.includes(",")))).length;
    return { separator, width, share: often / rows.length, whole: Math.round((10 * whole) / cells.length), headed: rows[0].length === width };
  }).filter(({ width }) => width > 1);
  const most = Math.max(...looks.map(({ share }) => share));
  const best = looks.filter(({ share }) => share >= most - 0.05)
    .sort((a, b) => b.whole - a.whole || b.headed - a.headed || b.width - a.width);
  return best.length ? best[0].separator : ",";
}

function readCsv(text) {
  const [, written] = /^"?sep=(.)"?[ \t]*(?:\r\n|\n|\r)/i.exec(text) || [];
  const body = written ? text.replace(/^[^\r\n]*(?:\r\n|\n|\r)/, "") : text;
  if (!body.trim()) throw new Refused("The file or the field is empty: give a header line, and one row for each time step.");
  const separator = written || separatorOf(body);
  const { data } = Papa.parse(body, { delimiter: separator });
  const lines = data.map((cells, i) => ({ cells, line: i + 1 + (written ? 1 : 0) }))
    .filter(({ cells }) => cells.some((cell) => cell.trim()));
  if (lines.length < 2) throw new Refused("There are no rows below the header line: give one for each time step.");
  const columns = lines[0].cells.map((name) => name.trim());
  const twice = columns.find((name, i) => name && columns.indexOf(name) < i);
  if (twice) throw new Refused(`The header contains the column '${twice}' twice.`);
  const rows = lines.slice(1).map(({ cells, line }, i) => {
    const row = { row: i + 1, line };
    if (cells.length !== columns.length) throw new Refused(`${placeOf(row)}: the header has ${columns.length} fields, this row has ${cells.length}.`);
    columns.forEach((name, j) => { row["=" + name] = cells[j]; });
    return row;
  });
  return { columns: columns.filter(Boolean), rows, separator, pointed: separator === "," };
}

// The text of a file: UTF-8, UTF-16 if it has a byte order mark, else the Windows encoding.
async function lettersOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const wide = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2).join()];
  if (wide) return new TextDecoder(wide).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}
