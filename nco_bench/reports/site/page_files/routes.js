"use strict";
// A tour or routes on the unit square. Coordinates and nodes come as packed integers, see data.js.
const Routes = (() => {
  const SIZE = 400, MARGIN = 10, GRID = 65535, HUES = 7;

  function place(xy, node) {
    const inner = SIZE - 2 * MARGIN;
    return [MARGIN + (xy[2 * node] / GRID) * inner, SIZE - MARGIN - (xy[2 * node + 1] / GRID) * inner];
  }

  // A route per visit of the depot; a tour is one closed route.
  function split(problem, nodes) {
    if (problem !== "cvrp") return [[...nodes, nodes[0]]];
    const routes = [];
    let current = [0];
    for (const node of nodes) {
      if (node !== 0) current.push(node);
      else if (current.length > 1) {
        routes.push([...current, 0]);
        current = [0];
      }
    }
    if (current.length > 1) routes.push([...current, 0]);
    return routes;
  }

  function draw(problem, packedXy, packedNodes, label) {
    const xy = NCO.unpack(packedXy), nodes = NCO.unpack(packedNodes);
    const count = xy.length / 2;
    const drawing = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "routes", role: "img", "aria-label": label });
    split(problem, nodes).forEach((route, i) => {
      const points = route.filter((node) => node < count).map((node) => place(xy, node).map((v) => v.toFixed(1)).join(",")).join(" ");
      drawing.append(svg("polyline", { points, class: problem === "cvrp" ? `route-${i % HUES}` : "route-0" }));
    });
    const r = count > 300 ? 1.1 : count > 120 ? 1.7 : 2.6;
    for (let node = 0; node < count; node++) {
      const [cx, cy] = place(xy, node);
      if (problem === "cvrp" && node === 0) drawing.append(svg("rect", { x: cx - 5, y: cy - 5, width: 10, height: 10, class: "depot" }));
      else drawing.append(svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r, class: "node" }));
    }
    return drawing;
  }

  return { draw, split };
})();
