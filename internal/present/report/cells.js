// cells.js makes the heat map of a run (cells.html) interactive. Users can filter its cells and
// select one with the mouse or the arrow keys. A selected cell shows its results, a drawing, the
// failure mode and the command that repeats the test.

import { el, svg, list, ms, figure } from "./diagram.js";

const run = JSON.parse(document.getElementById("data").textContent);

// filters lists the filter buttons: the class of the cells that a filter shows, and its text.
const filters = [["unsafe", "✗ unsafe"], ["stuck", "∞ stuck"], ["unknown", "? unknown"], ["safe", "✓ safe"], ["na", "– n/a"], ["let-in", "⇄ two inside"], ["surprise", "≠ not as expected"]];

const arrows = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

// named decodes an escaped part of an address. If the part cannot be decoded, it returns the part
// unchanged.
function named(hash) {
  try {
    return decodeURIComponent(hash);
  } catch {
    return hash;
  }
}

// heatMap makes the table in root interactive, and shows the selected cell next to it. The page's
// address names the selected cell.
function heatMap(root) {
  const place = root.querySelector(".cell"), table = root.querySelector(".matrix table");
  const on = new Set(); // the classes of the active filters

  // The Tab key reaches only one cell. The arrow keys move to the others.
  const linkAt = (td) => td && !td.classList.contains("off") && td.querySelector("a");
  function beside(from, dx, dy) {
    const td = from.closest("td"), rows = [...table.tBodies[0].rows];
    for (let r = rows.indexOf(td.parentElement) + dy, c = td.cellIndex + dx; rows[r] && c >= 1 && c < rows[r].cells.length; r += dy, c += dx) {
      if (!rows[r].hidden && linkAt(rows[r].cells[c])) return linkAt(rows[r].cells[c]);
    }
    return null;
  }
  function reachable(link) {
    for (const a of table.querySelectorAll("td a")) a.tabIndex = -1;
    const first = link || [...table.querySelectorAll("td:not(.off) a")].find((a) => !a.closest("tr").hidden);
    if (first) first.tabIndex = 0;
  }
  function filter() {
    for (const b of root.querySelectorAll(".filters button")) b.setAttribute("aria-pressed", String(on.has(b.dataset.filter)));
    for (const row of table.tBodies[0].rows) {
      let any = false;
      for (const td of row.querySelectorAll("td")) {
        const shown = on.size === 0 || [...on].some((f) => td.classList.contains(f));
        td.classList.toggle("off", !shown);
        any = any || shown;
      }
      row.hidden = !any;
    }
    reachable();
  }
  root.addEventListener("click", (e) => {
    const b = e.target.closest(".filters button");
    if (!b) return;
    if (!on.delete(b.dataset.filter)) on.add(b.dataset.filter);
    filter();
  });
  root.addEventListener("keydown", (e) => {
    const step = arrows[e.key], link = e.target.closest(".matrix td a");
    if (!step || !link) return;
    e.preventDefault();
    const to = beside(link, ...step);
    if (to) {
      reachable(to);
      to.focus();
    }
  });

  // follow shows the cell in the address. If there is no such cell, it closes the current one.
  function follow() {
    const link = [...table.querySelectorAll("td a")].find((a) => named(a.hash) === named(location.hash)), cell = link && run.cells[Number(link.dataset.cell)];
    for (const a of table.querySelectorAll("a[aria-current]")) a.removeAttribute("aria-current");
    place.hidden = !cell;
    if (!cell) return;
    link.setAttribute("aria-current", "true");
    reachable(link);
    open(place, cell);
    place.focus({ preventScroll: true });
    place.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
  }
  addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || place.offsetParent === null || e.defaultPrevented) return;
    const here = root.querySelector(".matrix a[aria-current]");
    history.pushState(null, "", location.pathname + location.search);
    follow();
    if (here) here.focus();
  });
  addEventListener("hashchange", follow);

  root.querySelector(".filters").replaceChildren(...filters.flatMap(([cls, text]) => {
    const n = table.querySelectorAll(`td.${cls}`).length;
    return n > 0 ? [el("button", { type: "button", "aria-pressed": "false", "data-filter": cls, class: cls }, text + " ", el("b", {}, n))] : [];
  }));
  root.querySelector(".filters").hidden = false;
  for (const a of table.querySelectorAll("td a")) a.title = a.getAttribute("aria-label");
  filter();
  follow();
}

