// The view that helps to choose a lock. It asks four questions and shows results of the reference
// runs.

import { el } from "./diagram.js";
import { onLanguage, say, tell } from "./words.js";

const $ = (id) => document.getElementById(id);

export function choose(choices, ask) {
  const form = $("questions");
  for (const q of choices.questions) {
    form.append(el("fieldset", {}, el("legend", {}, q.asks), ...q.answers.map((a) => el("label", { class: "check" }, el("input", { type: "radio", name: q.name, value: a.name }), " " + a.text))));
  }
  onLanguage(() => { if (last) show(last); });
  const answers = () => choices.questions.map((q) => form.elements[q.name].value);
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("change", () => {
    if (answers().every(Boolean)) location.hash = ["#choose", ...answers()].join("/");
  });

  let asked = "";
  async function look(path) {
    asked = path;
    $("choose-problem").textContent = "";
    try {
      const v = await ask("api/choose/" + path);
      if (asked === path) show(v);
    } catch (e) {
      $("choose-problem").textContent = e.message;
    }
  }
  return {
    // The address contains the answers, so that users can share them as a link.
    follow(rest) {
      const given = rest.split("/");
      choices.questions.forEach((q, i) => { if (q.answers.some((a) => a.name === given[i])) form.elements[q.name].value = given[i]; });
      if (rest && rest !== asked) look(rest);
    },
  };
}

// code returns a text with the parts in backticks formatted as code.
const code = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
const figure = (x) => (x === null ? "?" : x.toLocaleString("en", { maximumFractionDigits: 2 }));
let last = null;
function show(v) {
  last = v;
  $("choose-answer").textContent = v.options.length > 0 ? say("Take {strategy} with the guard {guard}.", v.options[0]) : tell(v.answer);
  $("options").replaceChildren(...v.options.map((o, i) => {
    const breaks = [[say("grabbed twice under"), o.twice, "second"], [say("no order grabbed twice, but two drivers inside the lock under"), o.inside, ""], [say("an order that no driver can grab any more under"), o.stuck, "fault"]].filter(([, f]) => f.length > 0);
    return el("section", { class: "option", "aria-label": o.strategy },
      el("h2", {}, `${i + 1}. ${o.strategy}`), el("p", {}, o.title),
      o.but ? el("p", { class: "but" }, o.but) : null,
      el("dl", {},
        ...(o.how ? [el("dt", {}, "in your stack"), el("dd", {}, ...code(tell(o.how)))] : []),
        el("dt", {}, "guard"), el("dd", {}, o.guard),
        el("dt", {}, "a request takes"), el("dd", {}, say("{commands} commands of Redis, {statements} statements, on average over winners and losers", { commands: figure(o.commands), statements: figure(o.statements) })),
        el("dt", {}, "the lock alone"), el("dd", {}, o.interval === "?" ? say(o.trips === null && o.guard === "guarded" ? "there is none" : "not measured") : say("{n} round trips", { n: o.interval })),
        el("dt", {}, "what breaks it"), el("dd", {}, ...(breaks.length === 0 ? [say("none of the faults that were tried")] : breaks.map(([what, faults, cls]) => el("p", { class: cls }, `${what} ${faults.join(", ")}`)))),
        el("dt", {}, "measure it yourself"), el("dd", {}, el("code", { class: "again", tabindex: 0 }, o.again))));
  }));
  $("duties").replaceChildren(el("h2", {}, say("What you must still do") + (v.options.length > 0 ? `: ${v.options[0].strategy}` : "")), el("ol", {}, ...v.duties.map((d) => el("li", {}, d.do, d.code.length > 0 ? el("pre", { class: "scroll", tabindex: 0 }, d.code.join("\n")) : null))));
  $("choose-sources").replaceChildren(...v.sources.map((s) => el("li", {}, s)));
}
