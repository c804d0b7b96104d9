"use strict";

// Browsers report a layout that needs a second pass as an error; Bokeh's plots cause it when they first stretch.
window.addEventListener("error", (event) => {
  if (String(event.message).startsWith("ResizeObserver loop")) event.preventDefault();
});

// Sortable tables: every header is a button; words (OOM, dashes) go to the end either way.
function sortTable(button) {
  const header = button.closest("th");
  const table = header.closest("table");
  const column = Number(button.dataset.column);
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  const body = table.tBodies[0];
  const keyed = Array.from(body.rows, (row) => {
    const cell = row.cells[column];
    const value = cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    return { row, value, text: cell.textContent };
  });
  const numeric = keyed.some((k) => k.value !== null);
  keyed.sort((a, b) => {
    if (!numeric) return direction * a.text.localeCompare(b.text, undefined, { numeric: true });
    if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
    return direction * (a.value - b.value);
  });
  for (const { row } of keyed) {
    row.classList.remove("section");
    body.append(row);
  }
}
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sortTable(button));
}

// Plots follow the page's colours, and change with it.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const style = getComputedStyle(document.documentElement);
  const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
  for (const doc of window.Bokeh ? Bokeh.documents : []) {
    for (const plot of doc.roots()) {
      plot.title.text_color = ink;
      for (const axis of [...plot.below, ...plot.left]) {
        Object.assign(axis, {
          axis_label_text_color: ink, major_label_text_color: soft, axis_line_color: soft,
          major_tick_line_color: soft, minor_tick_line_color: null,
        });
      }
      for (const grid of plot.center) if ("grid_line_color" in grid) grid.grid_line_color = line;
      for (const renderer of plot.renderers) {
        if (renderer.name === "guide") renderer.glyph.line_color = soft;
      }
    }
  }
}

// Gaps have ticks at 1, 2, 5 and their decades, also where the pointer has zoomed; as Bokeh has them the lower half has none.
function gapTicks(low, high) {
  for (const steps of [[1], [1, 2, 5]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const step of steps) ticks.push(Number(`${step}e${power}`));
    }
    const inside = ticks.filter((tick) => low <= tick && tick <= high);
    if (inside.length > 2) return inside;
  }
  const unit = 10 ** Math.floor(Math.log10((high - low) / 2));
  const step = unit * [1, 2, 5, 10].find((s) => high / (s * unit) - low / (s * unit) < 7);
  const [first, last] = [Math.ceil(low / step), Math.floor(high / step)];
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}
// Times stand side by side, where Bokeh's 60, 70, 80 and 90 touch, and so do nine decades in a narrow plot.
function timeTicks(low, high) {
  const ticks = gapTicks(low, high);
  return ticks.filter((_, i) => i % Math.ceil(ticks.length / 7) === 0);
}
function follow(range, show) {
  const set = () => { if (range.start > 0 && range.end > range.start) show(range.start, range.end); };
  for (const end of ["start", "end"]) range.properties[end].change.connect(set);
  set();
}
function followZoom() {
  for (const doc of window.Bokeh ? Bokeh.documents : []) {
    for (const plot of doc.roots()) {
      const across = plot.below[0].ticker, upward = plot.left[0].ticker;
      if (across.tags.includes("times")) follow(plot.x_range, (low, high) => { across.ticks = timeTicks(low, high); });
      if (!upward.tags.includes("gaps")) continue;
      const floors = upward.tags.slice(1);  // where gaps within noise are drawn: no place on the scale, and its label says so
      const free = (tick) => floors.every((floor) => tick > 1.3 * floor);
      follow(plot.y_range, (low, high) => { upward.ticks = [...floors, ...gapTicks(low, high).filter(free)]; });
    }
  }
}

