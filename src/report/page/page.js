"use strict";
(() => {
const runs = JSON.parse(document.getElementById("data").textContent);
const single = runs.length === 1;
const palette = { light: ["#2f6bd8", "#e0752d", "#1f9d6b", "#8a5cd6", "#d1495b", "#1593a8", "#b07d00", "#c4569c"],
                  dark: ["#6ea0ff", "#f59b5b", "#4fcf98", "#b594f5", "#f27d8c", "#4cc3d6", "#e0b23e", "#ec8cc6"] };
const state = { axis: "step", log: false, theme: "light", hidden: new Set() };
const charts = [];
const profile = profileSection(single, runs);

const colour = (i) => palette[state.theme][i % palette[state.theme].length];
function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 60) return number(seconds, 3) + " s";
  const m = Math.floor(seconds / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (d > 0) return `${d} d ${h % 24} h`;
  return h > 0 ? `${h} h ${m % 60} min` : `${m} min ${Math.floor(seconds % 60)} s`;
}
function count(n) {
  for (const [unit, size] of [["B", 1e9], ["M", 1e6], ["k", 1e3]]) if (n >= size) return number(n / size, 3) + " " + unit;
  return String(n);
}
const reasons = { steps: "all steps done", epochs: "all epochs done", time: "time limit reached", early_stop: "stopped early",
                  signal: "stopped by a signal", not_finite: "loss not finite", out_of_memory: "out of memory" };
const short = { steps: "done", epochs: "done", time: "time limit", early_stop: "early stop", signal: "signal", not_finite: "not finite", out_of_memory: "out of memory" };
const ending = (run) => run.reason ? reasons[run.reason] || run.reason : "running or cut off";

// ---- head: facts and tiles of one run, a table of several
function intro() {
  const box = document.getElementById("intro");
  if (!single) {
    box.append(el("h1", {}, `${runs.length} runs side by side`),
      el("p", { class: "facts" }, [...new Set(runs.map((run) => `${run.model} on ${run.device}`))].map((text) => el("span", {}, text))));
    return;
  }
  const run = runs[0];
  const facts = [el("b", {}, run.model), `${count(run.parameters)} parameters`, run.device, run.ranks ? `${run.ranks.count} ranks` : "", `batch ${run.batch}`, run.spec, ending(run)];
  box.append(el("h1", {}, run.label), el("p", { class: "facts" }, facts.filter((fact) => fact !== "").map((fact) => el("span", {}, fact))));
  box.append(el("div", { class: "tiles" }, tilesOf(run)));
}
function tile(what, value, unit, note) {
  return el("div", { class: "card tile" }, el("div", { class: "what" }, what),
    el("div", { class: "value" }, value, unit ? el("small", {}, unit) : null), el("div", { class: "note" }, note || ""));
}
function tilesOf(run) {
  const smooth = run.curves.smooth.v;
  const tiles = [tile("Train loss", number(smooth[smooth.length - 1]), "", `smoothed; last step ${number(run.loss)}`)];
  if (run.valid_loss) tiles.push(tile("Best validation loss", number(run.valid_loss.value), "", `at step ${run.valid_loss.step}`));
  if (run.best && run.best.name !== "loss") tiles.push(tile(`Best ${run.best.name}`, number(run.best.value), "", `at step ${run.best.step}`));
  for (const [split, values] of Object.entries(run.splits))
    for (const [name, value] of Object.entries(values).slice(0, 2)) tiles.push(tile(`${name}, ${split} set`, number(value), "", "at the end"));
  tiles.push(tile("Throughput", number(run.samples), "samples/s", run.tokens ? `${count(run.tokens)} tokens/s` : "mean of all steps"));
  if (run.tflops) tiles.push(tile("Compute", number(run.tflops, 3), "TFLOP/s", known(run.mfu) ? `${number(run.mfu, 3)} % of the peak` : "achieved"));
  tiles.push(tile("Data wait", number(run.wait, 2), "%", "of the training time"));
  if (known(run.comm)) tiles.push(tile("Communication wait", number(run.comm, 2), "%", "of the training time, rank 0"));
  tiles.push(tile("Peak memory", number(run.memory, 3), "GiB", ""));
  tiles.push(tile("Steps", run.steps.toLocaleString("en-US"), run.total ? `of ${run.total.toLocaleString("en-US")}` : "", duration(run.seconds)));
  return tiles;
}
function markBest(cells, values, up) {
  const good = values.filter(known);
  if (good.length < 2 || new Set(good).size < 2) return;
  const best = cells[values.indexOf(up ? Math.max(...good) : Math.min(...good))].textContent;
  const equal = cells.filter((cell) => cell.textContent === best);  // as far as a reader sees
  if (equal.length < good.length) equal.forEach((cell) => cell.classList.add("best"));
}
function runName(i) {
  const dot = el("span", { class: "dot", "data-colour": i });
  return el("button", { class: "name", type: "button", "data-run": i, "aria-pressed": "true", title: runs[i].path, on: { click: () => {
    state.hidden.has(i) ? state.hidden.delete(i) : state.hidden.add(i);
    document.querySelectorAll(".name").forEach((button) => { if (button.dataset.run === String(i)) button.setAttribute("aria-pressed", String(!state.hidden.has(i))); });
    drawAll();
  } } }, dot, el("span", {}, runs[i].label));
}
function runTable() {
  if (single) return;
  const columns = [
    ["steps", (run) => run.steps, (x) => x.toLocaleString("en-US"), null],
    ["final loss", (run) => run.loss, number, false],
    ["best valid. loss", (run) => run.valid_loss?.value, number, false],
    ["best metric", (run) => run.best && run.best.name !== "loss" ? run.best.value : null, number, null],
    ["samples/s", (run) => run.samples, number, true],
    ["TFLOP/s", (run) => run.tflops || null, (x) => number(x, 3), true],
    ["data wait", (run) => run.wait, (x) => number(x, 2) + " %", false],
    ...(runs.some((run) => run.ranks) ? [["ranks", (run) => run.ranks ? run.ranks.count : 1, String, null],
      ["comm. wait", (run) => run.comm, (x) => number(x, 2) + " %", false]] : []),
    ["memory", (run) => run.memory, (x) => number(x, 3) + " GiB", false],
    ["time", (run) => run.seconds, duration, false],
    ["state", (run) => run.reason ? short[run.reason] || run.reason : "unfinished", (x) => x, null]];
  const body = runs.map((run, i) => el("tr", {}, el("td", {}, runName(i))));
  for (const [title, get, show, up] of columns) {
    const values = runs.map(get);
    const cells = values.map((value) => el("td", {}, known(value) || typeof value === "string" ? show(value) : "–"));
    if (title === "best metric") cells.forEach((cell, i) => { if (known(values[i])) cell.append(el("span", { class: "sub" }, runs[i].best.name)); });
    const names = new Set(runs.map((run) => run.best?.name));
    const metric = title === "best metric" && names.size === 1 ? runs[0].metrics[runs[0].best?.name] : null;
    if (up !== null || metric) markBest(cells, values, metric ? metric.up : up);
    cells.forEach((cell, i) => body[i].append(cell));
  }
  document.getElementById("runs").append(
    el("div", { class: "card scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "run"), columns.map(([title]) => el("th", {}, title)))), el("tbody", {}, body))),
    el("p", { class: "hint" }, "The best of each column is green. Click a run to hide or show its curves."),
    el("div", { class: "keys" }, runs.map((run, i) => runName(i))));
  document.getElementById("charts").before(document.querySelector(".keys"));  // beside the charts, it stays in sight with them
}

// ---- charts
function timeUnit(seconds) { return seconds > 7200 ? ["h", 3600] : seconds > 180 ? ["min", 60] : ["s", 1]; }
const xs = (curve) => state.axis === "step" ? curve.s : curve.t;
const tickText = (x) => Math.abs(x) >= 1e4 && state.axis === "step" ? count(x) : number(x, 6);

// What a chart shows: a list of {curve, label, run, faint, dashed, dots, colour}.
function visible(chart) { return chart.series().filter((one) => !state.hidden.has(one.run) && one.curve && one.curve.v.some(known)); }
function quantile(sorted, q) { return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]; }
function ranges(chart, list) {
  let y0 = Infinity, y1 = -Infinity;
  for (const { curve, faint } of list) {
    let values = curve.v.filter((v) => known(v) && (!chart.isLog() || v > 0));
    if (values.length === 0) continue;
    if (faint && values.length > 50) {  // single peaks may leave the picture, the curve behind them may not
      values = [...values].sort((a, b) => a - b);
      values = [quantile(values, 0.01), quantile(values, 0.99)];
    }
    for (const v of values) { y0 = Math.min(y0, v); y1 = Math.max(y1, v); }
  }
  if (chart.zero) y0 = Math.min(y0, 0);
  if (chart.least) y1 = Math.max(y1, chart.least);
  if (y0 === y1) { y1 += Math.abs(y1) * 0.1 || 1; if (!chart.zero) y0 -= Math.abs(y0) * 0.1 || 1; }
  return { ...horizontal(), y0, y1 };
}
// All charts share one horizontal range, so that what happened at one time stands in one column.
function horizontal() {
  let x1 = 0;
  runs.forEach((run, i) => {
    for (const curve of [run.curves.smooth, run.curves.valid]) if (!state.hidden.has(i) && curve.v.length) x1 = Math.max(x1, xs(curve)[curve.v.length - 1]);
  });
  return { x0: 0, x1: x1 || 1 };
}
function layout(chart, list) {
  const r = ranges(chart, list), width = chart.box.clientWidth - (window.innerWidth <= 520 ? 24 : 32), height = chart.wide ? Math.min(340, Math.max(230, width * 0.42)) : 220;
  const log = chart.isLog(), pad = { top: 10, right: 14, bottom: 26 };
  if (log) { const f = (r.y1 / r.y0) ** 0.05; r.y0 /= f; r.y1 *= f; }
  else { const m = (r.y1 - r.y0) * 0.06; r.y1 += m; if (!chart.zero) r.y0 -= m; }
  const yTicks = log ? logTicks(r.y0, r.y1) : niceTicks(r.y0, r.y1, height > 260 ? 6 : 4);
  const longest = Math.max(1, ...yTicks.map((t) => number(t, 6).length));
  pad.left = 12 + longest * 6.6;
  const w = width - pad.left - pad.right, h = height - pad.top - pad.bottom;
  const fy = log ? Math.log : (v) => v;
  return { ...r, width, height, pad, w, h, yTicks,
    x: (v) => pad.left + (v - r.x0) / (r.x1 - r.x0) * w,
    y: (v) => pad.top + h - (fy(v) - fy(r.y0)) / (fy(r.y1) - fy(r.y0)) * h };
}
function pathOf(curve, at, log) {
  const x = xs(curve);
  let text = "", pen = false;
  for (let i = 0; i < x.length; ++i) {
    if (!known(curve.v[i]) || (log && curve.v[i] <= 0)) { pen = false; continue; }
    text += `${pen ? "L" : "M"}${at.x(x[i]).toFixed(1)} ${at.y(curve.v[i]).toFixed(1)}`;
    pen = true;
  }
  return text;
}
function drawAxes(svg, at) {
  for (const tick of at.yTicks) {
    svg.append(el("line", { class: "gridline", x1: at.pad.left, x2: at.width - at.pad.right, y1: at.y(tick), y2: at.y(tick) }),
      el("text", { x: at.pad.left - 7, y: at.y(tick) + 4, "text-anchor": "end" }, number(tick, 6)));
  }
  const [unit, size] = state.axis === "time" ? timeUnit(at.x1) : ["step", 1];
  const ticks = niceTicks(at.x0 / size, at.x1 / size, Math.max(2, Math.floor(at.w / 95)));
  svg.append(el("line", { class: "base", x1: at.pad.left, x2: at.width - at.pad.right, y1: at.pad.top + at.h, y2: at.pad.top + at.h }));
  ticks.forEach((tick, i) => {
    const x = at.x(tick * size), last = i === ticks.length - 1, near = last && x > at.width - at.pad.right - 24;
    svg.append(el("text", { x: near ? at.width - at.pad.right : x, y: at.height - 7, "text-anchor": near ? "end" : "middle" }, tickText(tick) + (last ? " " + unit : "")));
  });
}
function drawSeries(svg, list, at, log, id) {
  svg.append(el("defs", {}, el("clipPath", { id }, el("rect", { x: at.pad.left - 4, y: at.pad.top - 4, width: at.w + 8, height: at.h + 8 }))));
  const group = svg.appendChild(el("g", { "clip-path": `url(#${id})` }));
  for (const one of list) {
    group.append(el("path", { d: pathOf(one.curve, at, log), fill: "none", stroke: colour(one.colour), "stroke-width": one.faint ? 1 : 2, "stroke-opacity": one.faint ? 0.24 : 1,
      "stroke-linejoin": "round", "stroke-linecap": "round", "stroke-dasharray": one.dashed ? "5 5" : null }));
    if (!one.dots || one.curve.v.length > 60) continue;
    xs(one.curve).forEach((x, i) => { if (known(one.curve.v[i]) && (!log || one.curve.v[i] > 0))
      group.append(el("circle", { cx: at.x(x), cy: at.y(one.curve.v[i]), r: 3, fill: colour(one.colour), stroke: "var(--card)", "stroke-width": 1.2 })); });
  }
}
function draw(chart, index) {
  const list = visible(chart);
  chart.svg.replaceChildren();
  chart.box.style.display = chart.series().some((one) => one.curve && one.curve.v.some(known)) ? "" : "none";
  chart.at = null;
  if (list.length === 0) { chart.svg.setAttribute("height", 60); return; }
  const at = chart.at = layout(chart, list);
  chart.svg.setAttribute("height", at.height);
  chart.svg.setAttribute("viewBox", `0 0 ${at.width} ${at.height}`);
  drawAxes(chart.svg, at);
  drawSeries(chart.svg, list, at, chart.isLog(), "clip" + index);
  chart.cross = chart.svg.appendChild(el("g"));
  chart.legend.replaceChildren(...(chart.legendItems ? chart.legendItems() : []));
}
function nearestIndex(x, value) {
  let low = 0, high = x.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (x[middle] < value) low = middle; else high = middle; }
  return Math.abs(x[low] - value) <= Math.abs(x[high] - value) ? low : high;
}
function hideTips() { for (const chart of charts) { chart.tip.hidden = true; if (chart.cross) chart.cross.replaceChildren(); } }
function point(chart, event) {
  const at = chart.at;
  if (!at) return;
  const bounds = chart.svg.getBoundingClientRect();
  const value = at.x0 + Math.min(1, Math.max(0, (event.clientX - bounds.left - at.pad.left) / at.w)) * (at.x1 - at.x0);
  for (const other of charts) if (other.at) cross(other, value);
  showTip(chart, value, event.clientX - chart.box.getBoundingClientRect().left, event.clientY - chart.box.getBoundingClientRect().top);
}
function cross(chart, value) {
  const at = chart.at;
  chart.cross.replaceChildren();
  if (value < at.x0 || value > at.x1) return;
  chart.cross.append(el("line", { class: "cross", x1: at.x(value), x2: at.x(value), y1: at.pad.top, y2: at.pad.top + at.h }));
  for (const one of visible(chart)) {
    if (one.faint) continue;
    const x = xs(one.curve), i = nearestIndex(x, value), v = one.curve.v[i];
    if (known(v) && (!chart.isLog() || v > 0) && v <= at.y1 && v >= at.y0)
      chart.cross.append(el("circle", { cx: at.x(x[i]), cy: at.y(v), r: 4, fill: colour(one.colour), stroke: "var(--card)", "stroke-width": 1.5 }));
  }
}
function showTip(chart, value, left, top) {
  const rows = visible(chart).filter((one) => !one.faint).map((one) => {
    const i = nearestIndex(xs(one.curve), value);
    return el("div", { class: "row" }, el("span", {}, el("i", { class: "dot", style: `background:${colour(one.colour)};margin:0` }), el("em", {}, one.label)),
      el("b", {}, number(one.curve.v[i]) + (chart.unit.startsWith("%") ? " %" : "")));
  });
  const when = state.axis === "step" ? `step ${Math.round(value).toLocaleString("en-US")}` : duration(value);
  chart.tip.replaceChildren(el("div", { class: "when" }, when), ...rows);
  chart.tip.hidden = false;
  const room = chart.box.clientWidth, size = chart.tip.offsetWidth;
  chart.tip.style.left = Math.max(4, left + 16 + size > room ? left - size - 16 : left + 16) + "px";
  chart.tip.style.top = Math.max(4, Math.min(top + 14, chart.box.clientHeight - chart.tip.offsetHeight - 4)) + "px";
}
function swatch(text, index, kind) {
  const svg = el("svg", { width: 20, height: 10, style: "width:20px" }, el("line", { x1: 1, x2: 19, y1: 5, y2: 5, stroke: index === null ? "var(--soft)" : colour(index), "stroke-width": 2, "stroke-dasharray": kind.endsWith("dashed") ? "4 4" : null }));
  if (kind === "dots" || kind === "dashed") svg.append(el("circle", { cx: 10, cy: 5, r: 3, fill: index === null ? "var(--soft)" : colour(index) }));
  return el("span", {}, svg, text);
}
function addChart(title, unit, options) {
  const chart = { unit, isLog: () => false, ...options };
  chart.svg = el("svg", { role: "img", "aria-label": title });
  chart.legend = el("div", { class: "legend" });
  chart.tip = el("div", { class: "tip", hidden: "" });
  chart.box = el("div", { class: "card chart" + (chart.wide ? " wide" : "") },
    el("div", { class: "top" }, el("h3", {}, title, unit ? el("small", {}, unit) : null), chart.legend), chart.svg, chart.tip);
  chart.svg.addEventListener("pointermove", (event) => point(chart, event));
  chart.svg.addEventListener("pointerdown", (event) => point(chart, event));
  chart.svg.addEventListener("pointerleave", hideTips);
  (options.into || document.getElementById("charts")).append(chart.box);
  charts.push(chart);
}
const plain = (name) => () => runs.map((run, i) => ({ curve: run.curves[name], label: run.label, run: i, colour: i }));
function lossSeries() {
  return runs.flatMap((run, i) => [
    { curve: run.curves.loss, label: "", run: i, colour: i, faint: true },
    { curve: run.curves.smooth, label: single ? "train" : `${run.label}, train`, run: i, colour: i },
    { curve: run.curves.valid, label: single ? "validation" : `${run.label}, valid.`, run: i, colour: single ? 1 : i, dashed: !single, dots: true }]);
}
function lossLegend() {
  const valid = runs.some((run) => run.curves.valid.v.length);
  return [swatch("train, smoothed", single ? 0 : null, "line"), valid ? swatch("validation", single ? 1 : null, single ? "dots" : "dashed") : null].filter(Boolean);
}
function rankSeries() {
  return runs.flatMap((run, i) => run.rank_curves ? [
    { curve: run.rank_curves.slowest, label: single ? "slowest" : `${run.label}, slowest`, run: i, colour: single ? 1 : i },
    { curve: run.rank_curves.median, label: single ? "median" : `${run.label}, median`, run: i, colour: i, dashed: !single }] : []);
}
const rankLegend = () => [swatch("slowest", single ? 1 : null, "line"), swatch("median", single ? 0 : null, single ? "line" : "plain dashed")];
function allCharts() {
  addChart("Loss", "", { wide: true, series: lossSeries, isLog: () => state.log, legendItems: lossLegend });
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))];
  const metric = (name, into) => addChart(name, runs.find((run) => run.metrics[name]).metrics[name].up ? "validation, higher is better" : "validation, lower is better",
    { into, series: () => runs.map((run, i) => ({ curve: run.metrics[name]?.curve, label: run.label, run: i, colour: i, dots: true })) });
  names.slice(0, 4).forEach((name) => metric(name));
  addChart("Learning rate", "", { zero: true, series: plain("lr") });
  addChart("Throughput", "samples/s", { zero: true, series: plain("samples") });
  addChart("Throughput", "tokens/s", { zero: true, series: plain("tokens") });
  addChart("Compute", "TFLOP/s", { zero: true, series: plain("tflops") });
  addChart("Data wait", "%", { zero: true, least: 10, series: plain("wait") });
  addChart("Communication wait", "%, rank 0", { zero: true, least: 10, series: plain("comm") });
  addChart("Slowest rank", "ms a step, without waiting for others", { zero: true, series: rankSeries, legendItems: rankLegend });
  addChart("Memory", "GiB, peak", { zero: true, series: plain("memory") });
  addChart("Gradient norm", "smoothed", { series: plain("grad_norm") });
  if (names.length <= 4) return;
  const grid = el("div", { class: "grid" });
  const box = el("details", { class: "card" }, el("summary", {}, `${names.length - 4} more metrics`), grid);
  box.addEventListener("toggle", drawAll);
  document.getElementById("more").append(box);
  names.slice(4).forEach((name) => metric(name, grid));
}

