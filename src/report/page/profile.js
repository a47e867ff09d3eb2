"use strict";
// The section "Profile": memory over time, where the time of each rank went, and how near its operators come to the machine. Nothing is
// drawn for a run that was not profiled. draw() once the nodes have a width, and when it changes.
function profileSection(single, runs) {
  const parts = [["forward", "forward"], ["backward", "backward"], ["optimizer", "optimizer"], ["data", "data wait"],
                 ["exposed_communication", "communication"], ["bubble", "bubble"], ["host_gap", "host gap"], ["other", "other"]];
  const colour = (i) => `var(--p${i})`;
  const three = (x) => x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2);
  const time = (x) => x >= 10 ? three(x) + " s" : x >= 1e-3 ? three(1e3 * x) + " ms" : three(1e6 * x) + " µs";
  const drawn = [];

  function breakdown(profile) {
    const sum = (rank) => parts.reduce((all, [key]) => all + Math.max(0, rank[key] || 0), 0);
    const most = Math.max(1e-9, ...profile.ranks.map((rank) => Math.max(rank.seconds || 0, sum(rank))));
    const used = parts.map((part, i) => [...part, i]).filter(([key]) => profile.ranks.some((rank) => rank[key] > 0));
    const row = (rank) => {
      const title = `rank ${rank.rank}: ` + used.map(([key, word]) => `${word} ${time(rank[key] || 0)}`).join(", ");
      return el("div", { class: "bar-row", title, "data-profile-rank": rank.rank }, el("span", { class: "who" }, `rank ${rank.rank}`),
        el("div", { class: "bar", role: "img", "aria-label": title }, used.map(([key, , i]) => el("i", { style: `width:${(100 * Math.max(0, rank[key] || 0) / most).toFixed(2)}%;background:${colour(i)}` }))),
        el("span", { class: "much" }, time(rank.seconds || sum(rank)), el("small", {}, "a step")));
    };
    const rows = profile.ranks.map((rank) => [`rank ${rank.rank}`, ...used.map(([key]) => time(rank[key] || 0)), time(rank.communication || 0)]);
    return el("div", { class: "card ranks" },
      el("div", { class: "top" }, el("h3", {}, "Time of a step", el("small", {}, "mean of the profiled steps")), el("div", { class: "legend" }, used.map(([, word, i]) => el("span", {}, el("i", { class: "swatch", style: `background:${colour(i)}` }), word)))),
      el("div", { class: "bars" + (rows.length > 10 ? " two" : "") + (rows.length > 24 ? " thin" : "") }, profile.ranks.map(row)),
      el("p", { class: "hint" }, "Communication counts as far as nothing else ran beside it; in a host gap nothing ran at all."),
      el("details", {}, el("summary", {}, "Numbers"), tableOf(["rank", ...used.map(([, word]) => word), "all communication"], rows)));
  }

  // ---- roofline: what an operator reaches against what its reads and writes allow
  const name = (operator) => operator.name.replace(/^aten::/, "");
  function roofBounds(profile, operators) {
    const seen = operators.map((one) => one.tflops), peak = profile.peak_tflops > 0 ? profile.peak_tflops : Math.max(...seen);
    const slope = profile.bandwidth_gbs > 0 ? profile.bandwidth_gbs * 1e-3 : Math.max(...operators.map((one) => one.tflops / one.intensity));
    const x = operators.map((one) => one.intensity).concat(peak / slope);
    return { peak, slope, given: profile.peak_tflops > 0 && profile.bandwidth_gbs > 0,
      x0: 10 ** Math.floor(Math.log10(Math.min(...x)) - 0.2), x1: 10 ** Math.ceil(Math.log10(Math.max(...x)) + 0.2),
      y0: 10 ** Math.floor(Math.log10(Math.min(...seen, peak)) - 0.1), y1: peak * 2.4 };
  }
  const powers = (low, high) => { const all = []; for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.log10(high) + 1e-9; ++e) all.push(10 ** e); return all; };
  const powerText = (x) => x >= 1e-3 && x < 1e5 ? String(Number(x.toPrecision(3))) : x.toExponential(0).replace("e+", "e");
  function roofAxes(svg, at) {
    const every = (all, room) => all.filter((_, i) => i % Math.max(1, Math.ceil(all.length / room)) === 0);
    for (const y of every(powers(at.y0, at.y1), 7)) svg.append(el("line", { class: "gridline", x1: at.left, x2: at.right, y1: at.y(y), y2: at.y(y) }), el("text", { x: at.left - 7, y: at.y(y) + 4, "text-anchor": "end" }, powerText(y)));
    for (const x of every(powers(at.x0, at.x1), at.right / 60)) svg.append(el("line", { class: "gridline", x1: at.x(x), x2: at.x(x), y1: at.top, y2: at.bottom }), el("text", { x: at.x(x), y: at.bottom + 17, "text-anchor": "middle" }, powerText(x)));
    svg.append(el("text", { x: at.left, y: 12 }, "TFLOP/s"), el("text", { x: at.right, y: at.bottom + 33, "text-anchor": "end" }, "FLOP per byte"));
  }
  function roofDots(svg, at, operators) {
    const most = Math.max(...operators.map((one) => one.share)), taken = [];
    for (const one of operators) {
      const x = at.x(one.intensity), y = at.y(one.tflops), r = 4 + 9 * Math.sqrt(one.share / most);
      svg.append(el("circle", { class: "operator", cx: x, cy: y, r }, el("title", {}, `${one.name}: ${number(one.tflops, 3)} TFLOP/s at ${number(one.intensity, 3)} FLOP per byte, ${percentText(one.share)} of the time`)));
      const text = name(one), width = 6.4 * text.length, left = x + r + 4 + width > at.right, box = left ? [x - r - 4 - width, x - r - 4] : [x + r + 4, x + r + 4 + width];
      if (box[0] < at.left || taken.some(([a, b, other]) => Math.abs(other - y) < 14 && box[0] < b && a < box[1])) continue;
      taken.push([...box, y]);
      svg.append(el("text", { class: "operator", x: left ? x - r - 4 : x + r + 4, y: y + 4, "text-anchor": left ? "end" : "start" }, text));
    }
  }
  function roofline(profile) {
    const operators = profile.operators.filter((one) => one.intensity > 0 && one.tflops > 0).slice(0, 20);
    if (operators.length < 2) return null;
    const svg = el("svg", { role: "img", "aria-label": "roofline of the operators", class: "roofline" }), bounds = roofBounds(profile, operators);
    const node = el("div", { class: "card chart wide" }, el("div", { class: "top" }, el("h3", {}, "Roofline", el("small", {}, bounds.given ? "top operators against the machine's peaks" : "top operators against the best seen"))), svg,
      el("p", { class: "hint" }, "Under the slope memory is the limit, under the flat part arithmetic. The larger the dot, the more of the time."));
    drawn.push({ node, draw: () => {
      if (!node.clientWidth) return;
      const width = Math.max(240, node.clientWidth - (window.innerWidth <= 520 ? 24 : 32)), height = Math.min(400, Math.max(260, width * 0.42));
      const at = { ...bounds, left: 56, right: width - 16, top: 20, bottom: height - 40 };
      const part = (v, low, high) => (Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low));
      at.x = (v) => at.left + part(v, at.x0, at.x1) * (at.right - at.left);
      at.y = (v) => at.bottom - part(v, at.y0, at.y1) * (at.bottom - at.top);
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      roofAxes(svg, at);
      const begin = Math.max(at.x0, at.y0 / at.slope), knee = at.peak / at.slope;
      svg.append(el("path", { class: "roof", d: `M${at.x(begin)} ${at.y(begin * at.slope)}L${at.x(knee)} ${at.y(at.peak)}H${at.right}` }),
        el("text", { class: "roof", x: at.right, y: at.y(at.peak) - 7, "text-anchor": "end" }, `${number(at.peak, 3)} TFLOP/s, ${number(at.slope * 1e3, 3)} GB/s`));
      roofDots(svg, at, operators);
    } });
    return node;
  }
  function operatorTable(profile) {
    if (!profile.operators.length) return null;
    const rows = profile.operators.slice(0, 20).map((one) => [name(one), time(one.seconds), percentText(one.share), Number(one.calls).toLocaleString("en-US"),
      one.tflops > 0 ? number(one.tflops, 3) : "–", one.intensity > 0 ? number(one.intensity, 3) : "–"]);
    return el("div", { class: "card part" }, el("h3", {}, "Top operators"), tableOf(["operator", "time", "share", "calls", "TFLOP/s", "FLOP per byte"], rows));
  }
  function moduleTable(profile) {
    if (!profile.modules.length) return null;
    const most = Math.max(1e-12, ...profile.modules.map((one) => one.forward + one.backward));
    const row = (one) => el("div", { class: "bar-row named", title: one.name }, el("span", { class: "who" }, el("bdi", {}, one.name || "outside of modules")),
      el("div", { class: "bar" }, [one.forward, one.backward].map((seconds, i) => el("i", { style: `width:${(100 * seconds / most).toFixed(2)}%;background:${colour(i)}`, title: `${parts[i][1]} ${time(seconds)}` }))),
      el("span", { class: "much" }, time(one.forward + one.backward)));
    return el("div", { class: "card part" }, el("h3", {}, "Top modules"), el("div", { class: "legend" }, [0, 1].map((i) => el("span", {}, el("i", { class: "swatch", style: `background:${colour(i)}` }), parts[i][1]))),
      el("div", { class: "bars" }, profile.modules.slice(0, 16).map(row)));
  }
  function cards(run) {
    const { profile } = run, nodes = single ? [] : [el("h3", { class: "of-run" }, run.label)];
    if (profile.memory) {
      const timeline = memoryTimeline({ limit: 0, ...profile.memory }, "Memory of rank 0");
      drawn.push(timeline);
      nodes.push(timeline.node);
    }
    if (profile.ranks.length) nodes.push(breakdown(profile));
    nodes.push(roofline(profile), operatorTable(profile), moduleTable(profile));
    return nodes.filter(Boolean);
  }
  const shown = runs.filter((run) => run.profile);
  const box = el("div", { class: "stack" }, shown.flatMap(cards));
  return { nodes: shown.length ? [el("h2", {}, "Profile"), box] : [], draw: () => drawn.forEach((one) => one.draw()) };
}
