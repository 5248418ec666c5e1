"use strict";
// Draws what /api/state says once a second. Texts of engines and agents enter the page as text, never as markup.
const POLL_MS = 1000;
const KEEP_SAMPLES = 600;
const opened = new Set();
let samples = [];
let last = 0;
let chosen = null;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.onclick = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.map(child => child instanceof Node ? child : String(child ?? "")));
  return element;
}

const number = (value, digits = 2, scale = 1) => value === null || value === undefined ? "?" : (value * scale).toFixed(digits);

function cellRow(cell, total, peak) {
  const terms = cell.terms ?? {};
  const state = cell.silent ? "blind" : cell.state;
  const share = total && cell.weight ? cell.weight / total : 0;
  const bar = make("div", {});
  bar.style.width = `${6 * (peak ? share / peak : 0)}rem`;
  const flags = (terms.flags ?? []).map(flag => make("span", { class: "flag" }, flag));
  const toggle = () => { opened.has(cell.cell_id) ? opened.delete(cell.cell_id) : opened.add(cell.cell_id); poll(); };
  return make("tr", { class: "cell", onclick: toggle },
    make("td", {}, cell.cell_id),
    make("td", {}, make("span", { class: `state ${state}` }, state)),
    make("td", { class: "number" }, cell.weight ?? "-"),
    make("td", {}, make("div", { class: "share" }, bar, `${(100 * share).toFixed(1)} %`)),
    make("td", { class: "number" }, number(terms.pressure)),
    make("td", { class: "number" }, number(terms.speed)),
    make("td", { class: "number" }, number(cell.rtt_s, 1, 1e3)),
    make("td", { class: "number" }, number(cell.jitter_s, 1, 1e3)),
    make("td", { class: "number" }, `${cell.requests} / ${cell.failed}`),
    make("td", {}, ...flags, terms.reason || cell.reason || ""));
}

function signalRow(cell) {
  const list = make("dl");
  for (const [name, value] of cell.terms?.signals ?? []) {
    const known = value !== null;
    list.append(make("div", known ? {} : { class: "unknown" },
      make("dt", {}, name), make("dd", {}, known ? number(value, 3) : "unknown")));
  }
  return make("tr", { class: "signals" }, make("td", { colspan: 10 }, list));
}

function siteTable(site, cells, total, peak) {
  const heads = ["cell", "state", "weight", "share", "pressure", "speed", "rtt ms", "jitter ms", "requests / failed", "why"];
  const body = make("tbody");
  for (const cell of cells) {
    body.append(cellRow(cell, total, peak));
    if (opened.has(cell.cell_id)) body.append(signalRow(cell));
  }
  return make("div", {}, make("h2", {}, site),
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map(head => make("th", {}, head)))), body));
}

function drawSites(status) {
  const cells = [...(status?.cells ?? [])].sort((a, b) => a.cell_id < b.cell_id ? -1 : 1);
  const total = cells.reduce((sum, cell) => sum + (cell.weight ?? 0), 0);
  const peak = total ? Math.max(...cells.map(cell => (cell.weight ?? 0) / total)) : 0;
  const sites = [...new Set(cells.map(cell => cell.site))].sort();
  document.getElementById("sites").replaceChildren(
    ...sites.map(site => siteTable(site, cells.filter(cell => cell.site === site), total, peak)));
}

function pickRow(cell) {
  const hits = cell.predicted_hit_tokens ? `${number(cell.served_hit_tokens / cell.predicted_hit_tokens, 0, 100)} %` : "-";
  const values = [cell.in_flight, cell.decoding, cell.waiting_tokens, number(cell.slowness_ratio), number(cell.prefill_tokens_per_s, 0),
    cell.cooling_s === null ? "-" : number(cell.cooling_s, 1), cell.learned_limit_tokens ?? "-", cell.predicted_hit_tokens,
    cell.served_hit_tokens, hits, cell.index_blocks];
  return make("tr", {}, make("td", {}, cell.cell_id), ...values.map(value => make("td", { class: "number" }, value)));
}

function orderText(order) {
  if (!order) return "no tuner";
  const told = weights => Object.entries(weights).map(([name, value]) => `${name} ${number(value, 2)}`).join(", ");
  const tried = order.child ? `, ${number(100 * order.child_share, 0)} % try ${told(order.child)}` : "";
  return `tuner's order: ${told(order.weights)}${tried}`;
}

