"use strict";
// Sends a file to /read and /predict, and draws the answer. GET /models lists what a model reads and
// forecasts. What is known ahead comes from /future to be filled in, and goes to /read/future.

const $ = (id) => document.getElementById(id);
const url = (path) => new URL(path, document.baseURI).href;
const state = { key: "", models: [], card: null, file: null, example: true, shown: null, future: null, second: null };

class Refused extends Error {}

// ---- Times: milliseconds without a time zone, and the frequencies of pandas.

const DAY = 86400000;
const FIXED = { us: 0.001, ms: 1, s: 1000, min: 60000, h: 3600000, D: DAY, W: 7 * DAY };
const MONTHS = { MS: 1, ME: 1, QS: 3, QE: 3, YS: 12, YE: 12 };
const UNITS = { us: "microsecond", ms: "millisecond", s: "second", min: "minute", h: "hour", D: "day",
  W: "week", B: "weekday", MS: "month", ME: "month", QS: "quarter", QE: "quarter", YS: "year", YE: "year" };

// The milliseconds of a stamp of the service; of stamps with a zone, in UTC.
const parseTime = (text) => Date.parse(/[+Z]/.test(text) ? text : `${text}Z`);

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

// ---- The service.

const XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

// The answer to a request, parsed if it is JSON. A body is JSON, unless it is a text or a file.
async function ask(path, body, accept = "application/json") {
  let answer;
  const table = typeof body === "string" || body instanceof Blob;
  const type = !table ? "application/json" : /\.xls\w?$/i.test(body.name) ? XLSX : "text/csv";
  const headers = { Accept: accept, ...(body !== undefined && { "Content-Type": type }), ...(state.key && { Authorization: `Bearer ${state.key}` }) };
  try {
    answer = await fetch(url(path), { headers, ...(body !== undefined && { method: "POST", body: table ? body : JSON.stringify(body) }) });
  } catch {
    throw new Refused("The service does not answer.");
  }
  if (answer.ok) return accept === "application/json" ? answer.json() : answer.text();
  const found = await answer.json().catch(() => ({}));
  if (answer.status === 401) {
    $("access").hidden = false;
    $("key").focus();
    if (!state.key) throw new Refused("This service needs an API key.");
  }
  const flaws = found.errors?.map(({ msg }) => msg) || [found.detail || `the service answered ${answer.status}`];
  throw new Refused(flaws.map(sentence).join("\n"));
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");

async function loadModels() {
  const { models } = await ask("models");
  if (!models.length) {
    say("", await ask("readyz").then(() => "", (error) => error.message));
    setTimeout(start, 2000);
    return;
  }
  state.models = models;
  $("model").replaceChildren(...models.map((card) => new Option(`${nameOf(card)}: ${someOf(card.targets, 2)}, ${span(card.horizon, card.freq)}`, nameOf(card))));
  await choose(models[0]);
}

// How a request names a model: by its name, with alias or version where several share the name.
function nameOf({ name, alias, version }) {
  if (state.models.filter((card) => card.name === name).length < 2) return name;
  if (alias) return `${name}@${alias}`;
  return version ? `${name}/${version}` : name;
}

async function choose(card) {
  state.card = card;
  showCard(card);
  $("horizon").max = card.horizon;
  $("horizon").value = card.horizon;
  $("steps").textContent = span(2, card.freq).slice(2);
  $("wanted").textContent = wanted(card);
  $("known").hidden = !card.future_covariates.length;
  $("known-words").textContent = `Give ${someOf(card.future_covariates)} for the ${span(card.horizon, card.freq)} ahead in rows after the history, or in a file of their own.`;
  const scenarios = card.future_covariates.filter((name) => !(name in card.reading.categories)).flatMap((name) => (card.flags.includes(name) ? [new Option(`${name} on`, `on ${name}`), new Option(`${name} off`, `off ${name}`)] : [new Option(`${name} changed`, `change ${name}`)]));
  $("other").replaceChildren(new Option("nothing", ""), ...scenarios, new Option("other rows", "rows"));
  forgetAhead();
  if (state.example) await takeExample();
  else await forecast();
}

async function takeExample() {
  set(await ask(`models/${encodeURIComponent(nameOf(state.card))}/example`, undefined, "text/csv"), null, true);
  await forecast();
}

let newest = 0;

async function forecast() {
  const { card } = state;
  if (!card) return;
  const number = (newest += 1);
  say("forecasting …");
  try {
    const model = nameOf(card);
    const apart = card.future_covariates.length > 0 && { future: "apart" };
    const query = new URLSearchParams({ model, ...($("item").value && { item: $("item").value }), short_history: "drop", ...apart });
    const { series, items, rows, notes } = await ask(`read?${query}`, state.file || $("csv").value);
    const levels = card.quantile_levels;
    const within = levels.length && levels[0] <= 0.1 && levels[levels.length - 1] >= 0.9;
    const parameters = { prediction_length: $("horizon").valueAsNumber || 0, quantile_levels: within ? [0.1, 0.9] : [], ...joint(card), ...(rows < card.needs && { short_history: "drop" }) };
    const repeated = apart ? await takeAhead(card, series, state.future) : [];
    const body = { inputs: [series], parameters, model };
    const answer = await ask("predict", body);
    const other = apart ? await otherScenario(card, body) : null;
    if (number !== newest) return; // a newer request is under way
    fill($("item"), items, series.item_id);
    $("item-field").hidden = items.length < 2;
    const skipped = rows - series.target.length;
    const start = parseTime(series.start);
    const stamps = series.target.map((_, i) => later(start, i, card.freq));
    state.shown = { body, stamps, other, repeated, future: state.future?.name, skipped, notes, answer, prediction: answer.predictions[0], card, item: series.item_id, example: state.example, file: state.file?.name };
    showResult();
    say(`forecast in ${Math.round(answer.timing.queue_ms + answer.timing.inference_ms)} ms`);
  } catch (error) {
    if (number !== newest) return;
    $("history").open = true;
    fail(error);
  }
}

// What is asked beside the forecast: its total and, where wanted, some paths. Fewer than 4 windows
// have no 80 % band of a total.
function joint(card) {
  return card.paths_from > 3 ? { total: "horizon", ...($("paths").checked && { samples: 20 }) } : {};
}

// ---- What is known ahead.

// Give a series what is known ahead: from a file with rows that were filled in, if there is one. A
// cell that nobody gave repeats the last season; returns the columns that have such cells.
async function takeAhead(card, series, file) {
  if (file) {
    const query = new URLSearchParams({ model: nameOf(card), ...(series.item_id && { item: series.item_id }) });
    const { start, future_covariates: given } = await ask(`read/future?${query}`, file);
    const wanted = later(parseTime(series.start), series.target.length, card.freq);
    if (parseTime(start) !== wanted) throw new Refused(`The rows of ${file.name} begin at ${isoTime(parseTime(start))}, but the first step after the history is ${isoTime(wanted)}.`);
    series.future_covariates = given;
  }
  const repeated = new Set();
  for (const [part, cells] of Object.entries(series.future_covariates)) {
    const before = series.past_covariates[part];
    const season = seasonOf(card, before);
    cells.forEach((value, i) => {
      if (value !== null) return;
      cells[i] = i < season ? before[before.length - season + i] : cells[i - season];
      repeated.add(card.future_covariates.find((name) => part === name || part.startsWith(`${name}=`)));
    });
  }
  return [...repeated];
}

const seasonOf = (card, before) => (card.reading.seasons[0] <= before.length ? card.reading.seasons[0] : 1);

// The forecast of a second scenario, if one is chosen: what differs, in words, its answer, and what
// is to be said of it alone.
async function otherScenario(card, first) {
  const choice = $("other").value, change = $("change").valueAsNumber;
  if (!choice || (choice === "rows" && !state.second) || (choice.startsWith("change") && !change)) return null;
  const body = structuredClone(first), [series] = body.inputs;
  let name = state.second?.name, repeated = [];
  if (choice === "rows") {
    repeated = await takeAhead(card, series, state.second);
  } else {
    const [how, column] = /^(\w+) (.*)/s.exec(choice).slice(1);
    series.future_covariates[column] = series.future_covariates[column].map((value) => ({ on: 1, off: 0 })[how] ?? value + change);
    name = how === "change" ? `${column} ${change < 0 ? "−" : "+"} ${Math.abs(change)}` : `${column} ${how}`;
  }
  const answer = await ask("predict", body);
  return { name, answer, prediction: answer.predictions[0], repeated };
}

// Some names of a list, and how many others there are.
function someOf(list, most = 6) {
  const names = list.slice(0, list.length > most + 1 ? most : list.length).join(", ");
  return list.length > most + 1 ? `${names} and ${list.length - most} more` : names;
}

// What is said of cells that nobody gave.
function repeatedWords(card, names) {
  const { length } = state.shown.body.inputs[0].target;
  const season = seasonOf(card, { length });
  return `the values of ${someOf(names)} are not given for all of the ${span(card.horizon, card.freq)} ahead: the last ${season === 1 ? "value is" : `${span(season, card.freq)} are`} repeated`;
}

// The difference between the two scenarios, for one target.
function differenceWords(column) {
  const { card, prediction, other } = state.shown;
  const differences = prediction.mean.map((row, i) => other.prediction.mean[i][column] - row[column]);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const average = mean(differences), level = mean(prediction.mean.map((row) => row[column]));
  const most = differences.reduce((best, value, i) => (Math.abs(value) > Math.abs(differences[best]) ? i : best), 0);
  const name = prediction.columns[column];
  if (!differences[most]) return `With ${other.name}, ${name} stays the same.`;
  const share = level ? ` (${signed((100 * average) / Math.abs(level), 3)} %)` : "";
  return `With ${other.name}, ${name} is ${short(Math.abs(average), 3)} ${average < 0 ? "lower" : "higher"} on average${share} over the ${span(differences.length, card.freq)} ahead; the largest difference is ${signed(differences[most], 3)}, at ${stamp(ahead(most), card.freq)}.`;
}

// The total of one target over the horizon.
function totalWords(column) {
  const { card, prediction, answer, other } = state.shown;
  const [total] = answer.totals || [];
  if (!total) return "";
  const between = Object.values(total.quantiles).map((ends) => short(ends[column]));
  const more = other?.answer.totals ? `; with ${other.name} ${short(other.answer.totals[0].mean[column])}` : "";
  return `Total of ${prediction.columns[column]} over the ${span(total.steps, card.freq)}: ${short(total.mean[column])}${between.length ? ` (80 % band ${between.join(" to ")})` : ""}${more}.`;
}

const signed = (value, digits) => `${value < 0 ? "−" : "+"}${short(Math.abs(value), digits)}`;

function forgetAhead() {
  Object.assign(state, { future: null, second: null });
  $("future-name").textContent = "";
}

// The rows to fill in, as the service writes them.
async function downloadRows() {
  try {
    const text = await ask(`future?${new URLSearchParams({ model: nameOf(state.card) })}`, state.file || $("csv").value, "text/csv");
    save(text, "future.csv");
  } catch (error) {
    fail(error);
  }
}

// ---- What the page shows.

function fail(error) {
  say("", error.message);
  if (!(error instanceof Refused)) throw error;
}

function say(status, error = "") {
  $("status").textContent = status;
  $("error").textContent = error;
  $("error").hidden = !error;
  if (error) $("result").hidden = $("elsewhere").hidden = true;
  if (error) $("notes").replaceChildren(); // of a file that was read before
}

function fill(list, names, chosen) {
  list.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

function wanted(card) {
  const values = card.wide ? "a column for each series" : someOf(card.targets);
  const others = [...card.past_covariates, ...card.future_covariates, ...card.static_covariates.map((each) => each.name)];
  return `One row per ${between(card.freq)}, at least ${card.least}${card.least < card.needs ? ` (${card.needs} for all parts of the model)` : ""}, with the columns ${[card.time, ...card.id_columns, values].join(", ")}${others.length ? `, ${someOf(others)}` : ""}.`;
}

function showCard(card) {
  const { test } = card, { columns = {} } = test;
  const flag = (name) => `${name} (known ahead${card.flags.includes(name) ? ", on or off" : ""})`;
  const facts = {
    name: card.name + (card.version ? `, version ${card.version}` : "") + (card.alias ? `, ${card.alias}` : ""),
    forecasts: `${someOf(card.targets, 12)}${card.items ? `, of ${card.items} series` : ""}`,
    horizon: span(card.horizon, card.freq),
    "look-back": span(card.look_back, card.freq) + (card.least < card.look_back ? `, of which it needs ${card.least}` : ""),
    "also reads": [...card.past_covariates, ...card.future_covariates.map(flag), ...card.static_covariates.map(({ name, words }) => `${name} (${words ? words.join(", ") : "a number"})`)].join(", "),
    effects: card.effects.join("; "),
    bands: card.bands.map(({ share, coverage }) => `${percent(share)} band: covered ${percent(coverage)} of the test values`).join("; ") || card.intervals,
    "made of": card.made_of.map(({ name, weight }) => `${percent(weight)} ${name === "network" ? `network (${card.attn})` : name}`).join(" · "),
    "trained on": (card.seen_until ? `rows until ${stamp(parseTime(card.seen_until), card.freq)}` : "") + (card.refit ? ", after the test" : ""),
    "tested on": test.windows ? `${test.windows.toLocaleString("en")} windows` : "",
    run: card.run_id || "",
    digest: card.digest,
  };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, text]) => text).flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]));
  const rows = Object.entries(columns).map(([name, { mae_units: error }]) => [name, error == null ? "" : short(error, 3), bandOf(card)?.columns[name]]);
  $("figures").tBodies[0].replaceChildren(...rows.map(([name, error, covered]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, error), make("td", {}, covered == null ? "" : percent(covered)))));
  $("figures").parentElement.hidden = rows.length < 2;
  $("verdict").textContent = [test.headline, test.verdict].filter(Boolean).join(" ");
}

