// The charts of a live run: rate, latency and double-grabs per second, with a common cursor. Lines
// do not cross seconds without data.

import { el, svg, ms } from "./diagram.js";
import { onLanguage, say } from "./words.js";

const HEIGHT = 84, LEFT = 76, HEAD = 8, FOOT = 6, AXIS = 32, SHOWN = 60; // SHOWN is in seconds, the others are in px
const count = (n) => n.toLocaleString("en");

// charts lists the charts. Each has a name, a value format, and its curves. A curve has a CSS
// class, a function that returns a second's value, and a name if there are several curves.
const charts = [
  { name: "answers a second", text: count, curves: [["one", (s) => s.n]] },
  { name: "latency: p50, and p99 of the last 5 s", text: ms, curves: [["one", (s) => s.p50, "p50"], ["two", (s) => s.p99, "p99"]] },
  { name: "double-grabs", text: count, curves: [["bad", (s) => s.doubles]] },
];

export function series() {
  const says = el("output", { class: "notes" });
  const box = el("div", { class: "series", tabindex: 0, role: "group", "aria-label": "rate, latency and double-grabs of each second; arrow keys move the cursor" });
  const element = el("div", {}, box, says);
  let all = [], began = 0, at = -1, width = 0;

  function draw() {
    width = box.clientWidth;
    if (width === 0) return;
    const shown = all.slice(-SHOWN), first = shown.length > 0 ? shown[0].t : 0;
    const x = (t) => LEFT + ((width - LEFT - 10) * (t - first + 0.5)) / Math.max(SHOWN / 4, shown.length);
    box.replaceChildren(...charts.map((c, n) => {
      const values = c.curves.map(([, of]) => shown.map((s) => [s.t, of(s)]).filter(([, v]) => typeof v === "number"));
      const top = Math.max(1, ...values.flat().map(([, v]) => v));
      const y = (v) => HEAD + (HEIGHT - HEAD - FOOT) * (1 - v / top);
      const isLast = n === charts.length - 1, height = HEIGHT + (isLast ? AXIS : 0); // the last chart has the common time axis
      const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": say(c.name) }, svg("title", {}, say(c.name)));
      for (const v of [0, top]) root.append(svg("line", { class: "rule", x1: LEFT, x2: width - 8, y1: y(v), y2: y(v) }), svg("text", { class: "tick", x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, c.text(v)));
      values.forEach((points, i) => root.append(svg("g", { class: "curve " + c.curves[i][0] }, svg("path", { d: points.map(([t, v], k) => `${k && points[k - 1][0] === t - 1 ? "L" : "M"}${x(t)} ${y(v)}`).join("") }), ...points.map(([t, v]) => svg("circle", { cx: x(t), cy: y(v), r: 2 })))));
      if (isLast) {
        for (const s of shown.filter((s) => (s.t + 1) % 5 === 0)) root.append(svg("text", { class: "tick", x: x(s.t), y: HEIGHT + 10, "text-anchor": "middle" }, String(s.t + 1)));
        root.append(svg("text", { class: "tick", x: (LEFT + width) / 2, y: height - 4, "text-anchor": "middle" }, say("seconds since the run began")));
      }
      if (at >= first) root.append(svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT }));
      return el("figure", { class: "diagram" }, el("figcaption", { class: "notes" }, say(c.name), ...c.curves.filter(([, , name]) => name).map(([cls, , name]) => el("span", { class: "key " + cls }, name))), root);
    }));
    const s = shown.find((o) => o.t === at) || shown[shown.length - 1];
    says.textContent = s ? say("second {t}: {n} answers, p50 {p50}, p99 {p99}, {doubles} double-grabs", {
      t: s.t + 1, n: count(s.n), doubles: count(s.doubles), p50: s.p50 === undefined ? "?" : ms(s.p50), p99: s.p99 === undefined ? say("not known (it needs 100 answers in 5 s)") : ms(s.p99) }) : "";
    box.second = (px) => Math.round(first - 0.5 + ((px - LEFT) * Math.max(SHOWN / 4, shown.length)) / (width - LEFT - 10));
  }
  const go = (t) => {
    if (all.length === 0) return;
    at = Math.max(all[Math.max(0, all.length - SHOWN)].t, Math.min(all[all.length - 1].t, t));
    draw();
  };
  box.addEventListener("pointermove", (e) => go(box.second(e.clientX - box.getBoundingClientRect().left)));
  box.addEventListener("pointerleave", () => { at = -1; draw(); });
  box.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!step || all.length === 0) return;
    e.preventDefault();
    go((at < 0 ? all[all.length - 1].t : at) + step);
  });
  onLanguage(draw);
  new ResizeObserver(() => { if (box.clientWidth !== width) draw(); }).observe(box);
  return {
    element,
    take(t) {
      const fresh = t.seconds || [];
      if (t.whole || t.began !== began) all = [];
      else if (fresh.length === 0) return;
      began = t.began;
      all.push(...fresh.filter((s) => all.length === 0 || s.t > all[all.length - 1].t)); // the first message may overlap with the next one
      draw();
    },
  };
}