const shown = (x) => (x === null || x === undefined ? "?" : String(x));
function pointTables(c) {
  const isUneventful = ([, struck, strikes, verdict, , , overlaps, misses]) => verdict === "safe" && struck >= strikes && !overlaps && !misses;
  const eventful = c.points.filter((p) => !isUneventful(p)), rest = c.points.filter(isUneventful);
  const all = [];
  if (eventful.length > 0) all.push(pointTable(eventful));
  if (rest.length > 0) all.push(el("details", {}, el("summary", {}, `${rest.length} ${rest.length === 1 ? "point" : "points"} at which the fault did no harm`), pointTable(rest)));
  return all;
}
function pointTable(points) {
  const heads = ["point", "verdict", "struck", "double", "stuck", "overlaps", "near misses", "explained by"];
  const numeric = (i) => (i > 1 && i < 7 ? "number" : "");
  const rows = points.map(([name, struck, strikes, verdict, double, stuck, overlaps, misses, mode]) => {
    const figures = [`${struck}/${strikes}`, shown(double), shown(stuck), overlaps === null ? "-" : shown(overlaps), shown(misses)];
    return el("tr", {}, ...[name, verdict, ...figures, mode].map((x, i) => el("td", { class: i === 1 ? verdict : numeric(i), "data-label": heads[i] }, x)));
  });
  return el("div", { class: "scroll points", tabindex: 0, role: "region", "aria-label": "points" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: numeric(i) }, h)))), el("tbody", {}, ...rows)));
}

function figures(c) {
  const dl = el("dl", { class: "figures" });
  c.figures.forEach((f, i) => { if (f !== "-" && !(run.figures[i] === "struck" && c.id.endsWith("/none"))) dl.append(el("div", {}, el("dt", {}, run.figures[i]), el("dd", {}, f))); });
  return dl;
}

