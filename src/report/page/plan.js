"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent), { plans } = data;
const into = (id, ...nodes) => document.getElementById(id).append(...nodes.filter(Boolean));
const facts = (texts) => el("p", { class: "facts" }, texts.filter(Boolean).map((text) => el("span", {}, text)));
const colours = ["m0", "m5", "m1", "p5", "m2", "m4", "m3", "p7", "m6", "m7", "p6", "comm"], partColours = ["p0", "p1", "p5", "p2", "p4", "p7", "p6", "p3", "data", "m2"];
const colourOf = (i) => `var(--${colours[i]})`, partColour = (i) => `var(--${partColours[i]})`;
const dot = (colour) => el("span", { class: "dot", style: `background:${colour}` });
const seconds = (s) => !known(s) || s <= 0 ? "–" : s >= 1 ? number(s, 4) + "\u00a0s" : number(1000 * s, 4) + "\u00a0ms";
const pace = (x) => !known(x) ? "–" : x >= 1e6 ? number(x / 1e6, 3) + "\u00a0M" : x >= 1e4 ? number(x / 1e3, 3) + "\u00a0k" : number(x, 4);
const short = (plan) => [plan.layout, plan.zero ? `ZeRO-${plan.zero}` : "", plan.memory === "-" ? "" : plan.memory, `micro ${plan.micro}`].filter(Boolean).join(", ");
const shown = plans.slice(0, 12), best = plans[0];

