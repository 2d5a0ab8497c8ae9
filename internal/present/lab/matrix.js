// The matrix view: a table of test results that fills while the user watches, and the details of
// each result.

import { el } from "./diagram.js";
import { heatMap, named } from "./cells.js";
import { onLanguage, say } from "./words.js";

const $ = (id) => document.getElementById(id);

export function matrix(choices, ask) {
  const root = $("matrix"), form = $("table");
  const chosen = (name) => [...form.querySelectorAll(`[name=${name}]:checked`)].map((i) => i.value);
  const boxes = (name, all, first) => all.map((c) => el("label", { class: "check", title: c.refused ? `${c.about}. ${c.refused}` : c.about },
    el("input", { type: "checkbox", name, value: c.name, disabled: Boolean(c.refused), checked: first.includes(c.name) }), " " + c.name + (c.name !== "none" ? "" : name === "row" ? " (no lock)" : " (no fault)") + (c.refused ? ` (${c.refused})` : "")));
  $("row-choices").append(...boxes("row", choices.table, ["none", "setnx", "setnx-fenced", "watchdog"]));
  $("column-choices").append(...boxes("column", choices.struck, ["none", "pause", "crash"]));
  const summary = () => {
    for (const [id, name] of [["rows", "row"], ["columns", "column"]]) $(id).textContent = chosen(name).join(", ") || say("nothing is chosen");
    const n = chosen("row").length * chosen("column").length;
    $("fill").textContent = say(n === 1 ? "Fill 1 cell" : "Fill {n} cells", { n });
  };
  form.addEventListener("change", summary);
  onLanguage(summary);

  const problem = (text) => { $("matrix-problem").textContent = text || ""; };
  const doing = async (path, body) => {
    try {
      await ask(path, body);
      problem();
    } catch (e) {
      problem(e.message);
    }
  };
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    for (const d of form.querySelectorAll("details")) d.open = false;
    doing("api/matrix/start", { strategies: chosen("row"), faults: chosen("column") });
  });
  $("stop-filling").addEventListener("click", () => doing("api/matrix/stop", {}));

  const map = heatMap(root, {
    home: "#matrix",
    find: (link) => ask("api/" + named(link.hash).slice(1)).then((run) => [run, run.cells[0]], (e) => { problem(e.message); }),
  });

  // look reloads the table after a change, and keeps the keyboard focus and scroll position.
  let seen = -1, asking = false;
  async function look(n) {
    if (asking || n === seen) return;
    asking = true;
    try {
      const v = await ask("api/matrix");
      seen = n;
      $("matrix-answer").textContent = v.answer || say("The matrix is empty: choose strategies and faults. A cell takes some seconds, and several cells with faults run at a time.");
      if (v.problem) problem(v.problem);
      $("kept").textContent = v.folder ? `The results are in ${v.folder}, where report.html shows this matrix.` : "";
      put(v.heat);
    } catch (e) {
      problem(e.message);
    }
    asking = false;
  }
  function put(html) {
    const heat = $("heat"), at = heat.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = heat.querySelector(".matrix"), from = scrolled && [scrolled.scrollLeft, scrolled.scrollTop];
    heat.replaceChildren(...[...new DOMParser().parseFromString(html, "text/html").body.childNodes].map((n) => document.adoptNode(n)));
    if (from && heat.querySelector(".matrix")) [heat.querySelector(".matrix").scrollLeft, heat.querySelector(".matrix").scrollTop] = from;
    map.fresh();
    const same = at && [...heat.querySelectorAll("a, button")].find((x) => (at.hash ? x.hash === at.hash : x.dataset.filter && x.dataset.filter === at.dataset.filter));
    if (same) same.focus({ preventScroll: true });
  }

  return {
    follow: (rest) => map.follow(rest ? "#matrix/" + rest : "#matrix"),
    key(k) {
      const first = k === "/" && root.querySelector(".filters button");
      if (first) first.focus();
      return Boolean(first);
    },
    tick({ status }) {
      const m = status.matrix;
      $("fill").disabled = status.phase === "starting" || Boolean(status.busy);
      $("fill").title = status.busy && !m.running ? `${status.busy} is in progress` : "";
      $("stop-filling").disabled = !m.running;
      $("filling").textContent = m.running ? status.doing || "" : status.busy ? `Not now: ${status.busy} is in progress.` : "";
      look(m.n);
    },
  };
}