// The latency axis of the charts is logarithmic, and covers the powers of ten that occur in the
// data.
const drawable = (v) => Number.isFinite(v) && v >= 0 && v < 1e9;
const H = 220, LEFT = 70, BASE = 46, HEAD = 26;
function axes(w, low, high, name) {
  const from = Math.floor(Math.log10(Math.min(Math.max(low, 0.01), Math.max(high, 0.01)))), to = Math.max(from + 1, Math.ceil(Math.log10(Math.max(high, 0.011))));
  const y = (v) => HEAD + (H - HEAD - BASE) * (1 - (Math.log10(Math.max(v, 0.01)) - from) / (to - from));
  const root = svg("svg", { width: w, height: H, viewBox: `0 0 ${w} ${H}`, role: "img", "aria-label": name });
  for (let p = from; p <= to; p++) {
    const at = y(10 ** p);
    root.append(svg("line", { class: "rule", x1: LEFT, x2: w - 8, y1: at, y2: at }), svg("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, ms(10 ** p)));
  }
  axisName(root, 0, 12, "latency, logarithmic", "start");
  return { root, y };
}
function axisName(root, x, y, text, anchor = "middle") {
  root.append(svg("text", { class: "tick", x, y, "text-anchor": anchor }, text));
}
function curve(cls, xs, ys, x, y, name) {
  const g = svg("g", { class: cls });
  let d = "", pen = false;
  ys.forEach((v, i) => {
    if (!drawable(v)) { pen = false; return; }
    d += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = true;
    g.append(svg("circle", { cx: x(xs[i]), cy: y(v), r: 2.5 }, svg("title", {}, `${name}: ${ms(v)}`)));
  });
  g.prepend(svg("path", { d }));
  return g;
}
const curves = [["p50 from the schedule", "one", "p50"], ["p99 from the schedule", "two", "p99"], ["p50 from sending", "one sent", "sent_p50"], ["p99 from sending", "two sent", "sent_p99"]];
function chartLegend(entries, band) {
  const ul = el("ul", { class: "legend" });
  for (const [name, cls] of entries) ul.append(el("li", {}, svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, svg("g", { class: "curve " + cls }, svg("path", { d: "M1 6H25" }))), name));
  if (band) ul.append(el("li", {}, svg("svg", { width: 26, height: 14, "aria-hidden": "true" }, svg("rect", { class: "fault", width: 26, height: 14 })), "the fault"));
  return ul;
}
// times writes the times from 0 to end below a chart. A narrow chart has fewer.
function times(root, w, end) {
  const parts = w < 480 ? 2 : 4;
  for (let i = 0; i <= parts; i++) root.append(svg("text", { class: "tick", x: LEFT + ((w - LEFT - 8) * i) / parts, y: H - 28, "text-anchor": i === 0 ? "start" : i === parts ? "end" : "middle" }, ms((end * i) / parts)));
  axisName(root, (LEFT + w) / 2, H - 8, "time since the load began");
}
function overTime(c, w) {
  const o = c.over, ends = list(o.n).map((_, i) => (i + 0.5) * o.slice_ms);
  const strikes = list(c.strikes).filter((s) => drawable(s[0])).map(([f, t]) => [f, drawable(t) ? Math.max(f, t) : null]);
  const end = Math.max(o.n.length * o.slice_ms, ...strikes.map((s) => s[1] ?? s[0] ?? 0));
  const few = !list(o.n).some((n) => enough(n, 0.99)); // then no time slice has a 99th percentile
  const points = (key) => list(o[key]).map((v, i) => (enough(list(o.n)[i] ?? 0, /99/.test(key) ? 0.99 : 0.5) ? v : null));
  const drawn = curves.filter(([, , key]) => !few || !/99/.test(key));
  const values = drawn.flatMap(([, , key]) => points(key)).filter(drawable);
  const { root, y } = axes(w, Math.min(...values, 1e9), Math.max(...values, 0), "latency over time, from the schedule and from sending");
  const x = (t) => LEFT + ((w - LEFT - 8) * t) / end;
  for (const [f, t] of strikes) {
    const to = Number.isFinite(t) ? t : end;
    root.append(svg("rect", { class: "fault", x: x(f), y: HEAD, width: Math.max(1, x(to) - x(f)), height: H - HEAD - BASE }, svg("title", {}, `the fault, from ${ms(f)} ${Number.isFinite(t) ? "to " + ms(t) : "on"}`)),
      svg("line", { class: "edge", x1: x(f), x2: x(f), y1: HEAD, y2: H - BASE }), svg("line", { class: Number.isFinite(t) ? "edge" : "edge open", x1: x(to), x2: x(to), y1: HEAD, y2: H - BASE }));
  }
  times(root, w, end);
  for (const [name, cls, key] of drawn) root.append(curve("curve " + cls, ends, points(key), x, y, name));
  return el("figure", { class: "diagram" }, el("figcaption", {}, "Latency over time"), root, chartLegend(drawn, strikes.length > 0), few ? el("p", { class: "notes" }, "No part of the run has the 100 answers that a p99 needs.") : null);
}
function soldOverTime(c, w) {
  const sold = list(c.sold.sold).filter(drawable), end = sold.length * c.sold.slice_ms;
  let sum = 0;
  const total = [0, ...sold.map((n) => (sum += n))], most = Math.max(sum, 1);
  const x = (i) => LEFT + ((w - LEFT - 8) * i) / sold.length, y = (n) => HEAD + (H - HEAD - BASE) * (1 - n / most);
  const root = svg("svg", { width: w, height: H, viewBox: `0 0 ${w} ${H}`, role: "img", "aria-label": "units that drivers were told to have, since the load began" });
  for (const n of new Set([0, Math.round(most / 2), most])) {
    root.append(svg("line", { class: "rule", x1: LEFT, x2: w - 8, y1: y(n), y2: y(n) }), svg("text", { class: "tick", x: LEFT - 6, y: y(n) + 4, "text-anchor": "end" }, String(n)));
  }
  times(root, w, end);
  axisName(root, 0, 12, "units sold, in all", "start");
  const g = svg("g", { class: "curve two" }, svg("path", { d: total.map((n, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(n).toFixed(1)}`).join("") }));
  total.forEach((n, i) => g.append(svg("circle", { cx: x(i), cy: y(n), r: 2.5 }, svg("title", {}, `${n} by ${ms(i * c.sold.slice_ms)}`))));
  root.append(g);
  return el("figure", { class: "diagram" }, el("figcaption", {}, "Units sold over time"), root);
}
// enough reports whether n samples are enough for the percentile q. For example, the 99th needs 100
// samples.
const enough = (n, q) => n === null || q === 0 || q === 0.9999 || n * (1 - q) >= 1 - 1e-9;
const quantiles = [["min", 0], ["p50", 0.5], ["p90", 0.9], ["p99", 0.99], ["p999", 0.999], ["max", 0.9999]];
function distribution(c, w) {
  const n = c.over ? list(c.over.n).reduce((a, b) => a + b, 0) : null;
  const shownQuantiles = quantiles.filter(([, q]) => enough(n, q));
  const both = [["from the schedule", "two", c.latency[0]], ["from sending", "two sent", c.latency[1]]].filter((b) => b[2]);
  const values = both.flatMap(([, , l]) => shownQuantiles.map(([k]) => l[k])).filter(drawable);
  const { root, y } = axes(w, Math.min(...values.filter((v) => v > 0), 1000), Math.max(...values, 0), "distribution of latencies");
  const x = (i) => LEFT + 16 + ((w - LEFT - 50) * i) / (shownQuantiles.length - 1);
  shownQuantiles.forEach(([k], i) => root.append(svg("text", { class: "tick", x: x(i), y: H - 28, "text-anchor": "middle" }, k.replace("p999", "p99.9"))));
  axisName(root, (LEFT + w) / 2, H - 8, "percentile of the answers");
  for (const [name, cls, l] of both) root.append(curve("curve dots " + cls, shownQuantiles.map((_, i) => i), shownQuantiles.map(([k]) => l[k]), x, y, name));
  return el("figure", { class: "diagram" }, el("figcaption", {}, `Distribution of latencies${n === null ? "" : `, ${n} answers`}`), root, chartLegend(both.map(([n, cls]) => [n, cls])));
}

function modeCard(id) {
  const m = Object.hasOwn(run.modes, id) && run.modes[id];
  if (!m) return el("p", {}, `${id}: this page knows no failure mode of that name.`);
  const [name, steps, cure, by, shows, source] = m;
  const dl = el("dl", {}, el("dt", {}, "how"), el("dd", {}, steps), el("dt", {}, "cure"), el("dd", {}, `${cure} (${by})`), el("dt", {}, "seen by"), el("dd", {}, shows));
  if (source) dl.append(el("dt", {}, "source"), el("dd", {}, source));
  return el("div", { class: "mode" }, el("h3", {}, `${id}: ${name}`), dl);
}

function commandLine(text) {
  const code = el("code", {}, text);
  const copy = el("button", { type: "button", click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code); // a page opened from a file may not write to the clipboard
      copy.textContent = "selected";
    }
  } }, "copy");
  return el("p", {}, code, " ", copy);
}

// titleOf returns a cell's name. "none" is the name of both a strategy and a fault.
function titleOf(id) {
  const [strategy, fault] = id.split("/");
  return `${strategy}${strategy === "none" ? " (no lock)" : ""} ${fault === "none" ? "without a fault" : "under " + fault}`;
}

function open(place, c) {
  const room = place.parentElement.clientWidth - 60; // for one chart, or two side by side
  const width = Math.max(280, room < 900 ? room : (room - 32) / 2);
  const close = el("a", { href: "#", class: "close" }, "close (Esc)");
  const parts = [el("h2", {}, titleOf(c.id)), el("p", { class: "answer" }, c.sentence)];
  if (c.reason) parts.push(el("p", {}, c.reason));
  for (const f of list(c.facts)) parts.push(el("p", {}, f));
  parts.push(el("h3", {}, "What happened"), el("p", {}, c.explains || ""));
  if (c.drawing) parts.push(figure(c.drawing, { caption: false }));
  if (c.mode) parts.push(modeCard(c.mode));
  else if (c.drawing) parts.push(el("p", {}, "No known failure mode explains this failure: look for the cause in the steps of the drawing."));
  if (list(c.points).length > 0) parts.push(el("h3", {}, `Points at which the fault should strike: ${c.points.length}`), ...pointTables(c));
  if (list(c.checks).length > 0) parts.push(el("h3", {}, "Properties that were broken"), el("ul", {}, ...c.checks.map((x) => { const [name] = x.split(":"); return el("li", {}, el("b", {}, name), x.slice(name.length)); })));
  parts.push(el("h3", {}, "Figures"), figures(c));
  const charts = el("div", { class: "charts" });
  if (c.sold && list(c.sold.sold).some(drawable) && drawable(c.sold.slice_ms) && c.sold.slice_ms > 0) charts.append(soldOverTime(c, width));
  if (c.over && list(c.over.n).length > (c.sold ? 1 : 0) && drawable(c.over.slice_ms) && c.over.slice_ms > 0) charts.append(overTime(c, width));
  if (c.latency[0] || c.latency[1]) charts.append(distribution(c, width));
  parts.push(charts);
  parts.push(el("h3", {}, "Again"), commandLine(c.command));
  place.replaceChildren(close, ...parts);
  place.hidden = false;
}

const main = document.querySelector("main");
if (main.querySelector(".matrix")) heatMap(main);