function drawPick(pick) {
  const panel = document.getElementById("pick");
  if (!pick) return panel.replaceChildren();
  const refusals = Object.entries(pick.refusals).map(([kind, count]) => `${count} ${kind}`).join(", ");
  const off = pick.classes.filter(row => row.alert).map(row => `class table is off for ${row.hardware || "unknown hardware"}`);
  const words = [`policy ${pick.policy}`, orderText(pick.tuner), `${pick.picks} picks at ${number(pick.decision_us, 0)} us`, `${pick.ties} drawn`,
    `${pick.in_flight} in flight`, `${pick.moved} served elsewhere`, `${pick.left} left to the weights`, `${pick.late} too late`,
    `${pick.refused} refused`, `no cell: ${refusals || "never"}`, `${pick.expired} expired`, `${pick.unknown} unknown`,
    `${pick.faults} faults`, `${pick.policy_failures} failures of the policy file`, `${pick.index_blocks} blocks in the index`, ...off];
  const heads = ["cell", "in flight", "decoding", "waiting tokens", "slowness", "prefill tokens/s", "cooling s", "learned limit", "hits predicted",
    "hits served", "of predicted", "blocks"];
  panel.replaceChildren(make("h2", {}, "Picks"), make("p", {}, words.join(", ")),
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map(head => make("th", {}, head)))),
      make("tbody", {}, ...pick.cells.map(pickRow))));
}

const when = event => (event.at ?? new Date(1e3 * (event.at_unix_s ?? 0)).toISOString()).slice(11, 23);

function drawEvents(events) {
  const rows = events.map(event => make("tr", {},
    make("td", {}, when(event)), make("td", {}, event.source),
    make("td", {}, event.name), make("td", {}, event.cell_id ?? ""),
    make("td", {}, event.detail ?? [event.before && `${event.before} > ${event.after}`, event.cause].filter(Boolean).join(": "))));
  document.querySelector("#events tbody").replaceChildren(...rows);
}

function drawFigures() {
  if (!window.Plotly || !samples.length) return;
  const cells = Object.keys(samples[samples.length - 1].weights).sort();
  const x = samples.map(sample => sample.at_s);
  const total = sample => Object.values(sample.weights).reduce((sum, weight) => sum + weight, 0) || 1;
  const layout = title => ({
    title: { text: title, font: { size: 13 } }, margin: { t: 30, r: 10, b: 30, l: 40 }, showlegend: true,
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: getComputedStyle(document.body).color },
    xaxis: { title: "s" }, yaxis: { rangemode: "tozero" }, uirevision: "keep",
  });
  const lines = read => cells.map(cell => ({ x, y: samples.map(sample => read(sample, cell)), name: cell, mode: "lines", line: { width: 1.5 } }));
  const options = { displayModeBar: false, responsive: true };
  Plotly.react("shares", lines((sample, cell) => 100 * (sample.weights[cell] ?? 0) / total(sample)), layout("share of weight, %"), options);
  Plotly.react("rates", lines((sample, cell) => sample.requests_per_s[cell] ?? 0), layout("requests ended per s"), options);
}

function drawHead(state) {
  document.getElementById("grid").textContent = state.grid;
  const select = document.getElementById("gateway");
  const ids = state.gateways.map(gateway => gateway.id);
  if (select.dataset.ids !== ids.join()) {
    select.replaceChildren(...ids.map(id => make("option", { value: id }, id)));
    select.dataset.ids = ids.join();
  }
  chosen = select.value || ids[0];
  const problems = [...state.gateways, ...state.controls].filter(part => part.problem).map(part => `${part.id}: ${part.problem}`);
  const gateway = state.gateways.find(item => item.id === chosen);
  const held = state.controls.map(control => control.grid?.holding_back_because).filter(Boolean);
  const words = [...problems, ...held];
  document.getElementById("health").textContent = words.length ? words.join("; ") :
    `clients: http://${gateway?.status?.listen ?? "?"}, all parts answer`;
  return gateway;
}

async function poll() {
  try {
    const state = await (await fetch(`/api/state?after=${last}`)).json();
    samples = samples.concat(state.history).slice(-KEEP_SAMPLES);
    if (samples.length) last = samples[samples.length - 1].sequence;
    const status = drawHead(state)?.status;
    drawSites(status);
    drawPick(status?.pick);
    drawEvents(state.events);
    drawFigures();
  } catch (error) {
    last = 0;
    samples = [];
    document.getElementById("health").textContent = `the dashboard does not answer: ${error}`;
  }
}

poll();
setInterval(poll, POLL_MS);
