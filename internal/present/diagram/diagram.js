// Draws a space-time diagram (see diagram.go) as SVG. Time runs to the right, or down on a narrow
// page. The script never creates elements from HTML text.
const NS = "http://www.w3.org/2000/svg";

// el creates an HTML element with attributes, event listeners and children.
export function el(name, attrs, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (typeof v === "function") e.addEventListener(k, v);
    else if (v === true) e.setAttribute(k, "");
    else if (v !== false && v !== undefined && v !== null) e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c !== undefined && c !== null));
  return e;
}

export function svg(name, attrs, ...children) {
  const e = document.createElementNS(NS, name);
  for (const [k, v] of Object.entries(attrs)) if (v !== undefined) e.setAttribute(k, typeof v === "number" ? Math.round(v * 10) / 10 : v);
  e.append(...children);
  return e;
}

export const list = (x) => (Array.isArray(x) ? x : []);

// Sizes in px.
const ROW = 26, LANE = 22, LABEL = 104, COLUMN = 50, COLUMN_LEAST = 26, LONE = 66, TOP = 34, LEAST = 10, FOLD = 44, NARROW = 560;

// positions converts times to px, to scale. It keeps events at least LEAST px apart, and shortens
// long gaps between events.
function positions(d, room) {
  const at = new Set([0, d.end]);
  const all = [...list(d.bands)];
  for (const lane of list(d.lanes)) {
    for (const row of list(lane.rows)) {
      all.push(...list(row.spans));
      for (const m of list(row.marks)) at.add(m.a);
    }
  }
  for (const s of all) { at.add(s.f); at.add(s.t); }
  for (const s of list(d.steps)) at.add(s.at);
  const times = [...at].filter(Number.isFinite).sort((a, b) => a - b);
  const px = [0], folds = [];
  if (times.length < 2) return { x: () => 0, length: room, folds, times };
  const gaps = times.slice(1).map((t, i) => t - times[i]);
  const total = times[times.length - 1] - times[0];
  const folded = (g) => d.scale === "ms" && g > total * 0.05 && g > 5;
  const nFolds = gaps.filter(folded).length;
  const least = Math.min(LEAST, (room * 0.7 - nFolds * FOLD) / gaps.length);
  const linear = gaps.filter((g) => !folded(g)).reduce((a, b) => a + b, 0);
  const spare = Math.max(0, room - nFolds * FOLD - (gaps.length - nFolds) * least);
  const extra = linear > 0 ? 0 : spare / gaps.length;
  gaps.forEach((g, i) => {
    let w = folded(g) ? FOLD : Math.max(1, least) + (linear > 0 ? (spare * g) / linear : 0);
    w += extra;
    if (folded(g)) folds.push({ from: px[i], to: px[i] + w, ms: g });
    px.push(px[i] + w);
  });
  const index = new Map(times.map((t, i) => [t, i]));
  const x = (t) => {
    const i = index.get(t);
    if (i !== undefined) return px[i];
    let k = times.findIndex((u) => u > t);
    if (k < 0) return px[px.length - 1];
    if (k === 0) return 0;
    return px[k - 1] + ((px[k] - px[k - 1]) * (t - times[k - 1])) / (times[k] - times[k - 1]);
  };
  return { x, length: px[px.length - 1], folds, times };
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const small = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
export const ms = (t) => (Math.abs(t) < 10 ? small : number).format(t) + " ms";

// clock returns a function that formats these times, with enough decimals to tell them apart.
function clock(times) {
  const all = [...new Set(times)];
  for (let decimals = 0; ; decimals++) {
    const format = new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    const text = (t) => (decimals === 0 || t === 0 ? ms(t) : format.format(t) + " ms");
    if (decimals === 3 || new Set(all.map(text)).size === all.length) return text;
  }
}

// turns returns the times that explain an order: when it goes wrong, when a lease expires, and when
// a fault begins. Their axis labels have priority.
function turns(d) {
  const rows = list(d.lanes).flatMap((l) => list(l.rows));
  return [d.lost, ...rows.flatMap((r) => list(r.marks).filter((m) => m.k === "leaseend").map((m) => m.a)), ...[d, ...rows].flatMap((r) => list(r.spans || r.bands).filter((s) => s.k === "fault").map((s) => s.f))].filter(Number.isFinite);
}

// strokes contains the single-path marks by name. Each has a CSS class and a function that returns
// the path around a point.
const strokes = {
  read: ["ink", (x, y) => `M${x - 5} ${y - 4}h10l-5 9z`],
  sent: ["ink", (x, y) => `M${x} ${y - 6}l5 6l-5 6l-5-6z`],
  denied: ["grey", (x, y) => `M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8`],
  renewed: ["blue", (x, y) => `M${x} ${y - 9}v18`],
  released: ["blue", (x, y) => `M${x - 4} ${y - 4}h8v8h-8z`],
  late: ["grey", (x, y) => `M${x - 4} ${y - 4}h8v8h-8zM${x - 6} ${y + 6}l12-12`],
  leaseend: ["blue", (x, y) => `M${x + 4} ${y - 6}v12l-8-6z`],
  dies: ["ink", (x, y) => `M${x} ${y - 7}v14M${x - 4} ${y - 3}h8`],
};

// glyph returns the shape of a mark. Marks in strokes are drawn at all points, and other marks only
// at the first point.
function glyph(kind, points, n) {
  if (strokes[kind]) {
    const [cls, path] = strokes[kind];
    return svg("path", { class: cls, d: points.map(([x, y]) => path(Math.round(x * 10) / 10, Math.round(y * 10) / 10)).join("") });
  }
  const [[x, y]] = points;
  const ring = (cls, text) => svg("g", {}, svg("circle", { class: cls, cx: x, cy: y, r: 7 }),
    svg("text", { class: cls, x, y: y + (String(text).length > 1 ? 3 : 4), "text-anchor": "middle", "font-size": String(text).length > 1 ? 9 : undefined }, text));
  switch (kind) {
    case "won": return ring("won", n || "1");
    case "second": { const g = ring("second", n || "2"); g.prepend(svg("circle", { class: "second", cx: x, cy: y, r: 10 })); return g; }
    case "refused": return svg("g", {}, svg("circle", { class: "refused", cx: x, cy: y, r: 6 }), svg("path", { class: "refused", d: `M${x - 4} ${y + 4}l8-8` }));
    case "unknown": return ring("grey", "?");
    case "failed": return ring("grey", "×");
    case "loss": return ring("second", "!");
    default: return svg("circle", { class: "call", cx: x, cy: y, r: 3 });
  }
}

// words contains the names of spans and marks, and other texts. A page can translate them.
const words = {
  waits: "waits for the lock", inside: "inside, without a lock", believes: "believes that it holds the lock", holds: "holds the lock",
  gap: "believes that it holds the lock, but does not", fault: "the fault", dead: "its process is dead", kept: "its key stays on the server", passes: "time passes",
  read: "reads the order", sent: "begins to read or to write", won: "first row of the ledger: has won", second: "a row too many: a double-grab",
  refused: "refused", unknown: "not known", denied: "does not get the lock", failed: "a call to the database fails", late: "a release or renewal without effect: the lock was already lost", renewed: "lease renewed", leaseend: "lease runs out",
  released: "releases the lock", loss: "learns that its lease is lost", dies: "dies; this is the last recorded event", call: "another call to a server", projector: "Full screen", leave: "Leave the full screen", driver: "driver ", instance: "instance ",
  lost: "▶ goes wrong here", goesWrong: "▶ goes wrong", step: "step {n} of {m}", allSteps: "all {m} steps as a table",
  open: "a faded or dashed end: the end is not recorded, or comes after the drawing",
  unitWon: "a row of the ledger: has won a unit", unitSecond: "a row beyond the units: oversold",
};

const pictures = new Set();

// recurs lists frequent marks. Marks closer than NEAR px are merged, and the merged mark's title
// shows their number.
const recurs = new Set(["read", "sent", "denied", "renewed", "released", "late", "call"]), NEAR = 3;

// draw creates the SVG. It also returns move, which moves the cursor to a time.
function draw(d, width) {
  const down = width < NARROW;
  const lanes = list(d.lanes);
  const used = new Set();
  const nRows = lanes.reduce((n, l) => n + list(l.rows).length, 0);
  // Stack the rows, with room for the lane names. On a narrow page, arrange them from left to
  // right.
  let across = down ? 66 : TOP;
  const tracks = [];
  for (const lane of lanes) {
    const from = across;
    if (!down) across += LANE;
    const rows = list(lane.rows).map((row) => {
      const at = across;
      across += down ? Math.max(COLUMN_LEAST, Math.min(list(lane.rows).length === 1 ? LONE : COLUMN, (width - 86 - 6 * lanes.length) / Math.max(1, nRows))) : ROW;
      return { row, mid: (at + across) / 2, size: across - at };
    });
    if (down && rows.length === 0) across += 24;
    tracks.push({ lane, rows, from });
    across += 6;
  }
  const start = down ? 64 : LABEL, end = 26;
  const room = down ? Math.max(300, Math.min(900, 26 * (list(d.steps).length + 8))) : width - start - end;
  const { x, length, folds, times } = positions(d, room);
  const P = (t, r) => (down ? [r, start + t] : [start + t, r]);
  const W = down ? Math.max(width, across + 20) : start + length + end, H = down ? start + length + end : across + 20;
  const root = svg("svg", { width: W, height: H, viewBox: `0 0 ${Math.round(W)} ${Math.round(H)}`, role: "img", "aria-label": String(d.title || "diagram") });
  const box = (cls, t0, t1, r0, r1, title, rx) => {
    const [xa, ya] = P(t0, r0), [xb, yb] = P(t1, r1);
    return svg("rect", { class: cls, x: Math.min(xa, xb), y: Math.min(ya, yb), width: Math.max(1, Math.abs(xb - xa)), height: Math.max(1, Math.abs(yb - ya)), rx },
      svg("title", {}, title));
  };
  const line = (cls, t0, t1, r0, r1) => {
    const [x1, y1] = P(t0, r0), [x2, y2] = P(t1, r1);
    return svg("line", { class: cls, x1, y1, x2, y2 });
  };
  const label = (cls, t, r, text, anchor) => {
    const [lx, ly] = P(t, r);
    return svg("text", { class: cls, x: lx, y: ly, "text-anchor": anchor || "start" }, text);
  };
  const top = down ? 66 : TOP, bottom = across;
  const band = (s, r0, r1) => {
    const cls = s.k === "passes" ? "passes" : "fault";
    used.add(cls);
    const [f, t] = [x(s.f), x(s.t)];
    root.append(box(cls, f, t, r0, r1, String(s.x || words[s.k] || "")));
    if (cls === "fault") root.append(line("edge", f, f, r0, r1), line(s.o ? "edge open" : "edge", t, t, r0, r1));
    if (s.o) used.add("open");
  };
  for (const s of list(d.bands)) band(s, top, bottom);

  // Draw the time axis with as many labels as fit, and mark where it is shortened.
  if (d.scale === "ms") {
    const space = down ? 16 : 64;
    const placed = [], wide = (at) => (at > length - 30 ? 1.4 : at === 0 ? 1.1 : 1);
    for (const t of [0, d.lost, d.end, ...turns(d), ...times].filter(Number.isFinite)) {
      const at = x(t);
      if (placed.some(([, other]) => Math.abs(other - at) < Math.max(wide(other), wide(at)) * space)) continue;
      placed.push([t, at]);
    }
    const text = clock(placed.map(([t]) => t));
    for (const [t, at] of placed) {
      root.append(down ? label("tick", at + 4, 4, text(t)) : label("tick", at, 14, text(t), at < 20 ? "start" : at > length - 30 ? "end" : "middle"));
      root.append(line("rule", at, at, down ? 58 : 18, bottom));
    }
    for (const f of folds) {
      const mid = (f.from + f.to) / 2, [fx, fy] = P(mid, down ? 56 : 24);
      root.append(svg("path", { class: "fold", d: down ? `M${fx - 4} ${fy - 8}l8 4l-8 4l8 4l-8 4` : `M${fx - 8} ${fy + 4}l4-8l4 8l4-8l4 8` }, svg("title", {}, `${ms(f.ms)} without an event, drawn shorter`)));
    }
  } else {
    list(d.steps).forEach((s, i) => root.append(down ? label("tick", x(s.at) + 4, 30, String(i + 1), "middle") : label("tick", x(s.at), 22, String(i + 1), "middle")));
    root.append(down ? label("tick", -8, 30, "step", "middle") : label("tick", -12, 22, "step", "end"));
  }

  for (const { lane, rows, from } of tracks) {
    const name = String(lane.name).replace(/^(instance )?(\d+)$/, words.instance + "$2");
    if (down) root.append(label("lane", -46, from, name.replace("instance ", "inst. ")));
    else root.append(label("lane", -start + 2, from + 15, name), line("rule", -start, length, from, from));
    rows.forEach(({ row, mid, size }) => {
      const short = String(row.name).replace("driver ", down ? "" : words.driver);
      root.append(down ? label("", -28, mid, short.slice(0, 7), "middle") : label("", -start + 10, mid + 4, short.length > 15 ? short.slice(0, 14) + "…" : short));
      root.append(line("rule", 0, length, mid, mid));
      const order = ["fault", "dead", "waits", "inside", "kept", "holds", "believes", "gap"];
      const spans = list(row.spans).slice().sort((a, b) => order.indexOf(a.k) - order.indexOf(b.k));
      for (const s of spans) {
        if (s.k === "fault") { band(s, mid - size / 2, mid + size / 2); continue; }
        if (!order.includes(s.k)) continue;
        used.add(s.k);
        const f = x(s.f), t = Math.max(x(s.t), f + 1), title = `${row.name}: ${s.x || words[s.k] + (d.scale === "ms" && !s.o ? `, ${ms(s.t - s.f)}` : "")}`;
        if (s.k === "waits" || s.k === "inside" || s.k === "dead") {
          const l = line(s.k, f, t, mid, mid);
          l.append(svg("title", {}, title));
          root.append(l);
          continue;
        }
        const h = s.k === "holds" || s.k === "kept" ? 5 : 8;
        const b = box(s.k, f, t, mid - h, mid + h, title, 2);
        if (s.k === "holds" && s.o) b.setAttribute("fill", `url(#${down ? "fade-down" : "fade"})`), b.classList.add("open"), used.add("open");
        root.append(b);
      }
    });
    if (lane.further) root.append(label("soft", down ? length + 20 : length, down ? from : from + 15, `${lane.further} more not drawn`, down ? "start" : "end"));
  }
  root.prepend(svg("defs", {}, fade("fade", 1, 0), fade("fade-down", 0, 1)));

  if (Number.isFinite(d.lost)) {
    const at = x(d.lost);
    root.append(line("loss", at, at, top - 6, bottom));
    const [lx, ly] = P(at, bottom);
    root.append(down ? svg("text", { class: "second", x: W - 2, y: ly + (bottom + 6 > W - 118 ? 22 : 4), "text-anchor": "end" }, words.lost) // below the line if there is no room to its right
      : svg("text", { class: "second", x: lx, y: bottom + 14, "text-anchor": at > length / 2 ? "end" : "start" }, words.lost));
  }
  for (const { rows } of tracks) for (const { row, mid } of rows) {
    let near = []; // marks of one kind that are merged because they are too close together
    const when = (m) => (d.scale === "ms" ? ms(m.a) : "step " + Math.ceil(m.a));
    const meaning = (m) => (d.scale === "ms" ? [words[(d.units > 1 && ofUnits[m.k]) || m.k], m.x].filter(Boolean).join(": ") : m.x || "");
    const mark = () => {
      if (near.length === 0) return;
      const [m] = near, n = near.length, last = near[n - 1];
      const g = glyph(m.k, near.map((o) => P(x(o.a), mid)), m.n);
      const what = n > 1 ? `${n} times from ${when(m)} to ${when(last)}: ${words[m.k] || words.call}` : `${when(m)}: ${meaning(m)}`;
      g.append(svg("title", {}, `${row.name}, ${what}`));
      used.add(words[m.k] ? m.k : "call");
      root.append(g);
      near = [];
    };
    for (const m of list(row.marks)) {
      const last = near[near.length - 1];
      if (last && !(last.k === m.k && recurs.has(m.k) && x(m.a) - x(last.a) < NEAR)) mark();
      near.push(m);
    }
    mark();
  }
  const cursor = line("cursor", 0, 0, top - 6, bottom);
  cursor.setAttribute("visibility", "hidden");
  root.append(cursor);
  const move = (t) => {
    const [x1, y1] = P(x(t), top - 6), [x2, y2] = P(x(t), bottom);
    for (const [k, v] of Object.entries({ x1, y1, x2, y2, visibility: "visible" })) cursor.setAttribute(k, v);
  };
  return { root, move, used };
}

function fade(id, dx, dy) {
  return svg("linearGradient", { id, x1: 0, y1: 0, x2: dx, y2: dy },
    svg("stop", { offset: 0, "stop-color": "var(--hold)", "stop-opacity": 0.55 }), svg("stop", { offset: 1, "stop-color": "var(--hold)", "stop-opacity": 0.05 }));
}

// ofUnits replaces these marks' legend texts if the order has several units.
const ofUnits = { won: "unitWon", second: "unitSecond" };

function legend(used, units) {
  const ul = el("ul", { class: "legend", "aria-label": "legend" });
  for (const k of Object.keys(words)) {
    if (!used.has(k)) continue;
    const s = svg("svg", { width: 26, height: 20, viewBox: "0 0 26 20", "aria-hidden": "true" });
    const bar = { believes: 7, holds: 5, kept: 5, gap: 7, fault: 9, passes: 9 };
    if (bar[k]) s.append(svg("rect", { class: k, x: 2, y: 10 - bar[k], width: 22, height: 2 * bar[k], rx: 2 }));
    else if (k === "waits" || k === "inside" || k === "dead") s.append(svg("line", { class: k, x1: 2, y1: 10, x2: 24, y2: 10 }));
    else if (k === "open") s.append(svg("line", { class: "edge open", x1: 13, y1: 1, x2: 13, y2: 19 }));
    else s.append(glyph(k, [[13, 10]]));
    ul.append(el("li", {}, s, words[(units > 1 && ofUnits[k]) || k]));
  }
  return ul;
}

// changed lists the entries of two lists, marked as new, gone or kept.
function changed(before, now) {
  const ul = el("ul", {});
  for (const x of now) ul.append(el("li", { class: before.includes(x) ? "kept" : "new" }, x));
  for (const x of before) if (!now.includes(x)) ul.append(el("li", { class: "gone" }, x));
  return ul;
}

const names = (all) => list(all).join(", ") || "no driver";

// panel returns an element that describes a step and the state after it.
function panel(steps, i) {
  const s = steps[i], before = i > 0 ? steps[i - 1] : {};
  const p = [el("p", { class: "what" }, `${s.who ? s.who + " " : ""}${s.text}`)];
  if (s.lost) p.push(el("p", { class: "second" }, words.lost));
  if (s.believed !== undefined) p.push(el("p", {}, `believes: ${s.believed}`), el("p", {}, `true: ${s.true || ""}`));
  if (s.stores) {
    const locks = steps.some((o) => list(o.believes).length + list(o.holds).length > 0);
    const mark = (key) => (names(s[key]) !== names(before[key]) && i > 0 ? " (changed)" : "");
    p.push(el("p", {}, (locks ? `believe that they hold: ${names(s.believes)}${mark("believes")}; hold: ${names(s.holds)}${mark("holds")}; ` : "") + s.clock), changed(list(before.stores), list(s.stores)));
  }
  return p;
}

function table(d, steps) {
  const run = steps.some((s) => s.believed !== undefined);
  const columns = run
    ? [["at", (s) => s.clock], ["who", (s) => s.who], ["what happened", (s) => s.text], ["what the driver believed", (s) => s.believed], ["what was true", (s) => s.true]]
    : [["step", (s, i) => i + 1], ["time", (s) => s.clock], ["who", (s) => s.who], ["what happened", (s) => s.text],
      ["believe", (s) => list(s.believes).join(" ")], ["hold", (s) => list(s.holds).join(" ")], ["in the stores", (s) => list(s.stores).join("; ")]]
      .filter(([, text]) => steps.some((s, i) => text(s, i)));
  return el("table", {}, el("thead", {}, el("tr", {}, ...columns.map(([head]) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...steps.map((s, i) => el("tr", { class: s.lost ? "lost" : "" }, ...columns.map(([, text]) => el("td", {}, String(text(s, i) ?? "")))))));
}

// notes returns the list of remarks about omitted and unknown data.
export const notes = (d) => el("ul", { class: "notes" }, ...list(d.notes).map((n) => el("li", {}, String(n))));

// picture returns a drawing. Call its show method for each new state of the data.
export function picture() {
  const canvas = el("div", { class: "scroll" });
  const legendBox = el("div", { class: "meanings" }), why = el("p", { class: "why" });
  const full = el("button", { type: "button", class: "full", click: () => project(element.closest("figure") || element) }, words.projector);
  const title = el("p", { class: "title" }); // only in full screen, where the page heading is hidden
  const element = el("div", { class: "diagram" }, title, canvas, why, legendBox, full);
  let d = null, width = 0, named = "";
  const p = {
    element, move: () => {},
    again() { named = ""; full.textContent = element.closest(".projector") ? words.leave : words.projector; if (d) p.show(d); },
    show(next) {
      d = next;
      full.hidden = false;
      title.textContent = element.parentElement?.closest("figure") || !element.closest(".projector") ? "" : String(d.title || "");
      const text = ((d.cause && d.cause[document.documentElement.lang]) || "").replace(/(\d) (?=ms)/g, "$1\u00a0");
      if (why.textContent !== text) why.textContent = text;
      why.hidden = !text;
      width = Math.floor(canvas.clientWidth);
      if (width === 0) return;
      const projector = element.closest(".projector");
      let scale = projector ? LARGER : 1, drawn = draw(d, width / scale);
      const now = [...drawn.used, d.units > 1].sort().join();
      if (now !== named) legendBox.replaceChildren(legend(drawn.used, d.units));
      named = now;
      if (p.reserve) p.reserve(Boolean(projector));
      if (projector && width / scale >= NARROW) { // use the screen height too
        canvas.replaceChildren();
        const besides = Math.max(...[...projector.children, ...element.children].map((c) => c.getBoundingClientRect().bottom)) + projector.scrollTop + 12;
        const larger = Math.min(width / NARROW, (innerHeight - besides) / drawn.root.getAttribute("height"));
        const fits = Math.max(larger, p.reserve ? LEAST_LARGER : LARGER); // the steps below the drawing must not be cut off
        if (fits !== scale) [scale, drawn] = [fits, draw(d, width / fits)];
      }
      for (const name of ["width", "height"]) drawn.root.setAttribute(name, Math.floor(drawn.root.getAttribute(name) * scale));
      const wide = Number(drawn.root.getAttribute("width")) > width + 1; // a wide drawing can be scrolled with the mouse and keys
      drawn.root.classList.toggle("wide", wide);
      for (const [name, value] of Object.entries({ tabindex: 0, role: "region", "aria-label": String(d.title || "diagram") })) {
        if (wide) canvas.setAttribute(name, value);
        else canvas.removeAttribute(name);
      }
      p.move = drawn.move;
      canvas.replaceChildren(drawn.root);
      if (p.drawn) p.drawn();
    },
    clear() {
      d = null;
      named = "";
      canvas.replaceChildren();
      legendBox.replaceChildren();
      why.hidden = full.hidden = true;
    },
  };
  pictures.add(p);
  new ResizeObserver(() => {
    if (d && Math.floor(canvas.clientWidth) !== width) p.show(d);
  }).observe(canvas);
  return p;
}

// These factors enlarge a drawing in full screen. project switches full screen on or off.
const LARGER = 1.5, LEAST_LARGER = 1.25;
function project(box) {
  const starts = box.classList.toggle("projector");
  const focus = box.querySelector(".stepper") || box.querySelector(".full");
  if (starts && box.requestFullscreen) box.requestFullscreen().catch(() => { /* the drawing then fills only the window */ });
  if (!starts && document.fullscreenElement) document.exitFullscreen();
  redraw(box);
  if (focus) focus.focus();
}
addEventListener("fullscreenchange", () => { if (!document.fullscreenElement) endProjector(); });
addEventListener("keydown", (e) => {
  if (e.key === "Escape" && endProjector()) e.preventDefault();
}, true);
// A click in full screen keeps the focus on the steps, so that the arrow keys still work.
addEventListener("click", (e) => {
  const steps = document.querySelector(".projector .stepper");
  if (steps && e.target.closest(".projector") && !e.target.closest("button, .scroll[tabindex]")) steps.focus({ preventScroll: true });
});
function endProjector() {
  const box = document.querySelector(".projector");
  if (!box) return false;
  box.classList.remove("projector");
  redraw(box);
  return true;
}
// redraw redraws all pictures in a box, for example after a language change.
export function redraw(box) {
  for (const p of pictures) if (box.contains(p.element)) p.again();
}

// figure returns an element with the diagram and its steps. It adapts to its width. at is the first
// step to show. If caption is false, only screen readers see the title. The figure calls stepped
// after each step. Its go method shows a step.
export function figure(d, { at = -1, caption = true, stepped } = {}) {
  const steps = list(d.steps);
  const pic = picture();
  let now = at;
  const count = (text) => text.replace("{n}", now + 1).replace("{m}", steps.length);
  let label = () => {};
  pic.drawn = () => {
    if (now >= 0 && steps[now]) pic.move(steps[now].at);
    label();
  };
  const f = el("figure", { class: "diagram" }, el("figcaption", { class: caption ? "" : "hidden" }, String(d.title || "")));
  if (list(d.lanes).length > 0) {
    f.append(pic.element);
    pic.show(d); // has no effect until the element has a width
  }
  if (steps.length > 0) {
    const lost = steps.findIndex((s) => s.lost);
    const out = el("output", { "aria-live": "polite" });
    const box = el("div", { class: "now", "aria-live": "polite" });
    const all = table(d, steps);
    const rows = [...all.tBodies[0].rows];
    const go = (i) => {
      now = Math.max(0, Math.min(steps.length - 1, i));
      label();
      box.replaceChildren(...panel(steps, now));
      box.classList.toggle("lost", Boolean(steps[now].lost));
      rows.forEach((r, k) => r.classList.toggle("here", k === now));
      pic.move(steps[now].at);
      if (stepped) stepped(now);
    };
    const nextHolder = () => steps.findIndex((s, i) => i > now && names(s.holds) !== names(steps[i - 1].holds));
    const button = (text, name, to) => el("button", { type: "button", "aria-label": name, title: name, click: () => go(to()) }, text);
    const bar = el("div", { class: "stepper", role: "group", "aria-label": "steps: arrow keys, Home, End, l for where it goes wrong, n for the next change of the holder", tabindex: 0 },
      button("|◀", "first step", () => 0), button("◀", "step back", () => now - 1), out,
      button("▶", "step forwards", () => now + 1), button("▶|", "last step", () => steps.length - 1));
    const goesWrong = button("", "the step where it goes wrong", () => lost), summary = el("summary", {});
    if (lost >= 0) bar.append(goesWrong);
    label = () => {
      for (const [e, text] of [[out, words.step], [goesWrong, words.goesWrong], [summary, words.allSteps]]) e.textContent = count(text);
    };
    bar.addEventListener("keydown", (e) => {
      const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: steps.length - 1, l: lost, n: nextHolder() }[e.key];
      if (to === undefined || (to < 0 && e.key.length === 1) || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      go(to);
    });
    // In full screen, reserve gives the panel the height of the tallest step, so that nothing is
    // cut off.
    pic.reserve = (isProjected) => {
      box.style.minHeight = "";
      if (!isProjected) return;
      const heights = steps.map((_, i) => (box.replaceChildren(...panel(steps, i)), box.offsetHeight));
      box.replaceChildren(...panel(steps, now));
      box.style.minHeight = `${Math.max(...heights)}px`;
    };
    f.append(bar, box, el("details", {}, summary, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "all steps" }, all)));
    go(at >= 0 ? at : lost >= 0 ? lost : 0);
    f.go = (i) => { if (i !== now) go(i); };
  }
  if (list(d.notes).length > 0) f.append(notes(d));
  return f;
}
