"use strict";
// The section "Ranks": who worked and who waited. Nothing is drawn for a run of one rank.
function rankSection(single, runs) {
  const kinds = [["own", "own work"], ["data", "data wait"], ["comm", "comm. wait"]];
  // Three digits, zeros as well: columns line up.
  const three = (x) => x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
  const time = (x) => x >= 10 ? three(x) + " s" : three(1e3 * x) + " ms";
  const percent = (x) => Math.abs(x) < 5e-4 ? "0 %" : `${x < 0 ? "−" : "+"}${Math.abs(100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0)} %`;
  const isSlow = (row, part) => row.rank === part.slowest && row.above > 0.1;
  const mark = (row, part) => isSlow(row, part) ? " slow" : row.above > 0.1 ? " high" : "";
  const key = ([kind, word]) => el("span", {}, el("i", { class: `swatch ${kind}` }), word + (kind === "comm" ? " (for other ranks)" : ""));

  function words(part, many) {
    const slow = part.rows.find((row) => isSlow(row, part));
    if (!slow) return "No rank is more than 10 % slower than the median.";
    const why = slow.data - part.spread.data[1] > (slow.busy - part.spread.busy[1]) / 2 ? "; it waits for its data" : "";
    const high = part.rows.filter((row) => row.above > 0.1).length;
    const others = high > 1 ? ` ${high} ranks are more than 10 % above it.` : "";
    if (many) return `Rank ${slow.rank} is the slowest: over all steps ${percent(slow.above)} against the median of ${time(part.spread.busy[1])}${why}.${others}`;
    return `Rank ${slow.rank} is the slowest: ${time(slow.busy)} a step without waiting for others, ${percent(slow.above)} against the median${why}.${others}`;
  }
  function bar(name, row, part, note) {
    const most = Math.max(part.spread.seconds[2], ...part.rows.map((one) => one.seconds)) || 1;
    const pieces = kinds.map(([kind]) => el("i", { class: kind, style: `width:${Math.max(0, 100 * row[kind] / most).toFixed(2)}%` }));
    const title = `${name}: ` + kinds.map(([kind, word]) => `${word} ${time(row[kind])}`).join(", ");
    return el("div", { class: "bar-row" + mark(row, part), title, "data-rank": row.rank },
      el("span", { class: "who" }, name), el("div", { class: "bar", role: "img", "aria-label": title }, pieces), el("span", { class: "much" }, time(row.busy), el("small", {}, note)));
  }
  // From the least to the most, a mark at the median; all on one scale.
  function band(kind, word, part) {
    const [low, middle, high] = part.spread[kind], most = part.spread.seconds[2] || 1, at = (x) => (100 * x / most).toFixed(2);
    return el("div", { class: "bar-row", title: `${word}: ${time(low)} to ${time(high)}, median ${time(middle)}` }, el("span", { class: "who" }, word),
      el("div", { class: "bar range" }, el("i", { class: kind, style: `left:${at(low)}%;width:${at(high - low)}%` }), el("b", { style: `left:${at(middle)}%` })),
      el("span", { class: "much" }, time(middle), el("small", {}, "median")));
  }
  function table(part, many) {
    const titles = ["rank", "step time", "own work", "data wait", "comm. wait", "against median", ...(many ? ["among the slowest"] : [])];
    const rows = part.rows.map((row) => el("tr", { class: mark(row, part).trim() },
      el("td", {}, String(row.rank), row.rank === part.slowest ? el("span", { class: "badge" }, "slowest") : null),
      [time(row.seconds), time(row.own), time(row.data), time(row.comm), percent(row.above), ...(many ? [number(100 * row.share, 3) + " % of steps"] : [])].map((text) => el("td", {}, text))));
    return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, titles.map((title) => el("th", {}, title)))), el("tbody", {}, rows)));
  }
  function body(run, part) {
    const { many } = run.ranks;
    const note = (row) => many ? `${number(100 * row.share, 2)} %` : percent(row.above);
    const bars = part.rows.map((row) => bar(`rank ${row.rank}`, row, part, note(row)));
    const parts = [el("p", { class: "say" }, words(part, many))];
    if (many) parts.push(el("h4", {}, "All ranks: least, median, most"), el("div", { class: "bars" }, kinds.map(([kind, word]) => band(kind, word, part))),
      el("h4", {}, `The slowest ${bars.length}`));
    parts.push(el("div", { class: "bars" + (bars.length > 10 ? " two" : "") + (bars.length > 24 ? " thin" : "") }, bars));
    parts.push(el("p", { class: "hint" }, "On the right: time of a step without waiting for others, " + (many
      ? "and how often the rank was among the slowest 8; means of those steps." : "against the median.")));
    return parts;
  }
  function card(run) {
    const { count, mesh, latency, many } = run.ranks, box = el("div"), numbers = el("div");
    const facts = [`${count} ranks`, mesh, latency > 0 ? `all-reduce ${time(latency)}` : ""].filter(Boolean).join(" · ");
    const choices = [["Whole run", run.ranks.all], ["Last 10 %", run.ranks.last]];
    const show = (part) => { box.replaceChildren(...body(run, part)); numbers.replaceChildren(table(part, many)); };
    const buttons = choices.map(([word, part], i) => el("button", { type: "button", "aria-pressed": String(i === 0), title: `mean of ${part.steps} steps`, on: { click: () => {
      buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
      show(part);
    } } }, word));
    show(run.ranks.all);
    return el("div", { class: "card ranks" },
      el("div", { class: "top" }, el("h3", {}, single ? "Time of a step" : run.label, el("small", {}, facts)), el("div", { class: "switch", role: "group", "aria-label": "steps" }, buttons)),
      el("div", { class: "legend" }, kinds.map(key)), box,
      el("details", run.ranks.all.rows.length <= 8 ? { open: "" } : {}, el("summary", {}, "Numbers"), numbers));
  }
  const shown = runs.filter((run) => run.ranks && run.ranks.all);
  return shown.length ? [el("h2", {}, "Ranks"), ...shown.map(card)] : [];
}
