"use strict";
// From a CSV to a request to /predict, and from the answer to a picture. What a model reads and
// forecasts, GET /models tells; what is wrong with a request, the service says.

const $ = (id) => document.getElementById(id);
const url = (path) => new URL(path, document.baseURI).href;
const state = { key: "", models: [], card: null, file: "", text: "", example: true, shown: null };

class Refused extends Error {}

// ---- Times: milliseconds of a clock without a zone, and the steps of pandas.

const DAY = 86400000;
const FIXED = { us: 0.001, ms: 1, s: 1000, min: 60000, h: 3600000, D: DAY, W: 7 * DAY };
const MONTHS = { MS: 1, ME: 1, QS: 3, QE: 3, YS: 12, YE: 12 };

function parseTime(text) {
  const m = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d+)?)?)?\s*(Z|[+-]\d\d:?\d\d)?$/.exec(text.trim());
  if (!m) return NaN;
  const [year, month, day, hour, minute, second] = m.slice(1, 7).map((part) => Number(part || 0));
  const zone = m[8] && m[8] !== "Z" ? Number(m[8][0] + 1) * (60 * m[8].slice(1, 3) + Number(m[8].slice(-2))) : 0;
  return Date.UTC(year, month - 1, day, hour, minute - zone, second) + 1000 * Number(m[7] || 0);
}

function isoTime(time) {
  return new Date(Math.round(time)).toISOString().replace(/(:00)?\.000Z$|Z$/, "").replace("T", " ");
}

// As short as the steps allow.
function stamp(time, freq) {
  return /[DBWSE]/.test(freq) ? isoTime(time).replace(/ 00:00$/, "") : isoTime(time);
}

