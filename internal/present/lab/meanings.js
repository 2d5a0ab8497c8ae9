// Explains words in place. A heading, label or name that "loadgen explain" knows shows its meaning
// on hover, touch and keyboard focus.

import { el } from "./diagram.js";
import { english } from "./words.js";

// meanings explains the words below root, including those that are added later.
export function meanings(root, words) {
  const bubble = el("div", { id: "meaning", role: "tooltip", hidden: true });
  document.body.append(bubble);
  const places = "th, dt, label";
  const meaning = (e) => {
    const first = document.createTreeWalker(e, NodeFilter.SHOW_TEXT).nextNode(), text = first ? english(first) : "";
    return words[text];
  };
  const explain = (e) => {
    if (e.title || e.dataset.meaning || e.querySelector("[type=radio], [type=checkbox]")) return;
    const text = meaning(e);
    if (!text) return;
    e.dataset.meaning = text;
    if (!e.querySelector("input, select")) e.tabIndex = 0;
  };
  const all = (node) => {
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    if (node.matches(places)) explain(node);
    for (const e of node.querySelectorAll(places)) explain(e);
  };
  all(root);
  new MutationObserver((changes) => { for (const c of changes) for (const n of c.addedNodes) all(n); }).observe(root, { childList: true, subtree: true });
  const show = (e) => {
    const at = e.target.closest && e.target.closest("[data-meaning]");
    bubble.hidden = !at;
    if (!at) return;
    bubble.textContent = at.dataset.meaning;
    at.setAttribute("aria-describedby", "meaning");
    const box = at.getBoundingClientRect(), below = box.bottom + 4 + bubble.offsetHeight < innerHeight;
    bubble.style.left = `${Math.max(4, Math.min(box.left, innerWidth - bubble.offsetWidth - 4))}px`;
    bubble.style.top = `${below ? box.bottom + 4 : box.top - bubble.offsetHeight - 4}px`;
  };
  addEventListener("pointerover", show);
  addEventListener("focusin", show);
  addEventListener("keydown", (e) => { if (e.key === "Escape") bubble.hidden = true; });
  addEventListener("scroll", () => { bubble.hidden = true; }, true);
}
