// The schedules view. It searches for schedules that break a lock, and steps through them.

import { el, figure } from "./diagram.js";
import { say } from "./words.js";

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
    $("schedules-answer").textContent = say("Searching the schedules of {strategy}: at most 20 seconds.", { strategy: form.strategy.value });
    $("found").replaceChildren();
    try {
      show(await ask("api/explore", { strategy: form.strategy.value, actors: Number(form.actors.value), faults }));
    } catch (problem) {
      $("schedules-answer").textContent = say("Nothing was searched.");
      $("search-problem").textContent = problem.message;
    }
    $("explore").disabled = false;
  });
  return {
    tick({ status }) {
      $("explore").disabled = status.phase === "starting" || Boolean(status.busy);
      $("doing").textContent = !status.busy || /Schedules/.test(status.busy) ? "" : `Not now: ${status.busy} is in progress.`;
    },
  };
}

function show(found) {
  $("schedules-answer").textContent = found.answer;
  for (const f of found.failures) {
    const section = el("section", {}, el("h2", {}, f.title), el("ul", {}, ...f.lines.map((l) => el("li", {}, l))));
    if (f.drawing) section.append(figure(f.drawing, { caption: false }));
    $("found").append(section);
  }
  $("found").append(el("ul", { class: "notes" }, ...found.searched.map((l) => el("li", {}, l))));
  const stepper = $("found").querySelector(".stepper");
  if (stepper) stepper.focus();
}