function later(time, steps, freq) {
  const [, count, unit] = /^(\d*)([A-Za-z]+)/.exec(freq);
  const by = steps * Number(count || 1);
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

// ---- From CSV to a request.

const MISSING = new Set(["", "nan", "null", "na", "n/a", "none", "#n/a", "<na>"]);

function number(text, row, column) {
  const trimmed = (text ?? "").trim();
  if (MISSING.has(trimmed.toLowerCase())) return null;
  const value = Number(trimmed);
  if (!Number.isFinite(value)) {
    throw new Refused(`row ${row}, column '${column}': expected a number, got '${trimmed.slice(0, 40)}'`);
  }
  return value;
}

function readCsv(text) {
  const { data, meta, errors } = Papa.parse(text.trim(), { header: true, skipEmptyLines: "greedy" });
  const columns = (meta.fields || []).map((name) => name.trim());
  if (!data.length) throw new Refused("the CSV is empty: expected a header line and one row per time step");
  const wrong = errors.find(({ row }) => row !== undefined);
  if (wrong) throw new Refused(`row ${wrong.row + 1}: ${wrong.message}`);
  const rows = data.map((cells, i) => {
    const row = { row: i + 1 };
    (meta.fields || []).forEach((field, j) => { row["=" + columns[j]] = cells[field]; });
    return row;
  });
  return { columns, rows };
}

function timeColumn({ columns, rows }, card) {
  if (columns.includes(card.time)) return card.time;
  const found = columns.find((name) => !Number.isNaN(parseTime(rows[0]["=" + name] || "")));
  if (found === undefined) {
    throw new Refused(`there is no column of times: expected '${card.time}' with times such as 2026-01-31 00:00; the columns are ${columns.join(", ")}`);
  }
  return found;
}

// Whether the columns that name the series are there, and the name that a row has by them.
function isLong(csv, card) {
  return card.id_columns.length > 0 && card.id_columns.every((name) => csv.columns.includes(name));
}

function itemOf(row, card) {
  return card.id_columns.map((name) => row["=" + name] || "").join(" / ");
}

// The series that a CSV holds: by its id columns, by the columns of a wide panel, or one alone.
function seriesOf(csv, card) {
  if (isLong(csv, card)) return [...new Set(csv.rows.map((row) => itemOf(row, card)))];
  if (!card.wide) return [];
  const others = new Set([timeColumn(csv, card), ...card.past_covariates, ...card.future_covariates]);
  return csv.columns.filter((name) => !others.has(name));
}

function buildRequest(csv, card, item, steps, drop) {
  const long = isLong(csv, card);
  const time = timeColumn(csv, card);
  const source = (name) => (card.wide && card.targets.includes(name) ? item : name);
  const columns = card.columns.filter((name) => csv.columns.includes(source(name)));
  if (!columns.length) {
    throw new Refused(`none of the model's columns is there: expected ${card.columns.join(", ")}; got ${csv.columns.join(", ")}`);
  }
  const among = card.reading.categories;
  const word = (text) => (MISSING.has((text || "").trim().toLowerCase()) ? null : text.trim());
  const cell = (row, name) => (name in among ? word(row["=" + name]) : number(row["=" + source(name)], row.row, source(name)));
  let rows = long ? csv.rows.filter((row) => itemOf(row, card) === item) : csv.rows;
  if (card.wide) { // from its first to its last value, or to the last of what is known ahead
    const there = rows.map((row) => cell(row, card.targets[0]) !== null);
    rows = rows.slice(Math.max(0, there.indexOf(true)), card.future_covariates.length ? rows.length : there.lastIndexOf(true) + 1);
  }
  const target = rows.map((row) => columns.map((name) => cell(row, name)));
  let length = rows.length; // rows without any value at the end hold what is known ahead
  if (card.future_covariates.length) {
    while (length > 0 && target[length - 1].every((value) => value === null)) length -= 1;
  }
  const first = Math.max(0, length - card.look_back);
  const stamps = rows.map((row) => row["=" + time] || "");
  checkTimes(rows, stamps, first, time, card.freq);
  const part = (name, from, to) => rows.slice(from, to).map((row) => cell(row, name));
  const known = card.future_covariates.filter((name) => csv.columns.includes(name));
  const wordy = card.past_covariates.filter((name) => name in among && csv.columns.includes(name));
  const attributes = card.static_covariates.filter(({ name }) => csv.columns.includes(name));
  const of = (names, values) => Object.fromEntries(names.map((name) => [name, values(name)]));
  const series = { start: stamps[first].trim().replace(" ", "T"), columns, target: target.slice(first, length) };
  if (item) series.item_id = item;
  if (wordy.length || known.length) series.past_covariates = of([...wordy, ...known], (name) => part(name, first, length));
  if (known.length) {
    series.future_covariates = of(known, (name) => part(name, length, rows.length));
  }
  if (attributes.length) {
    const words = of(attributes.map(({ name }) => name), (name) => (rows[0]["=" + name] || "").trim());
    for (const { name, words: among } of attributes) if (!among) words[name] = number(words[name], rows[0].row, name);
    series.static_covariates = words;
  }
  const levels = card.quantile_levels;
  const within = levels.length && levels[0] <= 0.1 && levels[levels.length - 1] >= 0.9;
  const body = { inputs: [series], parameters: { prediction_length: steps, quantile_levels: within ? [0.1, 0.9] : [], ...(drop && { short_history: "drop" }) }, model: nameOf(card) };
  return { body, time, stamps: stamps.slice(first, length).map(parseTime), skipped: first };
}

function checkTimes(rows, stamps, first, column, freq) {
  const start = parseTime(stamps[first]);
  stamps.slice(first).forEach((text, i) => {
    const where = `row ${rows[first + i].row}, column '${column}'`;
    const got = parseTime(text);
    if (Number.isNaN(got)) throw new Refused(`${where}: expected a time such as 2026-01-31 00:00, got '${text.slice(0, 40)}'`);
    const expected = later(start, i, freq);
    if (Math.abs(got - expected) > 1) {
      throw new Refused(`${where}: expected ${stamp(expected, freq)}, one step of ${freq} after the row before, got ${stamp(got, freq)}. Give every step a row; a missing value may be empty.`);
    }
  });
}

// ---- The example of a model, as the CSV that a person would have.

function exampleCsv({ inputs: [series] }, card) {
  const known = card.future_covariates;
  const ahead = known.length ? series.future_covariates[known[0]].length : 0;
  const fields = [card.time, ...card.id_columns];
  const ids = card.id_columns.length > 1 ? series.item_id.split(" / ") : card.id_columns.map(() => series.item_id);
  const columns = [...series.columns.map((name) => (card.wide ? series.item_id : name)),
    ...Object.keys(series.past_covariates), ...Object.keys(series.static_covariates)];
  const start = parseTime(series.start);
  const data = [];
  for (let i = 0; i < series.target.length + ahead; i += 1) {
    const past = i < series.target.length;
    const before = ([name, values]) => (past ? values[i] : (series.future_covariates[name] || [])[i - series.target.length]);
    data.push([stamp(later(start, i, card.freq), card.freq), ...ids,
      ...(past ? series.target[i] : series.columns.map(() => null)),
      ...Object.entries(series.past_covariates).map(before), ...Object.values(series.static_covariates)]);
  }
  return Papa.unparse({ fields: [...fields, ...columns], data }, { newline: "\n" });
}

// ---- The service.

async function ask(path, body) {
  let answer;
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(state.key && { Authorization: `Bearer ${state.key}` }) };
  try {
    answer = await fetch(url(path), { headers, ...(body && { method: "POST", body: JSON.stringify(body) }) });
  } catch {
    throw new Refused("the service does not answer");
  }
  const found = await answer.json().catch(() => ({}));
  if (answer.ok) return found;
  if (answer.status === 401) {
    $("access").hidden = false;
    $("key").focus();
    if (!state.key) throw new Refused("this service wants an API key");
  }
  const more = (found.errors || []).slice(1).map(({ loc, msg }) => `\n${loc.join(".")}: ${msg}`);
  throw new Refused((found.detail || `the service answers ${answer.status}`) + more.join(""));
}

