// The start panel. It runs a test that shows the bug, explains the result, and runs the fixed
// version.

import { picture } from "./diagram.js";
import { names, onLanguage, say, tell } from "./words.js";

const $ = (id) => document.getElementById(id);
const common = { guard: "", rate: 100, units: 1, slow: false };

// runs describes two runs: one shows the bug, and the other shows the fixed version. isOver returns
// the order to show once the run has shown enough. explains reports whether the order's drawing
// shows the intended effect.
const runs = {
  bug: {
    settings: { ...common, strategy: "setnx", fault: "pause" },
    begins: "Drivers grab orders. A lock in Redis (setnx, with a lease of 1 s) protects each order, and a pause stops one holder just before its write.",
    isOver: (t, seen) => seen.double,
    explains: (d) => d.cause,
  },
  cure: {
    settings: { ...common, strategy: "setnx-fenced", fault: "pause" },
    begins: "The same drivers, the same lock and the same pause. Each grant now has a number, and the database refuses a write with an older number.",
    isOver: (t, seen) => seen.double || (seen.healed && seen.won && seen.struck),
    explains: (d) => d.cause && d.lanes.some((l) => l.rows.some((r) => (r.marks || []).some((m) => m.k === "refused"))),
  },
};

// nothing returns what a run has shown so far: no tiles, and no orders to leave out.
const nothing = () => ({ tiles: new Map(), useless: new Set() });

export function home(choices, ask) {
  const pic = picture(), bug = picture();
  $("home-drawing").append(pic.element);
  $("before-drawing").append(bug.element);
  let before = null; // the result of the buggy run
  let what = () => "", doing = "";
  const speakAgain = () => { $("what").textContent = what(); $("before-what").textContent = before ? before.what() : ""; $("home-doing").textContent = say(doing); };
  onLanguage(speakAgain);
  let run = null, seen = nothing(), ending = false;
  const problem = (text) => { $("home-problem").textContent = text || ""; };

  async function begin(name) {
    [run, seen, ending] = [null, nothing(), false];
    problem();
    $("outcome").hidden = true;
    $("home-strike").textContent = "";
    doing = runs[name].begins;
    speakAgain();
    for (const b of buttons) b.disabled = true;
    try {
      await ask("api/start", runs[name].settings);
      run = name;
    } catch (e) {
      problem(e.message);
      doing = "";
      speakAgain();
    }
  }
  const buttons = [$("show-bug"), $("run-cure")];
  $("show-bug").addEventListener("click", () => begin("bug"));
  $("run-cure").addEventListener("click", () => begin("cure"));

  // end stops the run and shows the order. It first waits for the order's late events. If the order
  // does not show the effect, or the lab has discarded it, the run continues.
  async function end(order) {
    ending = true;
    try {
      let d, explained = false;
      for (let tries = 0; tries < 30 && !explained; tries++) {
        if (tries > 0) await new Promise((next) => setTimeout(next, 100));
        d = await ask("api/orders/" + order);
        if (!d) break;
        explained = runs[run].explains(d);
      }
      if (!d || (!explained && !seen.double)) {
        seen.tiles.delete(order);
        seen.useless.add(order);
        [seen.struck, seen.healed, ending] = [undefined, false, false];
        return;
      }
      await ask("api/stop", {});
      show(order, d);
    } catch (e) {
      problem(e.message);
    }
    run = null;
  }

  function show(order, d) {
    const { rows } = seen.tiles.get(order);
    const twice = rows.length > 1;
    doing = "";
    $("home-strike").textContent = "";
    $("outcome").hidden = false;
    what = () => say(rows.length === 2 ? "Order {order} was grabbed twice: {winners} won." : twice ? "Order {order} was grabbed {n} times: {winners} won." : "Order {order} has one winner: {winners}.", { order, n: rows.length, winners: names(rows) });
    if (run === "bug") before = { what, d };
    speakAgain();
    $("what").classList.toggle("alarm", twice);
    $("what").classList.toggle("good", run === "cure" && !twice);
    pic.show(d);
    $("cure").hidden = $("run-cure").hidden = run !== "bug";
    $("cured").hidden = run !== "cure" || twice;
    $("before").hidden = run !== "cure" || !before;
    if (run === "cure" && before) bug.show(before.d);
    $("what").focus({ preventScroll: true });
  }

  return {
    tick(t) {
      const busy = t.status.phase === "starting" || Boolean(t.status.busy) || Boolean(run);
      for (const b of buttons) b.disabled = busy;
      if (!run || t.status.phase !== "running") return;
      for (const x of t.tiles) if (!seen.useless.has(x.id)) seen.tiles.set(x.id, x);
      if (t.status.fault) [seen.struck, seen.healed] = [t.status.watch, false];
      else if (seen.struck) seen.healed = true;
      $("home-strike").textContent = tell(t.status.fault || "");
      const struck = seen.tiles.get(seen.struck);
      // On a slow machine, a lease may expire even without the pause. In that case, the order does
      // not show the effect of the pause.
      const isDouble = (x) => x && x.state === "double" && x.open === 0;
      const double = isDouble(struck) ? struck : run === "cure" && [...seen.tiles.values()].find(isDouble);
      [seen.double, seen.won] = [double && double.id, struck && struck.state === "won" && struck.open === 0];
      const order = !ending && runs[run].isOver(t, seen);
      if (order) end(order);
    },
  };
}