const percent = (share) => `${Math.round(100 * share)} %`;

// The codes of notices that question a forecast; the others state what was done with the input.
const REMARKS = new Set(["short_history", "new_series", "unfinished", "lost_to_floor", "coverage", "first_step", "unlike_training", "unlike_covariates", "unclear_effect"]);

function showResult() {
  const { card, prediction, answer, body, skipped, notes, file, example, other, repeated } = state.shown;
  $("result").hidden = $("elsewhere").hidden = false;
  $("made-up").hidden = !example;
  $("result-title").textContent = example ? "Forecast of a made-up example, not your data" : `Forecast of ${file || "the table below"}`;
  fill($("column"), prediction.columns, $("column").value);
  $("column-field").hidden = prediction.columns.length < 2;
  $("whole-field").hidden = body.inputs[0].target.length <= recent(state.shown);
  const known = new Set(answer.notices.map(({ text }) => text));
  const also = other ? other.answer.notices.filter(({ text }) => !known.has(text)).map(({ code, text }) => ({ code, text: `with ${other.name}: ${text}` })) : [];
  const notGiven = [repeated, other?.repeated || []].filter((names) => names.length).map((names) => repeatedWords(card, names));
  const remarks = [...answer.notices, ...also].filter(({ code }) => REMARKS.has(code));
  const others = answer.notices.filter(({ code }) => !REMARKS.has(code));
  const warnings = [...notGiven, ...remarks.map(({ text }) => text.replace(/\.$/, ""))].join("; ");
  $("warnings").textContent = warnings && sentence(warnings);
  const cut = skipped ? [`the newest ${card.look_back} of ${card.look_back + skipped} rows were read`] : [];
  $("notes").replaceChildren(...[...cut, ...notes, ...others.map(({ text }) => text)].map((text) => make("li", {}, sentence(text))));
  $("legend-other").textContent = other ? `with ${other.name}` : "";
  $("legend-band").hidden = !prediction.quantiles;
  $("legend-paths").hidden = !prediction.samples;
  $("paths-field").hidden = card.paths_from < 4;
  $("values").textContent = valuesCsv("\n");
  $("curl").textContent = `curl -s ${url("predict")}${state.key && ' -H "Authorization: Bearer $FORECASTER_API_KEY"'} -H 'Content-Type: application/json' -d @- <<'JSON'\n${JSON.stringify(body)}\nJSON`;
  const name = JSON.stringify(file || "history.csv");
  const { prediction_length: steps, quantile_levels: levels, short_history: drop } = body.parameters;
  const options = [`horizon=${steps}`, ...(levels.length ? [`levels=(${levels.join(", ")})`] : []), ...(drop ? [`short_history="${drop}"`] : []), ...(state.shown.future || repeated.length ? [`future=${JSON.stringify(state.shown.future || "future.csv")}`] : []), ...(state.models.length > 1 ? [`model=${JSON.stringify(nameOf(card))}`] : [])];
  $("python").textContent = [
    ...(state.key ? ["import os"] : []),
    "from forecaster.client import Client",
    "",
    `client = Client("${url("").replace(/\/$/, "")}"${state.key && ', api_key=os.environ["FORECASTER_API_KEY"]'})`,
    `ahead = client.predict(${name}, ${options.join(", ")})`,
    "print(ahead)",
  ].join("\n");
  drawTargets();
  draw();
}

