"use strict";
// Gap against time, one mark per row. Kinds differ in colour and in shape; a hollow mark has not solved every instance.
const Plot = (() => {
  const KINDS = ["exact", "metaheuristic", "heuristic", "neural", "external"];
  const W = 440, H = 280, LEFT = 58, RIGHT = 16, TOP = 14, BOTTOM = 44;
  const NOISE = 0.01;

  function kindClass(kind) {
    const place = KINDS.indexOf(kind);
    return `kind-${place < 0 ? KINDS.length : place}`;
  }

  function shape(kind, x, y, r) {
    const at = (points) => svg("polygon", { points: points.map(([a, b]) => `${x + a * r},${y + b * r}`).join(" ") });
    switch (KINDS.indexOf(kind)) {
      case 0: return at([[-1, -1], [1, -1], [1, 1], [-1, 1]]);
      case 1: return at([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
      case 2: return at([[0, -1.2], [1.2, 1], [-1.2, 1]]);
      case 4: return at([[0, 1.2], [1.2, -1], [-1.2, -1]]);
      default: return svg("circle", { cx: x, cy: y, r });
    }
  }

  function decades(low, high) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) found.push(10 ** e);
    const inside = found.filter((v) => v >= low && v <= high);
    if (inside.length >= 2) return inside.length > 6 ? inside.filter((_, i) => i % 2 === 0) : inside;
    return found.flatMap((v) => [v, 2 * v, 5 * v]).filter((v) => v >= low && v <= high);
  }

  function scale(low, high, from, to) {
    const a = Math.log10(low), b = Math.log10(high);
    return (value) => from + ((Math.log10(value) - a) / (b - a || 1)) * (to - from);
  }

  function front(points) {
    const sorted = points.filter((p) => p.complete).sort((a, b) => a.seconds - b.seconds || a.y - b.y);
    const best = [];
    for (const point of sorted) if (!best.length || point.y < best[best.length - 1].y) best.push(point);
    return best;
  }

  function compact(value) {
    return String(Number(value.toPrecision(2)));
  }

  // rows: {id, name, kind, gap, seconds, complete}
  function pareto(title, rows) {
    const known = rows.filter((row) => row.gap !== null && row.seconds > 0);
    if (known.length < 2) return null;
    const positive = known.map((row) => row.gap).filter((gap) => gap > NOISE);
    const floor = positive.length ? Math.min(...positive) / 3 : NOISE;
    const points = known.map((row) => ({ ...row, y: Math.max(row.gap, floor) }));
    const xs = points.map((p) => p.seconds), ys = points.map((p) => p.y);
    const xLow = Math.min(...xs) / 1.8, xHigh = Math.max(...xs) * 1.8;
    const yLow = floor / 1.5, yHigh = Math.max(Math.max(...ys) * 1.6, floor * 4);
    const x = scale(xLow, xHigh, LEFT, W - RIGHT), y = scale(yLow, yHigh, H - BOTTOM, TOP);

    const grid = svg("g", { class: "grid", "aria-hidden": "true" });
    for (const tick of decades(xLow, xHigh)) {
      grid.append(svg("line", { x1: x(tick), x2: x(tick), y1: TOP, y2: H - BOTTOM }));
      const label = svg("text", { x: x(tick), y: H - BOTTOM + 16, "text-anchor": "middle" });
      label.textContent = Format.seconds(tick).replace(/\.0+(?= )/, "");
      grid.append(label);
    }
    const low = known.some((row) => row.gap <= NOISE);
    const ticks = decades(yLow, yHigh).filter((tick) => !low || tick > floor * 1.3);
    for (const tick of low ? [floor, ...ticks] : ticks) {
      grid.append(svg("line", { x1: LEFT, x2: W - RIGHT, y1: y(tick), y2: y(tick) }));
      const label = svg("text", { x: LEFT - 7, y: y(tick) + 4, "text-anchor": "end" });
      label.textContent = low && tick === floor ? "0 %" : `${compact(tick)} %`;
      grid.append(label);
    }
    const axis = svg("text", { x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle", class: "axis" });
    axis.textContent = "time per instance";
    const up = svg("text", { x: 12, y: (TOP + H - BOTTOM) / 2, "text-anchor": "middle", class: "axis", transform: `rotate(-90 12 ${(TOP + H - BOTTOM) / 2})` });
    up.textContent = "gap";
    grid.append(axis, up);

    const best = front(points);
    const path = best.map((p, i) => (i ? `H${x(p.seconds)}V${y(p.y)}` : `M${x(p.seconds)},${y(p.y)}`)).join("");
    const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "plot", role: "group" }, grid);
    drawing.setAttribute("aria-label", `Gap against time on ${title}, ${points.length} methods; the same numbers stand in the table`);
    if (best.length > 1) drawing.append(svg("path", { d: path, class: "front", "aria-hidden": "true" }));
    const said = el("p", { class: "said", "aria-hidden": "true" }, "Point at a mark, or move to it with Tab, to read its name.");
    for (const point of points.sort((a, b) => b.y - a.y)) drawing.append(mark(point, x(point.seconds), y(point.y), said));
    return el("figure", {}, drawing, said, legend(points));
  }

  function mark(point, cx, cy, said) {
    const text = `${point.name}: gap ${Format.gap(point.gap)}, ${Format.seconds(point.seconds)}${point.complete ? "" : ", not all instances"}`;
    const link = svg("a", { href: `#/run/${point.id}`, "aria-label": text, class: `mark ${kindClass(point.kind)}${point.complete ? "" : " hollow"}` });
    const target = svg("circle", { cx, cy, r: 11, class: "target" });
    link.append(target, shape(point.kind, cx, cy, 4.6));
    const show = () => { said.textContent = text; };
    link.addEventListener("pointerenter", show);
    link.addEventListener("focus", show);
    return link;
  }

  function legend(points) {
    const list = el("ul", { class: "legend" });
    for (const kind of [...new Set(points.map((p) => p.kind))].sort((a, b) => KINDS.indexOf(a) - KINDS.indexOf(b))) {
      const sample = svg("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true", class: kindClass(kind) }, shape(kind, 7, 7, 4.4));
      list.append(el("li", {}, sample, kind));
    }
    if (points.some((p) => !p.complete)) list.append(el("li", {}, "hollow: not all instances"));
    return list;
  }

  return { pareto, kindClass };
})();