// Paper does not scroll: a table that is wider is set smaller, and one that could not be read then is cut into strips
// between groups of columns, each with the names of its rows.
const PAPER = 1032;  // pixels between the margins of A4, landscape
const LEGIBLE = 0.65;
function stripsOf(table) {
  const strips = [];
  let column = 0, names = 0, used = 0;
  for (const header of table.tHead.rows[0].cells) {
    const columns = Array.from({ length: header.colSpan }, () => column++);
    if (columns[0] === 0) names = header.offsetWidth;
    else if (strips.length && names + used + header.offsetWidth <= PAPER / LEGIBLE) {
      strips.at(-1).push(...columns);
      used += header.offsetWidth;
    } else {
      strips.push(columns);
      used = header.offsetWidth;
    }
  }
  return strips;
}
function stripOf(table, columns, first) {
  const shown = new Set([0, ...columns]);
  const strip = table.cloneNode(true);
  strip.removeAttribute("id");
  strip.classList.add("strip");
  let column = 0;
  for (const header of Array.from(strip.tHead.rows[0].cells)) {
    if (!shown.has(column)) header.remove();
    column += header.colSpan;
  }
  for (const button of strip.tHead.querySelectorAll("button")) {
    if (!shown.has(Number(button.dataset.column))) button.closest("th").remove();
  }
  for (const row of Array.from(strip.tBodies[0].rows)) {
    const cells = Array.from(row.cells);
    const says = (cell) => cell.textContent !== "–";
    const anywhere = cells.slice(1).some(says);
    cells.forEach((cell, i) => { if (!shown.has(i)) cell.remove(); });
    if (!Array.from(row.cells).slice(1).some(says) && (anywhere || !first)) row.remove();
  }
  return strip;
}
function shrink(table) {
  table.style.zoom = String(Math.max(0.4, Math.min(1, PAPER / table.scrollWidth)));
}
window.addEventListener("beforeprint", () => {
  for (const table of document.querySelectorAll(".scroll table:not(.words)")) {
    const strips = table.scrollWidth > PAPER / LEGIBLE ? stripsOf(table) : [];
    if (strips.length > 1) {
      table.after(...strips.map((columns, i) => stripOf(table, columns, i === 0)));
      table.hidden = true;
    }
  }
  for (const table of document.querySelectorAll(".scroll table:not([hidden])")) shrink(table);
});
window.addEventListener("afterprint", () => {
  for (const strip of document.querySelectorAll(".strip")) strip.remove();
  for (const table of document.querySelectorAll(".scroll table")) {
    table.style.zoom = "";
    table.hidden = false;
  }
});

// Per-instance scatter: any two methods of any dataset.
const scatterData = JSON.parse(document.getElementById("scatter-data").textContent);
function decode(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(raw.buffer);
}
function scatterModel(name) {
  for (const doc of Bokeh.documents) {
    const model = doc.get_model_by_name(name);
    if (model) return model;
  }
  return null;
}
function fill(select, names, chosen) {
  select.replaceChildren(...names.map((name, i) => new Option(name, String(i), i === chosen, i === chosen)));
}
function drawScatter() {
  const data = scatterData[Number(document.getElementById("scatter-dataset").value)];
  const [i, j] = ["scatter-x", "scatter-y"].map((id) => Number(document.getElementById(id).value));
  const [gx, gy] = [decode(data.gaps[i]), decode(data.gaps[j])];
  const names = data.names.split("\n");
  const out = { x: [], y: [], name: [], colour: [], fill: [] };
  const same = data.colours[i] === data.colours[j];
  let [better, equal, worse] = [0, 0, 0];
  for (let k = 0; k < gx.length; k++) {
    if (Number.isNaN(gx[k]) || Number.isNaN(gy[k])) continue;
    out.x.push(gx[k]); out.y.push(gy[k]); out.name.push(names[k]);
    const tied = Math.abs(gx[k] - gy[k]) < 1e-5, won = gy[k] < gx[k];
    if (tied) equal++; else if (won) better++; else worse++;
    out.colour.push(tied ? "#8c8c8c" : data.colours[won ? j : i]);
    out.fill.push(same && !tied && !won ? 0 : 0.5);
  }
  const all = [...out.x, ...out.y];
  const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  const margin = 0.04 * (high - low || 1);
  const span = all.length ? [low - margin, high + margin] : [0, 1];
  scatterModel("scatter-points").data = out;
  scatterModel("scatter-line").data = { x: span, y: span };
  const plot = scatterModel("scatter");
  for (const range of [plot.x_range, plot.y_range]) { range.start = span[0]; range.end = span[1]; }
  plot.below[0].axis_label = data.methods[i] + ": gap (%)";
  plot.left[0].axis_label = data.methods[j] + ": gap (%)";
  document.getElementById("scatter-result").textContent =
    `${out.x.length} instances: ${data.methods[j]} is better on ${better}, ${data.methods[i]} on ${worse}, equal on ${equal}.`;
}
function chooseDataset() {
  const data = scatterData[Number(document.getElementById("scatter-dataset").value)];
  fill(document.getElementById("scatter-x"), data.methods, data.pair[0]);
  fill(document.getElementById("scatter-y"), data.methods, data.pair[1]);
  drawScatter();
}
function start() {
  if (scatterData.length) {
    fill(document.getElementById("scatter-dataset"), scatterData.map((d) => d.dataset), 0);
    document.getElementById("scatter-dataset").addEventListener("change", chooseDataset);
    for (const id of ["scatter-x", "scatter-y"]) document.getElementById(id).addEventListener("change", drawScatter);
    chooseDataset();
  }
  followZoom();
  paint();
  dark.addEventListener("change", paint);
  document.documentElement.dataset.ready = "yes";
}
// However long a busy machine takes: nothing here works before Bokeh has made its documents, and sorting does not wait for it.
function waitForPlots() {
  const expected = document.querySelectorAll("[data-root-id]").length;
  const drawn = window.Bokeh ? Bokeh.documents.reduce((sum, doc) => sum + doc.roots().length, 0) : 0;
  if (drawn >= expected) start();
  else setTimeout(waitForPlots, 50);
}
waitForPlots();