function valuesCsv(newline) {
  const { prediction, card, other } = state.shown;
  const quantiles = Object.entries(prediction.quantiles || {});
  const second = (name) => (other ? [`${name} with ${other.name}`] : []);
  const fields = [card.time, ...prediction.columns.flatMap((name) => [name, ...quantiles.map(([level]) => `${name} ${level}`), ...second(name)])];
  const data = prediction.mean.map((row, i) => [stamp(ahead(i), card.freq),
    ...row.flatMap((value, j) => [value, ...quantiles.map(([, values]) => values[i][j]), ...(other ? [other.prediction.mean[i][j]] : [])])]);
  return [fields, ...data].map((row) => row.map(cell).join(",")).join(newline);
}

// A cell of a CSV, by RFC 4180.
const cell = (value) => (/[",\r\n]/.test(value ?? "") ? `"${value.replaceAll('"', '""')}"` : `${value ?? ""}`);

// A file in the format of RFC 4180, named after the file that was read.
function download() {
  const { example, file, item } = state.shown;
  const stem = example ? "example" : (file || "history").replace(/\.[^.]*$/, "");
  save(`${valuesCsv("\r\n")}\r\n`, [stem, item, "forecast"].filter(Boolean).join("-").replace(/[^\p{L}\p{N}._-]+/gu, "-") + ".csv");
}

function save(text, name) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const ahead = (step) => later(parseTime(state.shown.prediction.start), step, state.shown.prediction.freq);

const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "rect", "title"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((each) => each >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
  return { ticks, step };
}

const chosen = () => Math.max(0, state.shown.prediction.columns.indexOf($("column").value));

// The steps of the history that are drawn unless all are wanted; more would squeeze the forecast.
const recent = ({ card, body }) => Math.max(12, 2 * card.reading.seasons[0], 3 * body.parameters.prediction_length);

function points(column) {
  const { body, stamps, prediction, card, other } = state.shown;
  const [series] = body.inputs;
  const place = series.columns.indexOf(prediction.columns[column]);
  const quantiles = prediction.quantiles || {};
  const history = series.target.map((row, i) => ({ time: stamps[i], value: row[place], kind: "history" })).slice($("whole").checked ? 0 : -recent(state.shown));
  const forecast = prediction.mean.map((row, i) => ({
    time: ahead(i), value: row[column], kind: "forecast", other: other?.prediction.mean[i][column],
    low: quantiles["0.1"]?.[i][column], high: quantiles["0.9"]?.[i][column],
    paths: prediction.samples?.map((path) => path[i][column]),
  }));
  const names = [prediction.item_id, ...(card.wide ? [] : [prediction.columns[column]])];
  return { name: names.filter(Boolean).join(", "), history, forecast };
}

function rangeOf(all) {
  let low = Infinity, high = -Infinity;
  for (const { value, other, low: under, high: over, paths = [] } of all) {
    for (const each of [value, other, under, over, ...paths]) {
      if (each !== null && each !== undefined) [low, high] = [Math.min(low, each), Math.max(high, each)];
    }
  }
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
  return [low - margin, high + margin];
}

// The band, the history and the forecast as paths.
function curves(history, forecast, x, y) {
  const spot = (i, value) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`;
  const parts = [];
  if (forecast[0].low !== undefined) {
    const upper = forecast.map(({ high: value }, i) => spot(history.length + i, value));
    const lower = forecast.map(({ low: value }, i) => spot(history.length + i, value)).reverse();
    parts.push(make("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` }));
  }
  for (const n of forecast[0].paths?.keys() || []) {
    parts.push(make("path", { class: "line sample", d: `M${forecast.map(({ paths }, i) => spot(history.length + i, paths[n])).join("L")}` }));
  }
  let pen = "M";
  let path = "";
  history.forEach(({ value }, i) => {
    if (value === null) { pen = "M"; return; }
    path += pen + spot(i, value);
    if (history[i - 1]?.value == null && history[i + 1]?.value == null) path += "h0"; // draws a single value as a dot
    pen = "L";
  });
  const last = history[history.length - 1]?.value ?? null;
  const from = last === null ? "" : `${spot(history.length - 1, last)}L`;
  parts.push(make("path", { class: "line history", d: path }));
  parts.push(make("path", { class: "line forecast", d: `M${from}${forecast.map(({ value }, i) => spot(history.length + i, value)).join("L")}` }));
  if (forecast[0].other !== undefined) parts.push(make("path", { class: "line other", d: `M${from}${forecast.map(({ other }, i) => spot(history.length + i, other)).join("L")}` }));
  return parts;
}

