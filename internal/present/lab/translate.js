// Translates English texts with texts.json, which contains each text in English, Chinese and
// Japanese. Slots stand for varying parts: {n}, {m} and {k} for numbers, {t} for a time, {s}, {f}
// and {p} for names, {w} for drivers, and other slots for any text. [one|many] allows two forms.
import texts from "./texts.js";

const column = { zh: 1, ja: 2 };
const marks = { ".": "。", ";": "；", ":": "：" };
const number = "-?[\\d,.]*\\d", name = "[^\\s()]+", time = "[\\d.,]+ ?(?:h|m|s|ms|µs)[\\dhmsµ.]*";
const slots = { n: number, m: number, k: number, s: name, f: name, p: name, t: time, w: "driver \\d+(?: and driver \\d+)*" };
const separator = /, (?![^(]*\))| and (?![^(]*\))/;
const neutral = new RegExp(`^(?:${number}|${time}|[\\w./-]+)$`); // numbers, times and names are the same in all languages

const lower = (text) => text.slice(0, 1).toLowerCase() + text.slice(1);
const escaped = (text) => text.replace(/[.*+?^${}()|\\]/g, "\\$&");
const fixed = new Map(texts.map((entry) => [lower(entry[0]), entry]));
const patterns = texts.filter(([en]) => /\{\w\}|\[.*\|/.test(en) && !/\{\w\w+\}/.test(en)).map((entry) => {
  const parts = lower(entry[0]).split(/(\{\w+\}|\[[^\]]*\|[^\]]*\])/);
  const literals = parts.filter((_, i) => i % 2 === 0);
  const expression = parts.map((part, i) => (i % 2 === 0 ? escaped(part) : part[0] === "{" ? `(?<${part.slice(1, -1)}>${slots[part.slice(1, -1)] || ".+"})` : `(?:${part.slice(1, -1)})`));
  return { entry, expression: new RegExp(`^${expression.join("")}$`), literals, weight: literals.join("").length };
}).sort((a, b) => b.weight - a.weight); // the most specific texts first

// template returns the translation of an English text in texts.json, with its slots.
export function template(text, language) {
  const at = column[language], entry = fixed.get(lower(text)), core = !entry && marks[text.slice(-1)] && fixed.get(lower(text.slice(0, -1)));
  return !at ? undefined : entry ? entry[at] : core ? core[at] + marks[text.slice(-1)] : undefined;
}

// translate returns a text in another language, or undefined without a translation. It translates
// each part of a sentence or list separately.
export function translate(text, language) {
  const again = (t) => translate(t, language);
  const clause = (t) => {
    const exact = template(t, language);
    if (exact !== undefined) return exact;
    for (const { entry, expression, literals } of patterns) {
      const found = literals.every((part) => t.includes(part) || lower(t).includes(part)) && lower(t).match(expression);
      if (found) return entry[column[language]].replace(/\{(\w+)\}/g, (_, slot) => again(found.groups[slot]) ?? namesOf(found.groups[slot]));
    }
  };
  const mark = marks[text.slice(-1)], whole = clause(text) ?? (mark && addMark(clause(text.slice(0, -1)), mark));
  if (whole !== undefined) return whole;
  const [, before, rest] = text.match(/^([A-Z] |: )(.+)$/) || []; // the actor of a step, or the text after a name
  if (before && again(rest) !== undefined) return before + again(rest);
  for (const [by, join] of [[/(?<=\.) /, ""], [/(?<=;) /, ""], [/(?<=^(?:[^:]|:(?! ))*:) /, ""], [separator, "、"]]) {
    const parts = text.split(by), all = parts.length > 1 ? parts.map(again) : [];
    if (!all.some((p) => p !== undefined)) continue;
    if (join === "") return parts.map((p, i) => all[i] ?? p + " ").join("").trim();
    if (all.every((p, i) => p !== undefined || neutral.test(parts[i]))) return all.map((p, i) => p ?? parts[i]).join(join);
  }
}
// namesOf translates a list of names. It returns any other text unchanged.
const namesOf = (list) => {
  const parts = list.split(separator);
  return parts.every((part) => neutral.test(part)) ? parts.join("、") : list;
};
const addMark = (text, mark) => (text === undefined ? undefined : text + mark);
