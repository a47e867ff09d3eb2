"use strict";
// Memory by category over time: stacked areas with a legend that hides and shows, values under the pointer, the peak, and a
// zoom by dragging. data: {t: milliseconds, v: [bytes of each category], peak: index, limit: bytes or 0}. draw() once it has a width.
const memoryCategories = ["parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown"];
const memoryColour = (category) => `var(--m${category})`;
const memoryDot = (category) => el("span", { class: "dot", style: `background:${memoryColour(category)}` });

function memoryTimeline(data, title) {
  const used = memoryCategories.map((_, i) => i).filter((i) => data.v[i].some((bytes) => bytes > 0));
  const hidden = new Set(), last = data.t.length - 1;
  let range = [data.t[0], data.t[last]], at = null, drag = null;
  const svg = el("svg", { role: "img", "aria-label": title, class: "timeline" }), tip = el("div", { class: "tip", hidden: "" });
  const whole = el("button", { type: "button", class: "plain", hidden: "", on: { click: () => zoom(data.t[0], data.t[last]) } }, "whole time");
  const keys = used.map((i) => el("button", { type: "button", class: "name key", "aria-pressed": "true", "data-category": i, on: { click: () => toggle(i) } }, memoryDot(i), memoryCategories[i]));
  const node = el("div", { class: "card chart wide" },
    el("div", { class: "top" }, el("h3", {}, title, el("small", {}, "by category")), whole), svg, tip, el("div", { class: "legend memory-keys" }, keys),
    el("p", { class: "hint" }, "Click a category to hide or show it; drag with the mouse to look closer."));

  const shown = () => used.filter((i) => !hidden.has(i));
  const total = (k) => shown().reduce((sum, i) => sum + data.v[i][k], 0);
  function toggle(i) {
    if (hidden.has(i)) hidden.delete(i); else if (shown().length > 1) hidden.add(i);
    keys.forEach((key) => key.setAttribute("aria-pressed", String(!hidden.has(Number(key.dataset.category)))));
    draw();
  }
  function zoom(from, to) {
    range = [from, to];
    whole.hidden = from <= data.t[0] && to >= data.t[last];
    draw();
  }
  // The last point at or before a moment: between two points nothing changes.
  function indexAt(time) {
    let low = 0, high = last;
    while (low < high) { const middle = (low + high + 1) >> 1; if (data.t[middle] <= time) low = middle; else high = middle - 1; }
    return low;
  }
  function layout() {
    const width = Math.max(240, node.clientWidth - (window.innerWidth <= 520 ? 24 : 32)), height = Math.min(400, Math.max(250, width * 0.42));
    const [x0, x1] = range[1] > range[0] ? range : [range[0], range[0] + 1], first = indexAt(x0), end = indexAt(x1);
    let most = 1;
    for (let k = first; k <= end; ++k) most = Math.max(most, total(k));
    if (data.limit > 0 && data.limit < 1.5 * most) most = Math.max(most, data.limit);
    const [unit, size] = bytesUnit(most), ticks = niceTicks(0, most / size * 1.04, 6);
    const pad = { top: 26, right: 14, bottom: 28, left: 14 + 6.6 * Math.max(...ticks.map((tick) => number(tick, 6).length)) };
    const w = width - pad.left - pad.right, h = height - pad.top - pad.bottom;
    return { width, height, pad, w, h, x0, x1, first, end, ticks, unit, size,
      x: (time) => pad.left + Math.min(1, Math.max(0, (time - x0) / (x1 - x0))) * w, y: (bytes) => pad.top + h - bytes / (most * 1.04) * h };
  }
  function area(low, high) {
    let there = "", back = "";
    for (let k = at.first; k <= at.end; ++k) {
      const x = at.x(data.t[k]).toFixed(1), next = at.x(k === at.end ? at.x1 : data.t[k + 1]).toFixed(1);
      there += `${k === at.first ? "M" : "L"}${x} ${at.y(high[k]).toFixed(1)}H${next}`;
      back = `L${next} ${at.y(low[k]).toFixed(1)}H${x}` + back;
    }
    return there + back + "Z";
  }
  function axes() {
    for (const tick of at.ticks) svg.append(el("line", { class: "gridline", x1: at.pad.left, x2: at.width - at.pad.right, y1: at.y(tick * at.size), y2: at.y(tick * at.size) }),
      el("text", { x: at.pad.left - 7, y: at.y(tick * at.size) + 4, "text-anchor": "end" }, number(tick, 6)));
    svg.append(el("text", { x: at.pad.left, y: 14, "text-anchor": "start" }, at.unit));
    const ticks = niceTicks(at.x0, at.x1, Math.max(2, Math.floor(at.w / 90)));
    ticks.forEach((tick, i) => {
      const x = at.x(tick), near = x > at.width - at.pad.right - 28, end = i === ticks.length - 1;
      svg.append(el("text", { x: near ? at.width - at.pad.right : x, y: at.height - 8, "text-anchor": near ? "end" : "middle" }, number(tick, 7) + (end ? " ms" : "")));
    });
  }
  function areas() {
    let low = new Float64Array(data.t.length);
    for (const i of shown()) {
      const high = low.map((bytes, k) => bytes + data.v[i][k]);
      svg.append(el("path", { d: area(low, high), class: "layer", "data-category": i, style: `fill:${memoryColour(i)};stroke:${memoryColour(i)}` }));
      low = high;
    }
    svg.append(el("line", { class: "base", x1: at.pad.left, x2: at.width - at.pad.right, y1: at.pad.top + at.h, y2: at.pad.top + at.h }));
  }
  function marks() {
    if (data.limit > 0 && at.y(data.limit) >= at.pad.top - 1) svg.append(el("line", { class: "limit", x1: at.pad.left, x2: at.width - at.pad.right, y1: at.y(data.limit), y2: at.y(data.limit) }),
      el("text", { class: "limit", x: at.pad.left + 5, y: at.y(data.limit) - 5 }, `limit ${bytesText(data.limit)}`));
    const when = data.t[data.peak];
    if (hidden.size || when < at.x0 || when > at.x1) return;
    const x = at.x(when), y = at.y(total(data.peak)), left = x > at.pad.left + at.w / 2;
    svg.append(el("line", { class: "peak", x1: x, x2: x, y1: 20, y2: at.pad.top + at.h }), el("circle", { class: "peak", cx: x, cy: y, r: 4 }),
      el("text", { class: "peak", x: left ? x + 6 : Math.max(x - 6, at.pad.left + 34), y: 14, "text-anchor": left ? "end" : "start" }, `peak ${bytesText(total(data.peak))} at ${number(when, 4)} ms`));
  }
  function draw() {
    if (!node.clientWidth) return;
    at = layout();
    tip.hidden = true;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${at.width} ${at.height}`);
    svg.setAttribute("height", at.height);
    axes(); areas(); marks();
    at.cross = svg.appendChild(el("g"));
  }
  const timeOf = (event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * at.width / box.width;
    return at.x0 + Math.min(1, Math.max(0, (x - at.pad.left) / at.w)) * (at.x1 - at.x0);
  };
  function point(event) {
    if (!at) return;
    const time = timeOf(event), k = indexAt(time), x = at.x(time);
    at.cross.replaceChildren(el("line", { class: "cross", x1: x, x2: x, y1: at.pad.top, y2: at.pad.top + at.h }));
    if (drag !== null && Math.abs(x - at.x(drag)) > 4) at.cross.append(el("rect", { class: "chosen", x: Math.min(x, at.x(drag)), y: at.pad.top, width: Math.abs(x - at.x(drag)), height: at.h }));
    const row = (dot, name, bytes) => el("div", { class: "row" }, el("span", {}, dot, el("em", {}, name)), el("b", {}, bytesText(bytes)));
    tip.replaceChildren(el("div", { class: "when" }, `${number(time, 5)} ms`), ...[...shown()].reverse().filter((i) => data.v[i][k] > 0).map((i) => row(memoryDot(i), memoryCategories[i], data.v[i][k])),
      row("", "together", total(k)));
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), outer = node.getBoundingClientRect(), left = x * box.width / at.width + box.left - outer.left, room = node.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(room, left + 14 + tip.offsetWidth > node.clientWidth ? left - tip.offsetWidth - 14 : left + 14)) + "px";
    tip.style.top = box.top - outer.top + 26 + "px";
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && at) drag = timeOf(event); point(event); });
  svg.addEventListener("pointerup", (event) => {
    const from = drag;
    drag = null;
    if (from === null || Math.abs(at.x(timeOf(event)) - at.x(from)) < 5) return;
    zoom(Math.min(from, timeOf(event)), Math.max(from, timeOf(event)));
  });
  svg.addEventListener("pointerleave", () => { drag = null; tip.hidden = true; if (at) at.cross.replaceChildren(); });
  return { node, draw };
}
