"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent), { peak } = data;
const into = (id, ...nodes) => document.getElementById(id).append(...nodes.filter(Boolean));
const facts = (texts) => el("p", { class: "facts" }, texts.filter(Boolean).map((text) => el("span", {}, text)));
const where = (text) => text || "outside of modules";

function intro() {
  into("intro", el("h1", {}, `Max memory allocated: ${bytesText(peak.bytes)}`),
    facts([`rank ${data.rank}`, data.device, data.during, data.reserved > 0 ? `max memory reserved: ${bytesText(data.reserved)}` : "",
      data.limit > 0 ? `limit: ${bytesText(data.limit)}` : "", `${data.taken.toLocaleString("en-US")} blocks taken in ${number(data.milliseconds, 4)} ms`]));
  if (data.did_not_fit > 0) into("intro", el("div", { class: "card alert" }, el("b", {}, `${bytesText(data.did_not_fit)} more did not fit.`), ` ${bytesText(data.alive)} were in use` +
    (data.limit > 0 ? ` of ${bytesText(data.limit)}.` : ".")));
}
const mixed = (parts, most) => el("div", { class: "bar", role: "img", "aria-label": parts.map((bytes, i) => bytes > 0 ? `${memoryCategories[i]} ${bytesText(bytes)}` : "").filter(Boolean).join(", ") },
  parts.map((bytes, i) => bytes > 0 ? el("i", { style: `width:${(100 * bytes / most).toFixed(2)}%;background:${memoryColour(i)}`, title: `${memoryCategories[i]} ${bytesText(bytes)}` }) : null));
function categoryTable() {
  const rows = peak.categories.map((bytes, i) => [bytes, i]).filter(([bytes]) => bytes > 0).sort((a, b) => b[0] - a[0]).map(([bytes, i]) =>
    [el("span", { class: "name" }, memoryDot(i), memoryCategories[i]), bytesText(bytes), percentText(bytes / peak.bytes), peak.counts[i].toLocaleString("en-US")]);
  return el("div", { class: "card part" }, el("h3", {}, "By category"), tableOf(["category", "memory", "share", "blocks"], rows));
}
function moduleBars() {
  const most = Math.max(1, ...peak.modules.map((module) => module.bytes));
  const row = (module) => el("div", { class: "bar-row named", title: where(module.name) }, el("span", { class: "who" }, el("bdi", {}, where(module.name))), mixed(module.by, most),
    el("span", { class: "much" }, bytesText(module.bytes), el("small", {}, percentText(module.bytes / peak.bytes))));
  const rest = peak.more_modules > 0 ? el("p", { class: "hint" }, `and ${peak.more_modules} more with ${bytesText(peak.more_bytes)}`) : null;
  return el("div", { class: "card part" }, el("h3", {}, "By module"), el("div", { class: "bars" }, peak.modules.map(row)), rest);
}
function blockTable() {
  const rows = peak.blocks.map((block) => [el("span", { class: "name" }, memoryDot(block.category), bytesText(block.bytes), block.count > 1 ? el("small", { class: "sub" }, `× ${block.count}`) : null),
    memoryCategories[block.category], where(block.module), block.op || "–", block.before ? "before" : number(block.ms, 4) + " ms"]);
  const hint = peak.blocks_in_all > peak.blocks_listed ? el("p", { class: "hint" }, `the largest ${peak.blocks_listed.toLocaleString("en-US")} of ${peak.blocks_in_all.toLocaleString("en-US")} blocks`) : null;
  return el("div", { class: "card part" }, el("h3", {}, "Largest tensors"), tableOf(["memory", "category", "module", "operator", "taken at"], rows, { class: "words" }), hint);
}
function setTheme(theme) { document.documentElement.dataset.theme = theme; }

intro();
const timeline = memoryTimeline({ ...data.points, limit: data.limit }, "Memory");
into("timeline", timeline.node);
if (peak.bytes > 0) into("peak", el("h2", {}, "Alive at the peak"), facts([`${number(peak.ms, 4)} ms after the beginning`, `in ${where(peak.module)}`, peak.op]),
  el("div", { class: "grid" }, categoryTable(), moduleBars()), blockTable());
const dark = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
timeline.draw();
onWidth(timeline.draw);
})();
