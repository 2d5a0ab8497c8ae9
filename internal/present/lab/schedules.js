// The view of schedules. It searches for failures and steps through them.

import { el, figure } from "./diagram.js";

const $ = (id) => document.getElementById(id);

export function schedules(choices, ask) {
  const form = $("search");
  form.strategy.append(...choices.explored.map((s) => el("option", { value: s, selected: s === "setnx" }, s)));
  $("searched").append(...choices.searched.map((f) => el("label", { class: "check", title: f.about },
    el("input", { type: "checkbox", name: "fault", value: f.name, checked: ["slow", "pause", "crash"].includes(f.name) }), " " + f.name)));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const faults = [...form.querySelectorAll("[name=fault]:checked")].map((i) => i.value);
    $("explore").disabled = true;
    $("search-problem").textContent = "";
    $("schedules-answer").textContent = `Searching the schedules of ${form.strategy.value}: at most 20 seconds.`;
    $("found").replaceChildren();
    try {
      show(await ask("api/explore", { strategy: form.strategy.value, actors: Number(form.actors.value), faults }), choices, ask);
    } catch (problem) {
      $("schedules-answer").textContent = "Nothing was searched.";
      $("search-problem").textContent = problem.message;
    }
    $("explore").disabled = false;
  });
  return {
    key(k) {
      const run = k === "r" && $("found").querySelector(".on-servers");
      if (!run || run.disabled) return false;
      run.click();
      return true;
    },
    tick({ status }) {
      $("explore").disabled = status.phase === "starting" || Boolean(status.busy);
      for (const b of $("found").querySelectorAll(".on-servers")) b.disabled = Boolean(status.busy);
      $("doing").textContent = !status.busy ? "" : /Schedules/.test(status.busy) ? status.doing || "" : `Not now: ${status.busy} is under way.`;
    },
  };
}

function show(found, choices, ask) {
  $("schedules-answer").textContent = found.answer;
  for (const f of found.failures) {
    const section = el("section", {}, el("h2", {}, f.title), el("ul", {}, ...f.lines.map((l) => el("li", {}, l))));
    if (f.drawing) section.append(drawn(f, choices, ask));
    $("found").append(section);
  }
  $("found").append(el("ul", { class: "notes" }, ...found.searched.map((l) => el("li", {}, l))));
  const stepper = $("found").querySelector(".stepper");
  if (stepper) stepper.focus();
}

// drawn shows a schedule in virtual time, and below it the result on real servers. Both
// always show the same step.
function drawn(f, choices, ask) {
  let real = null, following = false;
  const follow = (other, i) => { // following prevents an endless exchange between the two
    if (!other || following) return;
    following = true;
    other.go(i);
    following = false;
  };
  const virtual = figure(f.drawing, { caption: false, stepped: (i) => follow(real, i) });
  const box = el("div", {}, virtual);
  if (!choices.replays) return box;
  const says = el("div", { "aria-live": "polite" });
  const run = el("button", { type: "button", class: "on-servers", click: async () => {
    says.replaceChildren(el("p", {}, "Forcing it on real servers: a few seconds, of which most is for starting them."));
    real = null;
    try {
      const r = await ask("api/replay", { schedule: f.schedule });
      real = figure(r.drawing, { at: r.drawing.steps.length - 1, stepped: (i) => follow(virtual, i) });
      says.replaceChildren(...r.says.map((text, i) => el("p", { class: i === 0 ? "answer " + (r.violated ? "alarm" : "") : "" }, text)), real);
    } catch (e) {
      says.replaceChildren(el("p", { class: "problem", role: "alert" }, e.message));
    }
  } }, "Run on real servers");
  box.append(el("p", {}, run, " ", el("span", { class: "notes" }, "loadgen run -schedule, with servers of its own")), says);
  return box;
}
