"use strict";
// The page of a row, and of one of its instances.
const Run = (() => {
  const PAGE = 100;

  function facts(pairs) {
    const list = el("dl", {});
    for (const [term, value] of pairs) {
      if (value === null || value === undefined || value === "") continue;
      list.append(el("div", {}, el("dt", {}, term), el("dd", {}, value)));
    }
    return list;
  }

  function code(text) {
    return el("code", {}, text);
  }

  function json(value) {
    return el("pre", { tabindex: 0 }, JSON.stringify(value, null, 1));
  }

  function records(run, dataset, set) {
    const { repeats, instances } = NCO.spread(run.records.ranges);
    const known = NCO.instancesOf(set);
    return instances.map((instance, i) => {
      const about = known.get(instance);
      const failed = run.records.failed[i];
      return {
        instance, repeat: repeats[i], ...about, cost: run.records.cost[i], seconds: run.records.seconds[i],
        gap: NCO.gapOf(run.records.cost[i], about.reference, dataset.objective),
        status: failed ? STATUSES[failed[0]] : "ok", message: failed ? failed[1] : "", drawn: instance in run.tours,
      };
    });
  }

  function heading(text, back) {
    return [el("p", { class: "back" }, el("a", { href: back[0] }, `← ${back[1]}`)), el("h2", { tabindex: -1, id: "title" }, text)];
  }

  function recordTable(id, all) {
    const bodyElement = el("tbody", {});
    const told = el("p", { role: "status", class: "facts" });
    let page = 0;
    const last = Math.max(0, Math.ceil(all.length / PAGE) - 1);
    const before = el("button", { type: "button", on: { click: () => turn(-1) } }, "Previous");
    const after = el("button", { type: "button", on: { click: () => turn(1) } }, "Next");
    function turn(step) {
      page = Math.min(last, Math.max(0, page + step));
      const shown = all.slice(page * PAGE, (page + 1) * PAGE);
      bodyElement.replaceChildren(...shown.map((r) => el("tr", {},
        el("th", { scope: "row", class: "text" }, el("a", { href: `#/run/${id}/${r.instance}` }, r.name), r.drawn ? el("span", { class: "kind" }, " picture") : null),
        el("td", { class: "number" }, Format.number(r.n)), el("td", { class: "number" }, r.repeat + 1),
        el("td", { class: "text" }, r.status, r.message ? el("span", { class: "remark" }, r.message) : null),
        el("td", { class: "number" }, Format.number(r.cost)), el("td", { class: "number" }, Format.number(r.reference)),
        el("td", { class: "number" }, Format.gap(r.gap)), el("td", { class: "number" }, Format.seconds(r.seconds)))));
      told.textContent = all.length > PAGE ? `Records ${page * PAGE + 1} to ${page * PAGE + shown.length} of ${Format.number(all.length)}` : `${all.length} records`;
      before.disabled = page === 0;
      after.disabled = page === last;
    }
    turn(0);
    const titles = [["Instance", "text"], ["n", "number"], ["Repeat", "number"], ["Status", "text"], ["Cost", "number"], ["Best known", "number"], ["Gap", "number"], ["Time", "number"]];
    const head = el("tr", {}, ...titles.map(([title, type]) => el("th", { scope: "col", class: type }, title)));
    const table = el("table", {}, el("caption", { class: "hidden" }, "Records"), el("thead", {}, head), bodyElement);
    return [told, last ? el("p", { class: "pages" }, before, after) : null, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Records" }, table)];
  }

  function oneRun(one, environments) {
    return el("details", { open: true }, el("summary", {}, one.id, one.verified ? " (verified)" : ""),
      facts([["Command", one.command ? code(one.command) : "not recorded"], ["Date", one.date], ["nco-bench", one.version],
        ["Commit", one.commit ? el("span", {}, code(one.commit), one.dirty ? " with changes" : "") : "not recorded"]]),
      el("details", {}, el("summary", {}, "Environment"), json(environments[one.environment])));
  }

  async function show(index, id) {
    const place = index.rows.id.indexOf(id);
    if (place < 0) throw new Error(`No row has the address ${id}; it may be of an older build`);
    const row = Board.rowsOf(index)[place];
    const dataset = index.datasets[row.dataset];
    const [run, set, environments] = await Promise.all([NCO.load(`run-${id}`), NCO.load(`set-${row.dataset}`), NCO.load("environments")]);
    const weights = run.weights || {};
    const gap = row.gap === null ? null : `${Format.gap(row.gap)}${row.low === null ? "" : ` (95 % interval ${Format.interval(row.low, row.high)})`}`;
    const all = records(run, dataset, set);
    const pooled = Object.entries(run.pooled).map(([name, metric]) => [name, JSON.stringify(metric)]);
    return [
      ...heading(`${run.name} on ${dataset.name}`, [`#/?dataset=${encodeURIComponent(dataset.name)}`, dataset.name]),
      facts([["Gap", gap], ["Mean cost", Format.number(row.cost)], ["Time per instance", Format.seconds(row.seconds)],
        ["Latency, one at a time", run.latency === null ? null : Format.seconds(run.latency)], ["Hardware", row.hardware], ["Device", row.device],
        ["Memory", run.memory[0] === null ? null : Format.bytes(run.memory[0])], ["Device memory", run.memory[1] === null ? null : Format.bytes(run.memory[1])],
        ["Instances", `${Format.number(row.instances)} of ${Format.number(dataset.instances)}${row.failed ? `, ${row.failed} failed` : ""}`],
        ["Verified", Board.VERIFIED[row.verified]], ["Warning", row.warning], ...pooled]),
      el("h3", {}, "What ran"),
      facts([["Solver", `${run.solver} ${run.version}`], ["Decoding", run.decoding], ["Seed", run.seed], ["Repeats", run.repeats], ["Batch size", run.batch],
        ["Weights", weights.name], ["Training seen", row.share === null ? null : `${Format.share(row.share)} of the paper's${weights.steps ? `, ${Format.number(weights.steps)} steps` : ""}`],
        ["Weights SHA-256", weights.sha256 ? code(weights.sha256) : null], ["Configuration SHA-256", code(run.config)], ["Dataset SHA-256", code(dataset.sha256)],
        ["Convention", dataset.convention], ["Scorer", `${dataset.problem} ${run.problem_version}`], ["Notes", run.notes.join("; ")]]),
      el("details", {}, el("summary", {}, "All settings"), json(run.options)),
      el("h3", {}, run.runs.length === 1 ? "The run" : `The ${run.runs.length} runs`), ...run.runs.map((one) => oneRun(one, environments)),
      el("h3", {}, "Records"), ...recordTable(id, all),
    ];
  }

  async function instance(index, id, number) {
    const place = index.rows.id.indexOf(id);
    if (place < 0) throw new Error(`No row has the address ${id}; it may be of an older build`);
    const row = Board.rowsOf(index)[place];
    const dataset = index.datasets[row.dataset];
    const [run, set] = await Promise.all([NCO.load(`run-${id}`), NCO.load(`set-${row.dataset}`)]);
    const found = records(run, dataset, set).filter((r) => r.instance === number);
    if (!found.length) throw new Error(`This row has no record of instance ${number}`);
    const first = found[0];
    const content = [
      ...heading(`${first.name}: ${run.name}`, [`#/run/${id}`, `${run.name} on ${dataset.name}`]),
      facts([["Nodes", Format.number(first.n)], ["Best known", first.reference === null ? "none" : Format.number(first.reference)], ["Found by", first.source ? first.source.filter(Boolean).join(", ") : null],
        ...found.map((r) => [found.length > 1 ? `Repeat ${r.repeat + 1}` : "This row", r.status === "ok" ? `cost ${Format.number(r.cost)}, ${r.gap === null ? "" : `gap ${Format.gap(r.gap)}, `}${Format.seconds(r.seconds)}` : `${r.status}: ${r.message}`])]),
    ];
    if (!(number in run.tours)) {
      return [...content, el("p", { class: "facts" }, set.remark || "The first instances of each dataset are drawn, up to 1,000 nodes; this is another.")];
    }
    const picture = (await NCO.load(`pictures-${row.dataset}`))[number];
    const [tour, cost, author] = picture.best;
    return [...content, el("div", { class: "pictures" },
      el("figure", {}, Routes.draw(dataset.problem, picture.xy, run.tours[number], `Solution of ${run.name}`), el("figcaption", {}, `${run.name}: ${Format.number(first.cost)}`)),
      el("figure", {}, Routes.draw(dataset.problem, picture.xy, tour, `Best known solution, by ${author}`), el("figcaption", {}, `Best known solution that is stored, by ${author}: ${Format.number(cost)}`)))];
  }

  return { show, instance };
})();
