// Appended to a copy of the report by test_render_html.py: uses the page as a reader would, writes what it saw into #probe.
(function () {
  const found = {};
  const rows = () => Array.from(document.getElementById("table-main").tBodies[0].rows, (r) => r.cells[0].textContent);
  function sort() {
    const buttons = document.querySelectorAll("#table-main thead button");
    const gap = Array.from(buttons).find((b) => b.textContent === "Gap");
    found.before = rows();
    gap.click();
    found.ascending = rows();
    found.ariaSort = gap.closest("th").getAttribute("aria-sort");
    gap.click();
    found.descending = rows();
    buttons[0].focus();
    found.focused = document.activeElement === buttons[0];
  }
  function choose() {
    for (const [id, method] of [["scatter-x", "net greedy"], ["scatter-y", "lkh3"]]) {
      const select = document.getElementById(id);
      select.value = String(Array.from(select.options).findIndex((o) => o.text === method));
      select.dispatchEvent(new Event("change"));
    }
    found.status = document.getElementById("scatter-result").textContent;
  }
  function hover() {
    const model = scatterModel("scatter");
    const view = Bokeh.index.find_one(model);
    const points = scatterModel("scatter-points").data;
    const area = view.canvas_view.events_el;
    const box = area.getBoundingClientRect();
    const at = { clientX: box.left + view.frame.x_scale.compute(points.x[0]),
      clientY: box.top + view.frame.y_scale.compute(points.y[0]) };
    area.dispatchEvent(new PointerEvent("pointermove", { ...at, bubbles: true, composed: true, isPrimary: true, pointerId: 1 }));
    found.hovered = points.name[0];
  }
  function tooltip() {
    const texts = [];
    (function walk(node) {
      if (["STYLE", "SCRIPT", "TD", "TH"].includes(node.nodeName)) return;
      if (node.shadowRoot) walk(node.shadowRoot);
      for (const child of node.childNodes) {
        if (child.nodeType === 3 && child.textContent.includes(found.hovered)) texts.push(child.textContent.trim());
        else walk(child);
      }
    })(document.body);
    found.tooltips = texts;
  }
  function report() {
    const out = document.createElement("pre");
    out.id = "probe";

    out.textContent = JSON.stringify(found);
    document.body.append(out);
  }
  function hoverUntilSeen(tries) {
    hover();
    setTimeout(() => {
      tooltip();
      if (found.tooltips.length === 0 && tries > 0) hoverUntilSeen(tries - 1);
      else report();
    }, 400);
  }
  const steps = [[0, sort], [0, choose], [500, () => hoverUntilSeen(20)]];
  function next(index) {
    if (index === steps.length) return;
    setTimeout(() => {
      try { steps[index][1](); } catch (error) { found.error = String(error); report(); return; }
      next(index + 1);
    }, steps[index][0]);
  }
  (function wait(tries) {
    if (document.documentElement.dataset.ready === "yes" || tries === 0) next(0);
    else setTimeout(() => wait(tries - 1), 50);
  })(200);
})();