// The labels of some times below a chart: as short as they can be and still differ.
function timeLabels(times) {
  const full = times.map((time) => new Date(Math.floor(time)).toISOString().replace("T", " "));
  const whole = full.every((text) => text.slice(11, 16) === "00:00");
  const forms = [[0, 10], [5, 16], [5, 19], [11, 23]].slice(whole || times[times.length - 1] - times[0] > 60 * DAY ? 0 : 1);
  const labels = forms.map((form) => full.map((text) => text.slice(...form)));
  const best = labels.find((each) => new Set(each).size === each.length) || labels[labels.length - 1];
  return best.map((label, i) => (best.indexOf(label) === i ? label : "")); // of microseconds, some are left out
}

const SMALL = 14; // the most small charts of targets

// Small charts, one for each target; a click chooses the target.
function drawTargets() {
  const { prediction, card } = state.shown;
  const names = prediction.columns.slice(0, prediction.columns.length > 1 ? SMALL : 0);
  $("targets").hidden = !names.length;
  $("targets").replaceChildren(...names.map((name, column) => {
    const { history, forecast } = points(column);
    const all = [...history, ...forecast];
    const [low, high] = rangeOf(all);
    const x = (i) => (200 * i) / Math.max(1, all.length - 1), y = (value) => 60 - (60 * (value - low)) / (high - low);
    const picture = make("svg", { viewBox: "0 0 200 60", preserveAspectRatio: "none", "aria-hidden": "true" }, ...curves(history, forecast, x, y));
    const covered = prediction.quantiles && bandOf(card)?.columns[name];
    const button = make("button", { type: "button" }, make("strong", {}, name), picture,
      ...(covered == null ? [] : [make("span", { class: "soft" }, `covered ${percent(covered)}`)]));
    button.addEventListener("click", () => { $("column").value = name; draw(); });
    return button;
  }));
  const more = prediction.columns.length - names.length;
  $("more-targets").hidden = !names.length || !more;
  $("more-targets").textContent = `${more} more targets are in the list above and in the CSV.`;
}