async function loadModels() {
  const { models } = await ask("models");
  if (!models.length) {
    say("", await ask("readyz").then(() => "", (error) => error.message));
    setTimeout(start, 2000);
    return;
  }
  state.models = models;
  fill($("model"), models.map(nameOf));
  $("model-field").hidden = models.length < 2;
  await choose(models[0]);
}

// What a request calls a model: its name, with alias or version where several have that name.
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
  $("wanted").textContent = wanted(card);
  fill($("names"), card.item_names);
  $("least").textContent = card.least;
  $("drop-field").hidden = card.least >= card.needs;
  $("drop").checked = $("drop").checked && card.least < card.needs;
  if (state.example) await takeExample();
  else await forecast();
}

async function takeExample() {
  const { card } = state;
  const request = await ask(`models/${encodeURIComponent(nameOf(card))}/example`);
  set(exampleCsv(request, card), { example: true });
  await forecast();
}

let newest = 0;

async function forecast() {
  const { card } = state;
  if (!card) return;
  const number = (newest += 1);
  say("forecasting …");
  try {
    const csv = readCsv(state.text || $("csv").value);
    const items = seriesOf(csv, card);
    if (items.length) fill($("item"), items, $("item").value);
    $("item-field").hidden = items.length < 2;
    $("name-field").hidden = !card.items || items.length > 0;
    const item = items.length ? $("item").value : card.items ? $("name").value.trim() : "";
    const request = buildRequest(csv, card, item, $("horizon").valueAsNumber || 0, $("drop").checked);
    const answer = await ask("predict", request.body);
    if (number !== newest) return; // a later one is on its way
    state.shown = { ...request, answer, prediction: answer.predictions[0], card };
    showResult();
    say(`forecast in ${Math.round(answer.timing.queue_ms + answer.timing.inference_ms)} ms`);
  } catch (error) {
    if (number === newest) say("", error.message);
    if (!(error instanceof Refused)) throw error;
  }
}

// ---- What is seen.

function say(status, error = "") {
  $("status").textContent = status;
  $("error").textContent = error;
  $("error").hidden = !error;
  if (error) $("result").hidden = true;
}

