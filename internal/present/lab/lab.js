// The page of the lab: its views, the keys that work in all views, and requests to the lab.

import { el } from "./diagram.js";
import { choose } from "./choose.js";
import { home } from "./home.js";
import { keep, kept } from "./kept.js";
import { live } from "./live.js";
import { meanings } from "./meanings.js";
import { schedules } from "./schedules.js";
import { chooseLanguage, languages, onLanguage, say, spoken } from "./words.js";
import { workshop } from "./workshop.js";

// views lists the start panel and the other views, in navigation order. The keys 0 to 4 select
// them. Each view is the section with that id in index.html.
//
// begin fills the section once the lab has responded. It may return an object with three functions.
// follow(rest) runs when the view is shown, with the rest of the address. tick(t) runs after every
// change. key(k) returns true if it has handled a key.
const views = [
  { id: "home", name: "Start", begin: home },
  { id: "live", name: "Live", about: "Send drivers to orders, inject a fault into a holder, and watch. Or act as the drivers yourself.", begin: live },
  { id: "schedules", name: "Schedules", about: "Search all sequences of steps for the shortest one that breaks a lock.", begin: schedules },
  { id: "workshop", name: "Workshop", about: "Twelve exercises: predict, run, look, and answer.", begin: workshop },
  { id: "choose", name: "Choose", about: "Answer questions about your service, and get a lock that fits.", begin: choose },
];

const $ = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=lab-token]").content;

// ask sends a request and returns the response. If the request fails, it throws an error with a
// message for the user.
export async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(path, body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json", "X-Lab-Token": token }, body: JSON.stringify(body) });
  } catch {
    throw new Error("The lab does not answer. If it has ended, start it again with: loadgen lab");
  }
  const says = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(says.error || `The lab answers with HTTP ${answer.status}.`);
  return says;
}

// address splits the part of the page's address after "#" into the view name and the rest.
function address() {
  const [view, ...rest] = location.hash.slice(1).split("/");
  return [shown.find((v) => v.id === view) || shown[0], rest.join("/")];
}
let shown = [views[0]];
function show() {
  const [view, rest] = address();
  for (const v of shown) {
    $(v.id).hidden = v !== view;
    if (v === view) v.link.setAttribute("aria-current", "page");
    else v.link.removeAttribute("aria-current");
  }
  document.title = `${say(view.name)} – Grab Lab`;
  if (view.part && view.part.follow) view.part.follow(rest);
}
function navigate(all) {
  shown = all;
  for (const [i, v] of all.entries()) v.link = el("a", { href: "#" + v.id, "aria-keyshortcuts": String(i) }, say(v.name));
  $("views").replaceChildren(...all.map((v) => v.link));
  $("cards").replaceChildren(...all.slice(1).map((v) => el("a", { href: "#" + v.id }, el("b", {}, say(v.name)), el("span", {}, say(v.about)))));
}

// Users can disable the single-key commands, because voice control and other assistive devices may
// type these keys by mistake.
const letters = $("letters"), stored = "lab-letters";
letters.checked = kept(stored) !== "off";
letters.addEventListener("change", () => keep(stored, letters.checked ? "on" : "off"));
$("open-keys").addEventListener("click", () => $("key-list").showModal());
const isTyping = (e) => e.target.closest("input:not([type=checkbox]):not([type=radio]), select, textarea, [contenteditable]");
addEventListener("keydown", (e) => {
  if (e.key.length !== 1 || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || !letters.checked || isTyping(e) || $("key-list").open) return;
  const [view] = address();
  const to = shown[e.key.trim() && Number(e.key)];
  if (e.key === "?") $("key-list").showModal();
  else if (to) {
    location.hash = "#" + to.id;
    show(); // show the view before the browser's event, so that it can get the focus
    $(to.id).focus({ preventScroll: true });
    scrollTo(0, 0);
  } else if (!view.part || !view.part.key || !view.part.key(e.key, e)) return;
  e.preventDefault();
});

$("language").append(...Object.entries(languages).map(([name, text]) => el("option", { value: name, lang: name }, text)));
$("language").addEventListener("change", () => chooseLanguage($("language").value));
let stack = () => "";
onLanguage(() => {
  $("language").value = spoken();
  $("stack").textContent = stack();
  navigate(shown);
  show();
});
addEventListener("hashchange", show);
const choices = await ask("api/choices").catch((e) => { $("connection").textContent = e.message; });
if (choices) {
  stack = () => say("{kind} stack", { kind: choices.stack });
  $("stack").textContent = stack();
  navigate(views);
  for (const v of shown) v.part = v.begin(choices, ask);
  meanings(document.querySelector("main"), choices.words || {});
  show();
  listen();
}

// listen opens the stream of changes. Browsers allow only six connections per server, so a hidden
// page closes its stream. A page that becomes visible again gets the whole state.
function listen() {
  let source, away = 0;
  const open = () => {
    source = new EventSource("api/events");
    source.addEventListener("error", () => {
      away = away || performance.now();
      document.body.classList.add("away");
      $("connection").textContent = "The lab does not answer. If it has ended, start it again with: loadgen lab. The page below shows the last known state.";
    });
    source.addEventListener("open", () => {
      document.body.classList.remove("away");
      $("connection").textContent = away ? `Reconnected after ${((performance.now() - away) / 1000).toFixed(1)} s: the page is up to date again.` : "";
      if (away) setTimeout(() => { $("connection").textContent = away ? $("connection").textContent : ""; }, 5000);
      away = 0;
    });
    source.addEventListener("tick", (e) => {
      const t = JSON.parse(e.data);
      $("stack").textContent = `${stack()}${t.lost > 0 ? `; ${t.lost} times events could not be read` : ""}`;
      for (const v of shown) if (v.part && v.part.tick) v.part.tick(t);
    });
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) open();
  });
  open();
}
