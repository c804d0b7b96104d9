"use strict";
// Elements and numbers. Text from records only ever becomes text: nothing here or elsewhere writes HTML.
const STATUSES = ["ok", "infeasible", "failed", "timeout", "oom"];
const PROBLEMS = { tsp: "TSP", cvrp: "CVRP", bpp3d: "3D bin packing" };

function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return element;
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A fixed number of decimals, with a minus sign instead of a hyphen, and none before zero.
function fixed(value, digits) {
  return value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
}

const Format = {
  gap(value) {
    if (value === null) return "–";
    const size = Math.abs(value);
    return `${fixed(value, size < 10 ? 3 : size < 100 ? 2 : 1)} %`;
  },
  interval(low, high) {
    if (low === null || high === null) return "–";
    const digits = Math.max(Math.abs(low), Math.abs(high)) < 10 ? 3 : 2;
    return `${fixed(low, digits)} … ${fixed(high, digits)}`;
  },
  seconds(value) {
    if (value === null) return "–";
    if (value >= 100) return `${Math.round(value).toLocaleString("en")} s`;
    if (value >= 1) return `${value.toPrecision(3)} s`;
    if (value >= 0.001) return `${(1000 * value).toPrecision(3)} ms`;
    return `${(1e6 * value).toPrecision(3)} µs`;
  },
  number(value) {
    return value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 8 });
  },
  share(value) {
    return value === null ? "–" : `${Number((100 * value).toPrecision(3))} %`;
  },
  bytes(value) {
    return value === null || value === undefined ? "–" : `${Format.number(Math.round(value))} MB`;
  },
  problem(name) {
    return PROBLEMS[name] || name;
  },
};