function fill(list, names, chosen) {
  list.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

function wanted(card) {
  const name = (list) => list.map((each) => `'${each}'`).join(", ");
  const values = card.wide ? "a column for each series" : name(card.targets);
  const others = [...card.past_covariates, ...card.future_covariates, ...card.static_covariates.map((each) => each.name)];
  return `At least ${card.needs} rows, one step of ${card.freq} apart: '${card.time}'` +
    `${card.id_columns.map((each) => `, '${each}'`).join("")}, ${values}${others.length ? `, ${name(others)}` : ""}.` +
    (card.future_covariates.length ? ` ${name(card.future_covariates)} for the ${card.horizon} steps ahead: in rows at the end, with no other values.` : "");
}

function showCard(card) {
  const figure = (value) => (value === undefined ? "" : value.toPrecision(3));
  const { floors = {}, network, ...test } = card.test;
  const facts = {
    name: card.name + (card.version ? `, version ${card.version}` : "") + (card.alias ? `, ${card.alias}` : ""),
    "made of": card.made_of.map(({ name, weight }) => `${name === "network" ? `network (${card.attn})` : name} ${percent(weight)}`).join(" · "),
    attention: `${card.attn}, ${percent(card.attn_weight)} of the forecast` + (card.effective ? ` (${card.effective})` : ""),
    forecasts: `${card.targets.join(", ")}: up to ${card.horizon} steps of ${card.freq}`,
    "looks back": `${card.look_back} steps` + (card.needs < card.look_back ? `, of which it needs ${card.needs}` : ""),
    covariates: [...card.past_covariates, ...card.future_covariates.map((name) => `${name} (known ahead)`), ...card.static_covariates.map(({ name, words }) => `${name} (${words ? words.join(", ") : "a number"})`)].join(", "),
    series: card.items ? `${card.items}` : "",
    quantiles: card.quantile_levels.length ? `${card.quantile_levels.join(", ")}, ${card.intervals}` : card.intervals,
    "tested on": test.windows ? `${test.windows.toLocaleString("en")} windows` + (card.refit ? "; trained once more on all rows since" : "") : "",
    run: card.run_id || "",
    digest: card.digest,
  };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, text]) => text).flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]));
  drawShares(card);
  const alone = network ? [[`network alone (${card.attn})`, network]] : [];
  const rows = [["this model", test], ...alone, ...Object.entries(floors)];
  $("figures").tBodies[0].replaceChildren(...rows.map(([name, { mse, mae }]) => {
    const row = make("tr", {}, make("th", { scope: "row" }, name));
    row.append(make("td", {}, figure(mse)), make("td", {}, figure(mae)));
    return row;
  }));
  $("figures").hidden = test.mse === undefined;
  $("verdict").textContent = [test.verdict, network?.verdict].filter(Boolean).join(" ");
  $("card").hidden = false;
}

const percent = (share) => `${Math.round(100 * share)} %`;

// A bar of the parts, the network in the colour of the forecast.
function drawShares({ made_of: parts }) {
  let left = 0;
  $("shares").setAttribute("viewBox", "0 0 100 1");
  $("shares").setAttribute("aria-label", `The weights of its parts: ${parts.map(({ name, weight }) => `${name} ${percent(weight)}`).join(", ")}`);
  $("shares").replaceChildren(...parts.map(({ name, kind, weight }) => {
    const box = make("rect", { class: `share ${kind}`, x: 100 * left, y: 0, width: 100 * weight, height: 1 }, make("title", {}, `${name} ${percent(weight)}`));
    left += weight;
    return box;
  }));
}

