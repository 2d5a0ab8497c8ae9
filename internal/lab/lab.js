// The page of the lab: its views, and how it asks.

import { live } from "./live.js";
import { schedules } from "./schedules.js";

const token = document.querySelector("meta[name=lab-token]").content;

// ask makes one call; what is wrong is thrown as an error that can be shown.
export async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(path, body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json", "X-Lab-Token": token }, body: JSON.stringify(body) });
  } catch {
    throw new Error("The lab does not answer: was it ended? Start it again with: loadgen lab");
  }
  const says = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(says.error || `The lab answers ${answer.status}.`);
  return says;
}

const views = ["live", "schedules"];
function show() {
  const view = views.includes(location.hash.slice(1)) ? location.hash.slice(1) : "live";
  for (const v of views) {
    document.getElementById(v).hidden = v !== view;
    const link = document.querySelector(`nav a[href="#${v}"]`);
    if (v === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
addEventListener("hashchange", show);
show();

const menu = await ask("api/menu").catch((e) => {
  document.getElementById("problem").textContent = e.message;
});
if (menu) {
  document.getElementById("stack").textContent = `${menu.stack} stack`;
  live(menu, ask);
  if (menu.explored.length > 0) schedules(menu, ask);
  else document.querySelector('nav a[href="#schedules"]').remove();
}
