// The live view, which shows the running test.

import { el, list, notes, picture, ms } from "./diagram.js";
import { names, onLanguage, say, tell } from "./words.js";

const $ = (id) => document.getElementById(id);
const setText = (e, text) => { if (e.textContent !== text) e.textContent = text; };

// winners names the drivers that won an order. For more than four, it returns only their number.
const winners = ({ rows }, none) => (rows.length > 4 ? say("{n} drivers won", { n: rows.length }) : rows.length === 0 ? none : say("{winners} won", { winners: names(rows) }));

// sold says how many of an order's units were sold. For a single-unit order, it returns an empty
// text.
const sold = (t) => (t.units > 1 ? `${say("{n} of {units} units sold", { n: t.rows.length, units: t.units })}: ` : "");

export function live(choices, ask) {
  const form = $("controls");
  const problem = (text) => setText($("problem"), text || "");
  form.strategy.append(...choices.strategies.map((s) => el("option", { value: s.name, disabled: Boolean(s.refused), title: s.refused ? `${s.about}. ${s.refused}` : s.about }, s.name === "none" ? "none (no lock)" : s.name)));
  form.fault.append(...choices.faults.map((f) => el("option", { value: f.name, title: f.about }, f.name === "none" ? "no fault" : f.name)));
  form.rate.max = choices.max_rate;
  form.units.max = choices.max_units;
  const guards = () => {
    const s = choices.strategies.find((c) => c.name === form.strategy.value);
    const before = form.guard.value;
    form.guard.replaceChildren(el("option", { value: "" }, say("{guard}, its own", s)),
      ...choices.guards.filter((g) => g !== s.guard).map((g) => el("option", { value: g, disabled: g.startsWith("fence") && !s.fences }, g)));
    form.guard.value = [...form.guard.options].some((o) => o.value === before && !o.disabled) ? before : "";
  };
  form.strategy.addEventListener("change", guards);
  onLanguage(guards);

  // doing sends a request when the user clicks a button. It shows an error on the page if the
  // request fails.
  const doing = async (button, path, body) => {
    button.disabled = true;
    try {
      await ask(path, body);
      problem();
    } catch (e) {
      problem(e.message);
    }
    button.disabled = false;
    buttons();
  };
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    [chosen, stopping] = [0, false]; // the page may have missed the end of the earlier run
    doing($("start"), "api/start", { strategy: form.strategy.value, guard: form.guard.value, fault: form.fault.value, rate: Number(form.rate.value), units: Number(form.units.value), slow: form.slow.checked });
  });
  let stopping = false; // requests still in flight when the user clicks end later
  $("stop").addEventListener("click", () => { stopping = true; doing($("stop"), "api/stop", {}); });
  $("new-order").addEventListener("click", () => { chosen = 0; doing($("new-order"), "api/hand", { do: "order", who: "" }); });
  const drivers = {};
  for (const who of ["a", "b"]) {
    const name = who.toUpperCase();
    const grab = el("button", { type: "button", click: () => { chosen = 0; doing(grab, "api/hand", { do: "grab", who }); } }, "Grab");
    const write = el("button", { type: "button", click: () => doing(write, "api/hand", { do: "write", who }) }, "Write");
    const says = el("span", { "aria-live": "polite" });
    const bold = el("b", {});
    onLanguage(() => { setText(bold, say("Driver " + name)); setText(grab, say("Grab")); setText(write, say("Write")); });
    drivers[who] = { grab, write, says };
    $("hand").append(el("div", { role: "group", "aria-label": "Driver " + name }, bold, " ", grab, " ", write, " ", says));
  }

  let status = { phase: "starting", drivers: {} }, tiles = new Map(), chosen = 0, shown = 0, seen = "";
  const buttons = () => {
    const ready = status.phase !== "starting";
    $("start").disabled = !ready;
    setText($("start"), say(status.phase === "running" ? "Start again" : "Start"));
    stopping = stopping && status.phase === "running";
    $("stop").disabled = status.phase !== "running" || stopping;
    setText($("stop"), say(stopping ? "Stopping…" : "Stop"));
    $("new-order").disabled = !ready;
    for (const [who, d] of Object.entries(drivers)) {
      const asks = status.drivers[who] === "asks";
      d.grab.disabled = !status.hand || asks;
      d.write.disabled = !asks;
      setText(d.says, asks ? say("is grabbing the order, and stops before its write") : tell(status.drivers[who] || ""));
    }
  };
  // set fills the form with the settings of the current or last run.
  const set = (s) => {
    form.strategy.value = s.strategy;
    guards();
    form.guard.value = s.guard;
    form.fault.value = s.fault;
    form.rate.value = s.rate;
    form.units.value = s.units || 1;
    form.slow.checked = s.slow;
  };
  let opened = false, began = 0, ran = null, earlier = [], listed = ""; // ran is the last known status of the run
  // drawEarlier lists the results of earlier runs, so that users can compare them.
  function drawEarlier() {
    const lines = earlier.map((s) => `${s.settings.strategy}, ${s.settings.guard || say("its own guard")}, ${s.settings.fault === "none" ? say("no fault") : s.settings.fault}, ${s.settings.rate}/s: ${tell(s.answer)}`);
    if (lines.join() === listed) return;
    listed = lines.join();
    $("earlier").replaceChildren(el("h2", {}, say("Earlier runs")), el("ul", { class: "notes" }, ...lines.map((l) => el("li", {}, l))));
  }
  let last = null;
  onLanguage(() => { if (last) { seen = ""; take(last); } });
  function take(t) {
    if (t.began !== began) {
      if (ran) earlier = [ran, ...earlier].slice(0, 5);
      ran = null;
    }
    last = t;
    status = t.status;
    if (status.phase !== "starting" && Object.values(t.outcomes || {}).some(Boolean)) ran = status;
    drawEarlier();
    if (!opened || (t.began !== began && status.phase === "running")) set(status.settings);
    [opened, began] = [true, t.began];
    tiles = new Map(t.tiles.map((x) => [x.id, x]));
    setText($("live-answer"), tell(status.answer));
    $("live-answer").classList.toggle("alarm", status.alarm);
    if (status.error) problem(tell(status.error));
    setText($("strike"), tell(status.fault || ""));
    buttons();
    setText($("hand-order"), status.hand ? say("order {order}: driver A at instance {a}, driver B at instance {b}", { order: status.hand, a: status.instances[0], b: status.instances[1] }) : say("opens an order for the two drivers"));
    drawTiles();
    drawKeys(t.keys || []);
    drawOutcomes(t.outcomes || {});
    follow();
  }

  // This drawing shows the order that the user has selected, or the most interesting order if the
  // user has selected none.
  const pic = picture();
  const said = el("div", { class: "diagram" });
  $("drawing").append(pic.element, said);
  let asking = false, drawnAt = 0;
  function draw(tile, d, now) {
    seen = d ? now : ""; // the lab may have discarded the order
    if (!d) return;
    drawnAt = performance.now();
    setText($("watched"), say("Order {order} ({run}): {result}", { order: tile.id, run: String(d.title).replace(/^Order \d+, /, "").replace(/\bguard /, say("guard") + " "), result: sold(tile) + winners(tile, say("no driver has it")) }));
    const came = list(d.lanes).length > 0;
    if (came) pic.show(d);
    else pic.clear();
    const fresh = came ? notes(d) : el("p", {}, say("No driver has asked for this order yet."));
    if (fresh.textContent !== said.textContent) said.replaceChildren(fresh);
  }
  async function follow() {
    const ids = [...tiles.keys()];
    shown = tiles.has(chosen) ? chosen : tiles.has(status.watch) ? status.watch : shown && tiles.has(shown) ? shown : ids.find((id) => tiles.get(id).events > 0) || ids[0] || 0;
    const tile = tiles.get(shown);
    if (!tile) { setText($("watched"), say("No order is drawn")); pic.clear(); setText(said, say("Press Start, or open an order by hand. A drawing then shows live who waits, holds the lock, reads and writes.")); seen = ""; return; }
    const now = `${shown}/${tile.events}/${tile.rows.length}/${tile.state}`;
    const goesOn = tile.open > 0 && performance.now() - drawnAt > 150;
    if (asking || (now === seen && !goesOn)) return;
    asking = true;
    try {
      draw(tile, await ask("api/orders/" + shown), now);
    } catch {
      seen = "";
    }
    asking = false;
  }

  const boxes = new Map();
  function drawTiles() {
    const focused = $("tiles").contains(document.activeElement);
    for (const [id, b] of boxes) if (!tiles.has(id)) { b.remove(); boxes.delete(id); }
    for (const [id, t] of tiles) {
      let b = boxes.get(id);
      if (!b) {
        b = el("button", { type: "button", tabindex: -1, click: () => { chosen = id; seen = ""; follow(); drawTiles(); } });
        boxes.set(id, b);
        $("tiles").append(b);
      }
      const sign = { double: "✗", won: "✓", open: "·" }[t.state];
      setText(b, `${sign} ${id}${t.by_hand ? " " + say("by hand") : ""}${t.units > 1 ? ` ${t.rows.length}/${t.units}` : ""}`);
      b.className = t.state + (t.by_hand ? " hand" : "");
      b.setAttribute("aria-label", say("order {id}: {y}", { id, y: sold(t) + winners(t, say("open")) }));
      b.setAttribute("aria-pressed", String(id === shown));
    }
    $("tiles").classList.toggle("several", [...tiles.values()].some((t) => t.units > 1));
    const all = [...boxes.values()];
    if (all.length > 0 && !all.some((b) => b.tabIndex === 0)) all[0].tabIndex = 0;
    if (focused && all.length > 0 && !$("tiles").contains(document.activeElement)) all[0].focus(); // the page no longer shows the order that had the focus
  }
  $("tiles").addEventListener("keydown", (e) => {
    const all = [...$("tiles").children], i = all.indexOf(document.activeElement);
    const to = all[{ ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0, End: all.length - 1 }[e.key]];
    if (i < 0 || !to) return;
    e.preventDefault();
    all[i].tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });

  const drawKeys = (keys) => {
    const body = $("keys").tBodies[0];
    const rows = keys.map((k) => [k.server === "redis" ? k.name : `${k.server} ${k.name}`, k.value, k.ttl_ms < 0 ? "∞" : ms(k.ttl_ms)]);
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((r, i) => {
      const row = body.rows[i] || body.appendChild(el("tr", {}, el("td"), el("td"), el("td", { class: "number" })));
      r.forEach((text, c) => setText(row.cells[c], text));
      row.cells[1].title = r[1];
    });
    $("keys").classList.toggle("none", rows.length === 0);
  };
  const drawOutcomes = (o) => {
    const names = ["grabbed", "taken", "busy", "error", "timeout"];
    const dl = $("outcomes");
    if (dl.children.length === 0) dl.append(...names.map((n) => el("div", {}, el("dt", {}, n), el("dd", {}, "0"))));
    names.forEach((n, i) => setText(dl.children[i].firstChild, say(n)));
    names.forEach((n, i) => setText(dl.children[i].lastChild, String(o[n] || 0)));
  };

  // press clicks the button that belongs to a key. It returns false if the button is disabled.
  const press = (button) => (button.disabled ? false : (button.click(), true));
  return {
    tick: take,
    key(k, e) {
      const driver = drivers[k];
      switch (k) {
        case " ": return !e.target.closest("button, a, summary, input, [tabindex='0']") && press(status.phase === "running" ? $("stop") : $("start"));
        case "s": form.slow.click(); return true;
        default: return Boolean(driver) && (status.hand ? press(driver.write.disabled ? driver.grab : driver.write) : press($("new-order")));
      }
    },
  };
}