function showResult() {
  const { card, prediction, answer, body, time, skipped } = state.shown;
  $("result").hidden = false;
  fill($("column"), prediction.columns, $("column").value);
  $("column-field").hidden = prediction.columns.length < 2;
  const notes = skipped ? [`the newest ${card.look_back} of ${card.look_back + skipped} rows were read`] : [];
  $("warnings").replaceChildren(...[...notes, ...answer.notices.map(({ text }) => text)].map((text) => make("li", {}, text)));
  $("legend-forecast").textContent = `forecast (${card.forecast})`;
  $("legend-band").textContent = "between the quantiles 0.1 and 0.9";
  $("legend-band").hidden = !prediction.quantiles;
  $("values").textContent = valuesCsv();
  $("curl").textContent = `curl -s ${url("predict")}${state.key && ' -H "Authorization: Bearer $FORECASTER_API_KEY"'} -H 'Content-Type: application/json' -d @- <<'JSON'\n${JSON.stringify(body)}\nJSON`;
  const name = JSON.stringify(state.file || "history.csv");
  const other = time !== card.time;
  const { prediction_length: steps, quantile_levels: levels, short_history: drop } = body.parameters;
  const options = [`horizon=${steps}`, ...(levels.length ? [`levels=(${levels.join(", ")})`] : []), ...(drop ? [`short_history="${drop}"`] : []), ...(state.models.length > 1 ? [`model=${JSON.stringify(nameOf(card))}`] : [])];
  $("python").textContent = [
    ...(state.key ? ["import os"] : []),
    ...(other ? ["import pandas as pd"] : []),
    "from forecaster.client import Client",
    "",
    ...(other ? [`history = pd.read_csv(${name}).rename(columns={${JSON.stringify(time)}: ${JSON.stringify(card.time)}})`] : []),
    `client = Client("${url("").replace(/\/$/, "")}"${state.key && ', api_key=os.environ["FORECASTER_API_KEY"]'})`,
    `ahead = client.predict(${other ? "history" : name}, ${options.join(", ")})`,
    "print(ahead)",
  ].join("\n");
  draw();
}

function valuesCsv() {
  const { prediction, card } = state.shown;
  const quantiles = Object.entries(prediction.quantiles || {});
  const fields = [card.time, ...prediction.columns.flatMap((name) => [name, ...quantiles.map(([level]) => `${name} ${level}`)])];
  const data = prediction[card.forecast].map((row, i) => [stamp(ahead(i), card.freq),
    ...row.flatMap((value, j) => [value, ...quantiles.map(([, values]) => values[i][j])])]);
  return Papa.unparse({ fields, data }, { newline: "\n" });
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

function points() {
  const { body, stamps, prediction, card } = state.shown;
  const column = Math.max(0, prediction.columns.indexOf($("column").value));
  const [series] = body.inputs;
  const place = series.columns.indexOf(prediction.columns[column]);
  const quantiles = prediction.quantiles || {};
  const history = series.target.map((row, i) => ({ time: stamps[i], value: row[place], kind: "history" }));
  const forecast = prediction[card.forecast].map((row, i) => ({
    time: ahead(i), value: row[column], kind: "forecast",
    low: quantiles["0.1"]?.[i][column], high: quantiles["0.9"]?.[i][column],
  }));
  const names = [prediction.item_id, ...(card.wide ? [] : [prediction.columns[column]])];
  return { name: names.filter(Boolean).join(", "), history, forecast };
}

function draw() {
  if (!state.shown || $("result").hidden) return;
  const chart = $("chart");
  const { name, history, forecast } = points();
  const all = [...history, ...forecast];
  const width = chart.clientWidth, height = chart.clientHeight;
  const values = all.flatMap(({ value, low, high }) => [value, low, high]).filter((value) => value !== null && value !== undefined);
  let low = Math.min(...values), high = Math.max(...values);
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
  low -= margin; high += margin;
  const { ticks, step } = niceTicks(low, high, Math.max(2, Math.floor(height / 55)));
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const labels = ticks.map((tick) => (Math.abs(tick) >= 1e7 || digits > 6 ? tick.toExponential(2) : tick.toFixed(digits)));
  const left = 10 + 7 * Math.max(...labels.map((label) => label.length)), right = width - 8, top = 8, bottom = height - 24;
  const x = (i) => left + ((right - left) * i) / Math.max(1, all.length - 1);
  const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
  const spot = (i, value) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`;
  const parts = ticks.flatMap((tick, i) => [
    make("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
    make("text", { class: "end", x: left - 6, y: y(tick) + 4 }, labels[i]),
  ]);
  const days = all[all.length - 1].time - all[0].time > 3 * DAY;
  const text = (i) => (days ? isoTime(all[i].time).slice(0, 10) : isoTime(all[i].time).slice(5));
  const marks = Math.min(all.length, Math.max(1, Math.floor((right - left) / 110)));
  for (let k = 0; k < marks; k += 1) {
    const i = Math.round(((all.length - 1) * (k + 0.5)) / marks);
    parts.push(make("text", { class: "middle", x: x(i), y: height - 6 }, text(i)));
  }
  if (forecast[0].low !== undefined) {
    const upper = forecast.map(({ high: value }, i) => spot(history.length + i, value));
    const lower = forecast.map(({ low: value }, i) => spot(history.length + i, value)).reverse();
    parts.push(make("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` }));
  }
  parts.push(make("line", { class: "now", x1: x(history.length - 0.5), x2: x(history.length - 0.5), y1: top, y2: bottom }));
  let pen = "M";
  let path = "";
  history.forEach(({ value }, i) => {
    if (value === null) { pen = "M"; return; }
    path += pen + spot(i, value);
    if (history[i - 1]?.value == null && history[i + 1]?.value == null) path += "h0"; // a lone value is a dot
    pen = "L";
  });
  const last = history[history.length - 1].value;
  const from = last === null ? "" : `${spot(history.length - 1, last)}L`;
  parts.push(make("path", { class: "line history", d: path }));
  parts.push(make("path", { class: "line forecast", d: `M${from}${forecast.map(({ value }, i) => spot(history.length + i, value)).join("L")}` }));
  const cursor = make("g", { id: "cursor" });
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const what = `${name}: ${history.length} steps of history and ${forecast.length} of forecast, from ${isoTime(forecast[0].time)} to ${isoTime(all[all.length - 1].time)}, `;
  chart.setAttribute("aria-label", `${what}first ${short(forecast[0].value)}, last ${short(forecast[forecast.length - 1].value)}. Arrow keys read the values.`);
  chart.replaceChildren(...parts, cursor);
  $("readout").textContent = name;
  state.cursor = { at: history.length, show: (i) => {
    state.cursor.at = Math.min(all.length - 1, Math.max(0, i));
    const { time, value, kind, low: under, high: over } = all[state.cursor.at];
    const band = under === undefined ? "" : ` (${short(under)} to ${short(over)})`;
    $("readout").textContent = `${name}, ${stamp(time, state.shown.card.freq)}: ${kind} ${value === null ? "missing" : short(value)}${band}`;
    const across = x(state.cursor.at);
    cursor.replaceChildren(make("line", { class: "cursor", x1: across, x2: across, y1: top, y2: bottom }),
      ...(value === null ? [] : [make("circle", { class: kind, cx: across, cy: y(value), r: 4 })]));
  }, near: (across) => Math.round(((across - left) / (right - left)) * (all.length - 1)) };
}

