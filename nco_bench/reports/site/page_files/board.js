"use strict";
// The first page: filters, and per dataset a table and a plot. Filters and order stand in the address.
const Board = (() => {
  const COLUMNS = [
    ["name", "Method", "text"], ["gap", "Gap", "number"], ["low", "95 % interval", "number"], ["seconds", "Time", "number"],
    ["hardware", "Hardware", "text"], ["verified", "Verified", "text"], ["share", "Training", "number"],
  ];
  const HELP = {
    gap: "mean over instances of the gap to the best known solution",
    low: "95 % interval of the mean gap; orders by its lower end",
    seconds: "mean time per instance: throughput, where a batch was solved at once",
    verified: "every solution scored again and every hash checked",
    share: "share of the paper's training that these weights have seen",
  };
  const SIZES = [["up to 100", 0, 100], ["101 to 500", 101, 500], ["501 to 1,000", 501, 1000], ["1,001 to 5,000", 1001, 5000], ["above 5,000", 5001, Infinity]];
  const VERIFIED = { yes: "yes", no: "not yet", fails: "fails" };

  function rowsOf(index) {
    const columns = Object.entries(index.rows);
    return index.rows.id.map((_, i) => {
      const row = Object.fromEntries(columns.map(([key, values]) => [key, values[i]]));
      row.hardware = index.hardware[row.hardware];
      return row;
    });
  }

  function sizeFits(dataset, size) {
    const found = SIZES[Number(size)];
    return !size || !found || (dataset.n[0] <= found[2] && dataset.n[1] >= found[1]);
  }

  function datasetFits(dataset, state) {
    return (!state.problem || dataset.problem === state.problem) && sizeFits(dataset, state.size);
  }

  function order(rows, state) {
    const [key, direction] = (state.sort || "gap:up").split(":");
    const sign = direction === "down" ? -1 : 1;
    return [...rows].sort((a, b) => {
      const one = a[key], other = b[key];
      if (one === null || other === null) return (one === null) - (other === null);
      if (typeof one === "number") return sign * (one - other);
      return sign * String(one).localeCompare(String(other), "en", { numeric: true });
    });
  }

  function select(id, label, options, value, change) {
    const field = el("select", { id, on: { change: (event) => change(event.target.value) } });
    for (const [key, text] of options) {
      const option = el("option", { value: key }, text);
      option.selected = key === (value || "");
      field.append(option);
    }
    return el("div", { class: "field" }, el("label", { for: id }, label), field);
  }

  function filters(form, index, state, go) {
    const rows = index.rows;
    const unique = (values) => [...new Set(values)].sort().map((value) => [value, value]);
    const change = (key) => (value) => go({ ...state, [key]: value, ...(key === "problem" || key === "size" ? { dataset: "" } : {}) });
    const fitting = index.datasets.map((d, i) => [d, i]).filter(([d]) => datasetFits(d, state));
    const problems = unique(index.datasets.map((d) => d.problem)).map(([p]) => [p, Format.problem(p)]);
    const focused = document.activeElement && form.contains(document.activeElement) ? document.activeElement.id : null;
    form.replaceChildren(
      select("problem", "Problem", [["", "All"], ...problems], state.problem, change("problem")),
      select("size", "Size", [["", "All"], ...SIZES.map(([text], i) => [String(i), text])], state.size, change("size")),
      select("dataset", "Dataset", [["", `All ${fitting.length}`], ...fitting.map(([d]) => [d.name, d.name])], state.dataset, change("dataset")),
      select("kind", "Kind", [["", "All"], ...unique(rows.kind)], state.kind, change("kind")),
      select("device", "Device", [["", "All"], ...unique(rows.device)], state.device, change("device")),
    );
    if (focused) document.getElementById(focused).focus();
  }

  function header(state, go) {
    const [key, direction] = (state.sort || "gap:up").split(":");
    return el("tr", {}, ...COLUMNS.map(([name, title, type]) => {
      const sorted = key === name ? (direction === "down" ? "descending" : "ascending") : "none";
      const next = sorted === "ascending" ? "down" : "up";
      const button = el("button", { type: "button", title: HELP[name], "data-sort": name, on: { click: () => go({ ...state, sort: `${name}:${next}` }, name) } }, title);
      return el("th", { scope: "col", "aria-sort": sorted, class: type }, button);
    }));
  }

  function body(rows, dataset) {
    return rows.map((row) => el("tr", {},
      el("th", { scope: "row", class: "text" }, el("a", { href: `#/run/${row.id}` }, row.name), " ", el("span", { class: "kind" }, row.kind), marks(row, dataset)),
      el("td", { class: "number" }, row.gap === null && row.cost !== null ? `cost ${Format.number(row.cost)}` : Format.gap(row.gap)),
      el("td", { class: "number quiet" }, Format.interval(row.low, row.high)),
      el("td", { class: "number" }, Format.seconds(row.seconds)),
      el("td", { class: "text wide quiet" }, row.hardware),
      el("td", { class: `text verified-${row.verified}` }, VERIFIED[row.verified]),
      el("td", { class: "number" }, row.share === null ? (row.weights ? "unknown" : "–") : Format.share(row.share)),
    ));
  }

  function marks(row, dataset) {
    const said = [];
    if (row.instances < dataset.instances) said.push(`${Format.number(row.instances)} of ${Format.number(dataset.instances)} instances`);
    if (row.repeats.startsWith("1 to ")) said.push(`${row.repeats} repeats`);
    if (row.failed) said.push(`${Format.number(row.failed)} failed`);
    if (row.warning) said.push(row.warning);
    return said.length ? el("span", { class: "remark" }, said.join("; ")) : null;
  }

  function section(dataset, number, rows, state, go) {
    const id = `dataset-${number}`;
    const references = dataset.references.map(([who, count]) => `${who} (${Format.number(count)})`).join(", ");
    const facts = `${Format.problem(dataset.problem)}, ${size(dataset)}, ${Format.number(dataset.instances)} instances${references ? `; gaps to ${references}` : ""}`;
    const table = el("table", {}, el("caption", { class: "hidden" }, `${dataset.name}: ${facts}`), el("thead", {}, header(state, go)), el("tbody", {}, ...body(order(rows, state), dataset)));
    const plot = Plot.pareto(dataset.name, rows.map((row) => ({ ...row, complete: Boolean(row.complete) })));
    return el("section", { "aria-labelledby": id },
      el("h2", { id }, dataset.name), el("p", { class: "facts" }, facts),
      el("div", { class: plot ? "pair" : "alone" }, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": id }, table), plot));
  }

  function size(dataset) {
    const [low, high] = dataset.n;
    return low === high ? `n = ${Format.number(low)}` : `n = ${Format.number(low)} to ${Format.number(high)}`;
  }

  function largest(index) {
    const counts = index.datasets.map((_, i) => index.rows.dataset.filter((d) => d === i).length);
    return index.datasets[counts.indexOf(Math.max(...counts))].name;
  }

  function show(index, state, go) {
    filters(document.getElementById("filters"), index, state, go);
    const all = rowsOf(index).filter((row) => (!state.kind || row.kind === state.kind) && (!state.device || row.device === state.device));
    const sections = [];
    let shown = 0;
    index.datasets.forEach((dataset, i) => {
      if (!datasetFits(dataset, state) || (state.dataset && dataset.name !== state.dataset)) return;
      const rows = all.filter((row) => row.dataset === i);
      if (!rows.length) return;
      shown += rows.length;
      sections.push(section(dataset, i, rows, state, go));
    });
    const datasets = `${sections.length} ${sections.length === 1 ? "dataset" : "datasets"}`;
    document.getElementById("status").textContent = `${shown} ${shown === 1 ? "row" : "rows"} on ${datasets}`;
    document.getElementById("main").replaceChildren(...(sections.length ? sections : [el("p", {}, "No records fit these filters.")]));
  }

  return { show, rowsOf, size, largest, VERIFIED };
})();