// ---- below the charts: pictures, events, configs
function more() {
  const box = document.getElementById("more"), pictured = runs.filter((run) => run.picture);
  if (pictured.length) box.append(el("h2", {}, pictured.length > 1 ? "Last pictures" : "Last picture"), el("div", { class: "pictures" },
    pictured.map((run) => el("figure", { class: "card" }, el("img", { src: run.picture, alt: `picture of ${run.label}` }), el("figcaption", {}, run.label)))));
  for (const run of runs) {
    const of = (text) => el("small", {}, single ? text : run.label);
    if (run.events.length) box.append(el("details", { class: "card" }, el("summary", {}, "Events", of(String(run.events.length))),
      el("div", { class: "log" }, el("table", {}, run.events.map((event) => el("tr", {}, el("td", {}, `step ${event.step}`), el("td", {}, event.kind), el("td", {}, event.text)))))));
    if (run.config) box.append(el("details", { class: "card" }, el("summary", {}, "Config", of(run.spec)), el("pre", {}, run.config)));
  }
}
function drawAll() {
  document.querySelectorAll("[data-colour]").forEach((dot) => { dot.style.background = colour(Number(dot.dataset.colour)); });
  hideTips();
  charts.forEach(draw);
  profile.draw();
}
function addSwitch(id, words, chosen, choose) {
  const buttons = words.map((word) => el("button", { type: "button", "aria-pressed": String(word === chosen), on: { click: () => {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === word)));
    choose(word); drawAll();
  } } }, word));
  document.getElementById(id).append(...buttons);
}
function setTheme(theme) { state.theme = theme; document.documentElement.dataset.theme = theme; drawAll(); }

intro(); runTable(); allCharts();
document.getElementById("ranks").append(...rankSection(single, runs));
document.getElementById("profile").append(...profile.nodes);
more();
addSwitch("axis", ["Step", "Time"], "Step", (word) => { state.axis = word.toLowerCase(); });
addSwitch("scale", ["Linear", "Log"], "Linear", (word) => { state.log = word === "Log"; });
const dark = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(state.theme === "dark" ? "light" : "dark"));
onWidth(drawAll);
})();
