"use strict";
// Addresses: #/?problem=tsp&sort=gap:up, #/run/ID, #/run/ID/INSTANCE.
(() => {
  const KEYS = ["problem", "size", "dataset", "kind", "device", "sort"];
  const main = document.getElementById("main");
  const form = document.getElementById("filters");
  const status = document.getElementById("status");
  let index = null;
  let last = 0;

  function stateOf(query) {
    const given = new URLSearchParams(query);
    return Object.fromEntries(KEYS.map((key) => [key, given.get(key) || ""]));
  }

  function address(state) {
    const query = new URLSearchParams();
    for (const key of KEYS) if (state[key]) query.set(key, state[key]);
    return `#/?${query.size ? query : "all"}`;  // without a query, the first page chooses a dataset
  }

  function go(state, focus) {
    history.replaceState(null, "", address(state));
    route();
    if (focus) document.querySelector(`[data-sort="${focus}"]`).focus();
  }

  async function route() {
    const turn = ++last;
    const [, path = "", query = ""] = /^#\/?([^?]*)\??(.*)$/.exec(location.hash) || [];
    const [page, id, instance] = path.split("/");
    const detail = page === "run";
    form.hidden = detail;
    if (!detail) {
      const state = stateOf(query);
      if (!query) state.dataset = Board.largest(index);
      Board.show(index, state, go);
      document.title = "nco-bench leaderboard";
      return;
    }
    status.textContent = "Loading";
    try {
      const content = instance === undefined ? await Run.show(index, id) : await Run.instance(index, id, Number(instance));
      if (turn !== last) return;
      main.replaceChildren(...content.filter(Boolean));
      status.textContent = "";
      const title = document.getElementById("title");
      document.title = `${title.textContent}, nco-bench leaderboard`;
      title.focus();
      scrollTo(0, 0);
    } catch (error) {
      if (turn !== last) return;
      status.textContent = "";
      main.replaceChildren(el("p", { role: "alert" }, `${error.message}.`), el("p", {}, el("a", { href: "#/" }, "To the tables")));
    }
  }

  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  NCO.load("index").then((found) => {
    index = found;
    const { version, records, runs } = index.made;
    document.getElementById("made").textContent = `${Format.number(records)} records of ${Format.number(runs)} ${runs === 1 ? "run" : "runs"}, made by nco-bench ${version} from records alone`;
    addEventListener("hashchange", route);
    route();
  }, (error) => main.replaceChildren(el("p", { role: "alert" }, `${error.message}.`)));
})();