// The measured coverage of the band that is drawn, if any.
const bandOf = (card) => card.bands.find(({ share }) => share === 0.8);

function draw() {
  if (!state.shown || $("result").hidden) return;
  const chart = $("chart");
  const { name, history, forecast } = points(chosen());
  const all = [...history, ...forecast];
  const width = chart.clientWidth, height = chart.clientHeight;
  const [low, high] = rangeOf(all);
  const { ticks, step } = niceTicks(low, high, Math.max(2, Math.floor(height / 45)));
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const labels = ticks.map((tick) => (Math.abs(tick) >= 1e7 || digits > 6 ? tick.toExponential(2) : tick.toFixed(digits)));
  const left = 10 + 7 * Math.max(...labels.map((label) => label.length)), right = width - 8, top = 8, bottom = height - 24;
  const x = (i) => left + ((right - left) * i) / Math.max(1, all.length - 1);
  const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
  const parts = ticks.flatMap((tick, i) => [
    make("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
    make("text", { class: "end", x: left - 6, y: y(tick) + 4 }, labels[i]),
  ]);
  const marks = Math.min(all.length, Math.max(1, Math.floor((right - left) / 110)));
  const marked = Array.from({ length: marks }, (_, k) => Math.round(((all.length - 1) * (k + 0.5)) / marks));
  timeLabels(marked.map((i) => all[i].time)).forEach((label, k) => parts.push(make("text", { class: "middle", x: x(marked[k]), y: height - 6 }, label)));
  parts.push(...curves(history, forecast, x, y),
    make("line", { class: "now", x1: x(history.length - 0.5), x2: x(history.length - 0.5), y1: top, y2: bottom }));
  const cursor = make("g", { id: "cursor" });
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const what = `${name}: ${history.length} steps of history and ${forecast.length} of forecast, from ${isoTime(forecast[0].time)} to ${isoTime(all[all.length - 1].time)}, `;
  chart.setAttribute("aria-label", `${what}first ${short(forecast[0].value)}, last ${short(forecast[forecast.length - 1].value)}. Use the arrow keys to read the values.`);
  chart.replaceChildren(...parts, cursor);
  $("readout").textContent = name;
  $("total").textContent = totalWords(chosen());
  $("difference").textContent = state.shown.other ? differenceWords(chosen()) : "";
  const target = state.shown.prediction.columns[chosen()];
  const known = bandOf(state.shown.card);
  const covered = known?.columns[target];
  const ofTarget = covered == null || state.shown.prediction.columns.length < 2 ? "" : `, of ${target} ${percent(covered)}`;
  $("legend-band").textContent = known ? `80 % band, covered ${percent(known.coverage)} of the test values${ofTarget}` : "80 % band; its coverage was not measured";
  [...$("targets").children].forEach((button, column) => button.setAttribute("aria-pressed", column === chosen()));
  state.cursor = { at: history.length, show: (i) => {
    state.cursor.at = Math.min(all.length - 1, Math.max(0, i));
    const { time, value, kind, other, low: under, high: over } = all[state.cursor.at];
    const band = (under === undefined ? "" : ` (${short(under)} to ${short(over)})`) + (other === undefined ? "" : `; with ${state.shown.other.name} ${short(other)}`);
    $("readout").textContent = `${name}, ${stamp(time, state.shown.card.freq)}: ${kind} ${value === null ? "missing" : short(value)}${band}${knownAt(state.cursor.at - history.length)}`;
    const across = x(state.cursor.at);
    cursor.replaceChildren(make("line", { class: "cursor", x1: across, x2: across, y1: top, y2: bottom }),
      ...(value === null ? [] : [make("circle", { class: kind, cx: across, cy: y(value), r: 4 })]));
  }, near: (across) => Math.round(((across - left) / (right - left)) * (all.length - 1)) };
}

// What is known of a step, from 0 at the first of the forecast: flags as on or off.
function knownAt(step) {
  const { card, body } = state.shown, [{ past_covariates: past, future_covariates: future, target }] = body.inputs;
  return card.future_covariates.filter((name) => future?.[name]).slice(0, 3).map((name) => {
    const value = step < 0 ? past[name][target.length + step] : future[name][step];
    return `, ${name} ${card.flags.includes(name) ? (value ? "on" : "off") : value}`;
  }).join("");
}

const short = (value, digits = 5) => String(Number(value.toPrecision(digits)));

// ---- What the user does.

const LONG = 1e6;

// Set the field and where its content came from; a file is sent as it is, whatever the field shows.
function set(text, file = null, example = false) {
  $("csv").value = text;
  $("csv").placeholder = file && !text ? `${file.name}, ${(file.size / 1e6).toFixed(1)} MB` : "";
  $("item").replaceChildren();
  Object.assign(state, { file, example });
  forgetAhead();
  labelCsv();
}

// Made-up values must never look like the user's data.
function labelCsv() {
  $("csv-label").textContent = state.example ? "The example, made up and not your data; paste your own rows over it" : "The rows, with a header line";
}

async function read(file) {
  const text = file.size > LONG ? "" : await file.text(); // more is too slow to show in a field
  set(text.includes("\ufffd") ? "" : text, file);
  await forecast();
}

async function start() {
  try {
    await loadModels();
  } catch (error) {
    fail(error);
  }
}

function listen() {
  $("access").addEventListener("submit", (event) => {
    event.preventDefault();
    state.key = $("key").value.trim();
    $("key").value = "";
    $("access").hidden = true;
    start();
  });
  $("file").addEventListener("change", ({ target }) => { if (target.files[0]) read(target.files[0]); target.value = ""; });
  $("csv").addEventListener("input", () => {
    Object.assign(state, { file: null, example: false });
    forgetAhead();
    $("item").replaceChildren();
    labelCsv();
  });
  document.querySelector("nav a").addEventListener("click", () => { $("card").open = true; });
  $("download").addEventListener("click", download);
  $("rows").addEventListener("click", downloadRows);
  for (const id of ["future", "second"]) {
    $(id).addEventListener("change", ({ target }) => {
      if (target.files[0]) {
        state[id] = target.files[0];
        if (id === "future") $("future-name").textContent = target.files[0].name;
        forecast();
      }
      target.value = "";
    });
  }
  $("other").addEventListener("change", ({ target }) => {
    $("change-field").hidden = !target.value.startsWith("change ");
    $("second-field").hidden = target.value !== "rows";
    forecast();
  });
  $("change").addEventListener("change", forecast);
  $("csv").addEventListener("paste", () => setTimeout(forecast));
  for (const id of ["csv", "horizon", "item", "paths"]) $(id).addEventListener("change", forecast);
  $("model").addEventListener("change", ({ target }) => choose(state.models[target.selectedIndex]).catch(fail));
  $("column").addEventListener("change", draw);
  $("whole").addEventListener("change", () => { drawTargets(); draw(); });
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      document.body.classList.toggle("over", name === "dragenter" || name === "dragover");
      if (name === "drop" && event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
    });
  }
  const chart = $("chart");
  chart.addEventListener("pointermove", ({ clientX }) => state.cursor.show(state.cursor.near(clientX - chart.getBoundingClientRect().left)));
  chart.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (by) { event.preventDefault(); state.cursor.show(state.cursor.at + by); }
  });
  new ResizeObserver(draw).observe(chart);
  for (const text of document.querySelectorAll("pre")) text.addEventListener("focus", () => getSelection().selectAllChildren(text));
}

listen();
start();