function tile(what, value, unit, note) {
  return el("div", { class: "card tile" }, el("div", { class: "what" }, what), el("div", { class: "value" }, value, unit ? el("small", {}, unit) : null), el("div", { class: "note", title: note || "" }, note || ""));
}
function intro() {
  into("intro", el("h1", {}, best && best.fits ? short(best) : "Nothing fits"),
    facts([data.model, `${data.gpus} × ${data.gpu}`, data.cluster, data.batch > 0 ? `global batch ${data.batch.toLocaleString("en-US")}` : "", `limit ${bytesText(data.limit)} a GPU`,
      `${data.search.choices.toLocaleString("en-US")} choices, ${data.search.pruned.toLocaleString("en-US")} left out by a bound, ${data.search.dry_runs.toLocaleString("en-US")} run dry, ${seconds(data.search.seconds)}`]));
  if (!best) return;
  if (!best.fits) into("intro", el("div", { class: "card alert" }, el("b", {}, short(best)), ` ${best.reason}`));
  into("intro", el("div", { class: "tiles" }, tile("A step, predicted", seconds(best.seconds), "", best.bound), tile(`${data.unit} a second`, pace(best.pace), "", `${number(best.samples, 4)} samples/s`),
    tile("Peak of the fullest GPU", bytesText(best.peak), "", `${percentText(best.peak / data.limit)} of ${bytesText(data.limit)}`), tile("Share of the peak FLOP/s", known(best.mfu) ? percentText(best.mfu) : "–", "", "without what is computed again")));
}
function legend(names, colour, used) {
  return el("div", { class: "legend" }, names.map((name, i) => used(i) ? el("span", {}, el("i", { class: "swatch", style: `background:${colour(i)}` }), name) : null));
}
function stacked(parts, names, colour, most, text, limit) {
  const at = limit > 0 && limit <= most ? el("b", { class: "limit", style: `left:${(100 * limit / most).toFixed(2)}%`, title: `limit ${bytesText(limit)}` }) : null;
  return el("div", { class: "bar", role: "img", "aria-label": parts.map((x, i) => x > 0 ? `${names[i]} ${text(x)}` : "").filter(Boolean).join(", ") },
    parts.map((x, i) => x > 0 ? el("i", { style: `width:${(100 * x / most).toFixed(3)}%;background:${colour(i)}`, title: `${names[i]} ${text(x)}` }) : null), at);
}
function memoryBars() {
  const most = Math.max(data.limit, ...shown.flatMap((plan) => plan.ranks.map((rank) => rank.device))) * 1.02;
  const used = (i) => shown.some((plan) => plan.ranks.some((rank) => rank.parts[i] > 0));
  const rows = shown.flatMap((plan) => plan.ranks.map((rank, k) => {
    const name = `${plan.place}  ${plan.ranks.length > 1 ? `${rank.name}: ` : ""}${short(plan)}`;
    return el("div", { class: `bar-row named plan-row${rank.device > data.limit ? " high" : ""}${k === 0 ? " first" : ""}`, title: `${name}; peak at the ${rank.moment}${rank.module ? `, in ${rank.module}` : ""}` },
      el("span", { class: "who" }, el("bdi", {}, name)), stacked(rank.parts, data.kinds, colourOf, most, bytesText, data.limit),
      el("span", { class: "much" }, bytesText(rank.device), el("small", {}, percentText(rank.device / data.limit))));
  }));
  into("memory", el("h2", {}, "Memory"), el("div", { class: "card part" }, el("h3", {}, "Peak of each kind of rank", el("small", {}, `the line is the limit of ${bytesText(data.limit)}`)), legend(data.kinds, colourOf, used), el("div", { class: "bars" }, rows)));
}
function timeBars() {
  const timed = shown.filter((plan) => plan.seconds > 0), most = Math.max(...timed.map((plan) => plan.seconds)) * 1.02;
  if (!timed.length) return;
  const rows = timed.map((plan) => el("div", { class: "bar-row named plan-row first", title: short(plan) }, el("span", { class: "who" }, el("bdi", {}, `${plan.place}  ${short(plan)}`)), stacked(plan.parts, data.parts, partColour, most, seconds, 0),
    el("span", { class: "much" }, seconds(plan.seconds), el("small", {}, known(plan.mfu) ? percentText(plan.mfu) : ""))));
  into("time", el("h2", {}, "Time of a step"), el("div", { class: "card part" }, el("h3", {}, "Of the slowest rank", el("small", {}, "right: share of the peak FLOP/s")), legend(data.parts, partColour, (i) => timed.some((plan) => plan.parts[i] > 0)), el("div", { class: "bars" }, rows)));
}
// Throughput against peak memory of all plans, with the limit.
function tradeOff() {
  const points = plans.filter((plan) => plan.peak > 0 && plan.pace > 0);
  if (points.length < 1) return null;
  const svg = el("svg", { role: "img", "aria-label": "throughput against peak memory", class: "timeline" }), tip = el("div", { class: "tip", hidden: "" });
  const node = el("div", { class: "card chart wide" }, el("div", { class: "top" }, el("h3", {}, "Trade-off", el("small", {}, `${data.unit} a second against the peak of the fullest GPU`)),
    el("div", { class: "legend" }, el("span", {}, el("i", { class: "swatch own" }), "fits"), el("span", {}, el("i", { class: "swatch", style: "background:var(--warn)" }), "does not fit"))), svg, tip);
  into("trade", node);
  let at = null;
  function draw() {
    const width = Math.max(240, node.clientWidth - (window.innerWidth <= 520 ? 24 : 32)), height = Math.min(380, Math.max(240, width * 0.42)), top = Math.max(...points.map((p) => p.pace)) * 1.08;
    const peaks = points.map((p) => p.peak), near = data.limit <= 1.6 * Math.max(...peaks), most = Math.max(...peaks, near ? data.limit : 0) * 1.05, [unit, size] = bytesUnit(most);
    const pad = { top: 24, right: 16, bottom: 34, left: 56 }, w = width - pad.left - pad.right, h = height - pad.top - pad.bottom;
    const x = (bytes) => pad.left + bytes / most * w, y = (value) => pad.top + h - value / top * h;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    for (const tick of niceTicks(0, top, 5)) svg.append(el("line", { class: "gridline", x1: pad.left, x2: width - pad.right, y1: y(tick), y2: y(tick) }), el("text", { x: pad.left - 7, y: y(tick) + 4, "text-anchor": "end" }, tick === 0 ? "0" : pace(tick)));
    for (const tick of niceTicks(0, most / size, Math.max(2, Math.floor(w / 90)))) svg.append(el("text", { x: x(tick * size), y: height - 14, "text-anchor": "middle" }, number(tick, 4)));
    svg.append(el("line", { class: "base", x1: pad.left, x2: width - pad.right, y1: y(0), y2: y(0) }), el("text", { x: width - pad.right, y: height - 1, "text-anchor": "end" }, unit), el("text", { x: pad.left, y: 13 }, `${data.unit}/s`));
    if (near) svg.append(el("line", { class: "limit", x1: x(data.limit), x2: x(data.limit), y1: pad.top - 4, y2: y(0) }), el("text", { class: "limit", x: x(data.limit) - 5, y: pad.top - 8, "text-anchor": "end" }, `limit ${bytesText(data.limit)}`));
    for (const plan of [...points].reverse()) svg.append(el("circle", { class: `plan-dot${plan.fits ? "" : " misfit"}${plan === best ? " best" : ""}`, cx: x(plan.peak), cy: y(plan.pace), r: plan === best ? 7 : 5 }));
    at = { width, x, y, cross: svg.appendChild(el("g")) };
  }
  function point(event) {
    const box = svg.getBoundingClientRect(), scale = at.width / box.width, px = (event.clientX - box.left) * scale, py = (event.clientY - box.top) * scale;
    const far = (plan) => Math.hypot(at.x(plan.peak) - px, at.y(plan.pace) - py);
    const plan = points.reduce((a, b) => far(b) < far(a) ? b : a);
    if (far(plan) > 60) return leave();
    at.cross.replaceChildren(el("circle", { class: "peak", cx: at.x(plan.peak), cy: at.y(plan.pace), r: 4 }));
    const row = (name, value) => el("div", { class: "row" }, el("span", {}, el("em", {}, name)), el("b", {}, value));
    tip.replaceChildren(el("div", { class: "wrap" }, `${plan.place}  ${short(plan)}`), row("peak", `${bytesText(plan.peak)} (${percentText(plan.peak / data.limit)})`), row(`${data.unit}/s`, pace(plan.pace)), row("a step", seconds(plan.seconds)),
      el("div", { class: "wrap" }, plan.reason || "the fastest that fits"));
    tip.hidden = false;
    const outer = node.getBoundingClientRect(), left = at.x(plan.peak) / scale + box.left - outer.left;
    tip.style.left = Math.max(8, left + 16 + tip.offsetWidth > node.clientWidth ? left - tip.offsetWidth - 16 : left + 16) + "px";
    tip.style.top = Math.max(8, at.y(plan.pace) / scale + box.top - outer.top - 20) + "px";
  }
  function leave() { tip.hidden = true; if (at) at.cross.replaceChildren(); }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", leave);
  return draw;
}
// Streams of each kind of rank in the best plan's step; drag to look closer.
function stepTimeline() {
  const line = data.timeline;
  if (!line || !line.rows.length) return null;
  const colour = (row, name) => /^regions/.test(row.stream) ? (/back/.test(name) ? "var(--p1)" : /optim/.test(name) ? "var(--p2)" : /recomp/.test(name) ? "var(--p5)" : /forward/.test(name) ? "var(--p0)" : "var(--comm)")
    : /^comm/.test(row.stream) ? "var(--p4)" : /^copy/.test(row.stream) ? "var(--p7)" : /^host/.test(row.stream) ? "var(--p3)" : "var(--p0)";
  const svg = el("svg", { role: "img", "aria-label": "timeline of a step", class: "timeline" }), tip = el("div", { class: "tip", hidden: "" }), end = line.ms;
  let range = [0, end], at = null, drag = null;
  const whole = el("button", { type: "button", class: "plain", hidden: "", on: { click: () => zoom(0, end) } }, "whole step");
  const node = el("div", { class: "card chart wide" }, el("div", { class: "top" }, el("h3", {}, "Streams of each kind of rank", el("small", {}, short(best))), whole), svg, tip,
    el("p", { class: "hint" }, "Drag with the mouse to look closer. Neighbours too small to draw are one; --trace writes all of them for Perfetto."));
  into("timeline", el("h2", {}, "Timeline of the best plan"), node);
  function zoom(from, to) { range = [from, to]; whole.hidden = from <= 0 && to >= end; draw(); }
  function draw() {
    const width = Math.max(240, node.clientWidth - (window.innerWidth <= 520 ? 24 : 32)), phone = width < 480, rowHeight = 22, left = phone ? 92 : 150, right = 8;
    let y = 4, rank = null;
    const [x0, x1] = range, w = width - left - right, x = (ms) => left + Math.min(1, Math.max(0, (ms - x0) / (x1 - x0))) * w, placed = [];
    svg.replaceChildren();
    for (const row of line.rows) {
      if (row.rank !== rank) { rank = row.rank; y += placed.length ? 10 : 0; svg.append(el("text", { class: "operator", x: 0, y: y + 12 }, row.rank)); y += 18; }
      const name = row.stream.length > (phone ? 13 : 24) ? row.stream.slice(0, phone ? 12 : 23) + "…" : row.stream;
      svg.append(el("text", { x: left - 7, y: y + 14, "text-anchor": "end" }, name), el("rect", { class: "lane", x: left, y, width: w, height: rowHeight - 4, rx: 3 }));
      for (const [begin, ms, which] of row.spans) if (begin + ms > x0 && begin < x1)
        svg.append(el("rect", { x: x(begin).toFixed(2), y, width: Math.max(0.5, x(begin + ms) - x(begin)).toFixed(2), height: rowHeight - 4, style: `fill:${colour(row, line.names[which])}` }));
      placed.push([y, row]);
      y += rowHeight;
    }
    for (const tick of niceTicks(x0, x1, Math.max(2, Math.floor(w / 90)))) svg.append(el("text", { x: Math.min(x(tick), width - 22), y: y + 16, "text-anchor": "middle" }, number(tick, 5)));
    svg.append(el("text", { x: 0, y: y + 16 }, "ms"));
    svg.setAttribute("viewBox", `0 0 ${width} ${y + 24}`);
    svg.setAttribute("height", y + 24);
    at = { width, left, w, x, x0, x1, placed, rowHeight, bottom: y, cross: svg.appendChild(el("g")) };
  }
  const place = (event) => { const box = svg.getBoundingClientRect(), scale = at.width / box.width; return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale, box]; };
  const timeAt = (px) => at.x0 + Math.min(1, Math.max(0, (px - at.left) / at.w)) * (at.x1 - at.x0);
  function point(event) {
    const [px, py, box] = place(event), time = timeAt(px), found = at.placed.find(([y]) => py >= y && py < y + at.rowHeight);
    at.cross.replaceChildren(el("line", { class: "cross", x1: px, x2: px, y1: 0, y2: at.bottom }));
    if (drag !== null) at.cross.append(el("rect", { class: "chosen", x: Math.min(px, at.x(drag)), y: 0, width: Math.abs(px - at.x(drag)), height: at.bottom }));
    const slack = (at.x1 - at.x0) / at.w, span = found && found[1].spans.find(([begin, ms]) => time >= begin - slack && time <= begin + ms + slack);
    tip.hidden = !span;
    if (!span) return;
    tip.replaceChildren(el("div", { class: "when" }, `${found[1].rank}, ${found[1].stream}`), el("div", { class: "wrap" }, line.names[span[2]]), el("div", { class: "when" }, `${number(span[0], 5)} ms, takes ${number(span[1], 4)} ms`));
    const outer = node.getBoundingClientRect(), left = px * box.width / at.width + box.left - outer.left;
    tip.style.left = Math.max(8, left + 16 + tip.offsetWidth > node.clientWidth ? left - tip.offsetWidth - 16 : left + 16) + "px";
    tip.style.top = py + box.top - outer.top + 16 + "px";
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") drag = timeAt(place(event)[0]); point(event); });
  svg.addEventListener("pointerup", (event) => {
    const from = drag, to = timeAt(place(event)[0]);
    drag = null;
    if (from !== null && Math.abs(at.x(to) - at.x(from)) > 5) zoom(Math.min(from, to), Math.max(from, to));
  });
  svg.addEventListener("pointerleave", () => { drag = null; tip.hidden = true; at.cross.replaceChildren(); });
  return draw;
}
function table() {
  const several = new Set(plans.map((plan) => plan.precision)).size > 1;
  const rows = plans.map((plan) => [el("span", {}, el("b", {}, plan.place), `\u2002${plan.layout}`), ...(several ? [plan.precision] : []), `${plan.zero}`, plan.memory, `${plan.micro}`, plan.schedule,
    el("span", {}, bytesText(plan.peak), el("small", { class: "sub" }, percentText(plan.peak / data.limit))), seconds(plan.seconds), pace(plan.pace), known(plan.mfu) && plan.seconds > 0 ? percentText(plan.mfu) : "–",
    el("span", { class: plan.fits ? "" : "misfit" }, plan.reason)]);
  const titles = ["layout", ...(several ? ["precision"] : []), "ZeRO", "recompute", "micro", "schedule", "peak", "step", `${data.unit}/s`, "MFU", "why"];
  into("table", el("h2", {}, "All plans"), el("div", { class: "card part" }, tableOf(titles, rows, { class: "plans" }), ...data.search.notes.map((note) => el("p", { class: "hint" }, note))));
}
function setTheme(theme) { document.documentElement.dataset.theme = theme; }

intro();
const draws = [tradeOff()];
if (plans.length) { memoryBars(); timeBars(); draws.push(stepTimeline()); table(); }
const dark = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
const drawAll = () => draws.forEach((draw) => draw && draw());
drawAll();
onWidth(drawAll);
})();
