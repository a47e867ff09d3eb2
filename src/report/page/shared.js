"use strict";
// Helpers of all pages. Everything of a run goes in as text, never as markup.
function el(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "rect", "clipPath", "defs"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [name, call] of Object.entries(value)) node.addEventListener(name, call);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const known = (x) => x !== null && x !== undefined && Number.isFinite(x);
function number(x, digits = 4) {
  if (!known(x)) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return Number(x.toPrecision(Math.min(digits, 4))).toExponential().replace("e+", "e");
  if (size >= 1e4) return Math.round(x).toLocaleString("en-US");
  return String(Number(x.toPrecision(digits)));
}
function niceTicks(low, high, want) {
  const span = high - low || Math.abs(high) || 1, raw = span / want, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
    for (const m of high / low > 1000 ? [1] : high / low > 20 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8]) ticks.push(Number((m * 10 ** e).toPrecision(3)));
  return ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
}
function bytesUnit(bytes) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (bytes >= size) return [unit, size];
  return ["B", 1];
}
function bytesText(bytes) {
  const [unit, size] = bytesUnit(Math.abs(bytes)), value = bytes / size;
  return (unit === "B" ? String(value) : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)) + "\u00a0" + unit;
}
const percentText = (share) => (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + " %";
function onWidth(call) {
  let width = document.body.clientWidth;
  new ResizeObserver(() => { if (document.body.clientWidth !== width) { width = document.body.clientWidth; call(); } }).observe(document.body);
}
function tableOf(titles, rows, attributes = {}) {
  return el("div", { class: "scroll" }, el("table", attributes, el("thead", {}, el("tr", {}, titles.map((title) => el("th", {}, title)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));
}