const short = (value) => String(Number(value.toPrecision(5)));

// ---- What a person does.

const LONG = 1e6;

// What the field holds, and where it came from; a file that is too long for it is kept apart.
function set(value, { file = "", text = "", example = false } = {}) {
  $("csv").value = value;
  $("csv").placeholder = "";
  Object.assign(state, { file, text, example });
}

function read(file) {
  file.text().then((text) => {
    const long = text.length > LONG; // the browser would be slow to show it
    set(long ? "" : text, { file: file.name, text: long ? text : "" });
    $("csv").placeholder = long ? `${file.name}, ${(file.size / 1e6).toFixed(1)} MB` : "";
    return forecast();
  });
}

async function start() {
  try {
    await loadModels();
  } catch (error) {
    say("", error.message);
    if (!(error instanceof Refused)) throw error;
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
  $("example").addEventListener("click", () => takeExample().catch((error) => say("", error.message)));
  $("csv").addEventListener("input", () => Object.assign(state, { file: "", text: "", example: false }));
  $("csv").addEventListener("paste", () => setTimeout(forecast));
  for (const id of ["csv", "horizon", "item", "name", "drop"]) $(id).addEventListener("change", forecast);
  $("forecast").addEventListener("click", forecast);
  $("model").addEventListener("change", ({ target }) => choose(state.models[target.selectedIndex]).catch((error) => say("", error.message)));
  $("column").addEventListener("change", draw);
  const section = $("source");
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      section.classList.toggle("over", name === "dragenter" || name === "dragover");
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
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.addEventListener("click", async () => {
      const text = $(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(text.textContent);
        say("copied");
      } catch { // no clipboard without https or loopback: leave it selected
        getSelection().selectAllChildren(text);
        say("selected: copy it with the keyboard");
      }
    });
  }
}

listen();
start();
