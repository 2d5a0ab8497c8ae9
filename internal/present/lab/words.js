// Translates the page into the selected language. English texts are translated as soon as they
// appear. Workshop texts and causes in drawings already come in that language.

import { redraw } from "./diagram.js";
import { keep, kept } from "./kept.js";
import { template, translate } from "./translate.js";

export const languages = { en: "English", zh: "中文", ja: "日本語" };

const stored = "lab-language";
const ofBrowser = [...(navigator.languages || [])].map((l) => l.slice(0, 2)).find((l) => languages[l]);
let language = languages[kept(stored)] ? kept(stored) : ofBrowser || "en";
const listeners = [];

export const spoken = () => language;

// say returns a text in the page's language, with its slots filled in. Without a translation, it
// falls back to English.
export const say = (text, slots = {}) => (template(text, language) || text).replace(/\{(\w+)\}/g, (slot, name) => (name in slots ? String(slots[name]) : slot));

// tell translates a text or sentence from a result into the page's language.
export const tell = (text) => (language !== "en" && /[a-z]{2}/i.test(text) && !/[\u3040-\u9fff]/.test(text) && translate(text, language)) || text;

// english returns the English text of a node, even after a translation.
export const english = (node) => (translated.get(node)?.to === node.data.trim() ? translated.get(node).english : node.data.trim());

const translated = new WeakMap(); // the English text of each node and attribute, and its translation
const attributes = ["aria-label", "title", "data-none", "data-label"]; // style sheets display the last two

// put translates a text and calls set with the result. It remembers the English text under key.
function put(key, shown, set) {
  const before = translated.get(key), english = before && before.to === shown ? before.english : shown, to = tell(english);
  if (to === shown) return;
  translated.set(key, { english, to });
  set(to);
}

// translateAll translates all texts and labels below root, except code.
function translateAll(root) {
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (n) => (/^(code|pre|script|style|textarea)$/i.test(n.nodeName) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  for (let n = root; n; n = walk.nextNode()) {
    if (n.nodeType === Node.TEXT_NODE) {
      const shown = n.data.trim();
      if (shown && !n.parentElement?.closest("code, pre, script, style, textarea")) put(n, shown, (to) => { n.data = n.data.replace(shown, () => to); });
    } else if (n.nodeType === Node.ELEMENT_NODE) {
      for (const a of attributes) if (n.hasAttribute(a)) put(n.getAttributeNode(a), n.getAttribute(a), (to) => n.setAttribute(a, to));
    }
  }
}

// names lists the drivers in ledger rows, such as "driver 3 (8004)", in the page's language.
export function names(rows) {
  const all = rows.map((r) => (r.startsWith("driver ") ? say("driver {n}", { n: r.slice(7) }) : r));
  return all.length < 2 ? all.join("") : say("{list} and {last}", { list: all.slice(0, -1).join(", "), last: all.at(-1) });
}

// onLanguage calls f now, and again after each change of the language.
export function onLanguage(f) {
  listeners.push(f);
  f();
}

export function chooseLanguage(next) {
  language = next;
  keep(stored, next);
  document.documentElement.lang = next;
  redraw(document.body);
  for (const f of listeners) f();
}

document.documentElement.lang = language;
onLanguage(() => translateAll(document.body));
new MutationObserver((changes) => { for (const c of changes) for (const n of c.type === "childList" ? c.addedNodes : [c.target]) translateAll(n); })
  .observe(document.body, { childList: true, subtree: true, characterData: true, attributeFilter: attributes });
