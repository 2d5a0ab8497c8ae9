// The workshop view, with the same exercises as "loadgen workshop". The lab provides the questions,
// runs the commands and judges the answers. The page stores only the language.

import { el, figure } from "./diagram.js";
import { keep, kept } from "./kept.js";
import { onLanguage, spoken } from "./words.js";

const POLL = 150;

// located returns the errors in a message that name a line in the user's file. They come from the Go
// compiler or from the schedule parser.
export const located = (message) => [...String(message || "").matchAll(/(?:\S*\bmy\.go:(\d+)(?::\d+)?|\bline (\d+)): (.*)$/gm)]
  .map(([, go, schedule, text]) => ({ line: Number(go || schedule), text: text.trim() }));

export function workshop(choices, ask) {
  const section = document.getElementById("workshop");
  let lang = spoken();
  let room = null, view = null, number = 0, job = null, loads = 0, newest = null, polling = 0, drawn = 0, shown = 0, busy = false;

  const say = (key, slots) => String(room && room.labels[key] || "").replace(/\{([\w.-]+)\}/g, (slot, name) => (slots && name in slots ? String(slots[name]) : slot));
  const page = (key, slots) => say("page." + key, slots);

  // These elements stay when the exercise changes.
  const answer = el("p", { id: "workshop-answer", class: "answer", "aria-live": "polite" }, "…");
  const problem = el("p", { id: "workshop-problem", class: "problem", role: "alert" });
  const said = el("p", { class: "hidden", "aria-live": "polite" });
  const all = el("nav", { id: "exercises" });
  const exercise = el("article", { id: "exercise" });
  section.append(el("div", { class: "top" }, answer), all, problem, said, exercise);

  // act sends a request that changes something, and shows an error if the request fails.
  async function act(path, body) {
    if (busy) return false;
    busy = true;
    let done = true;
    try {
      problem.textContent = "";
      await ask("api/workshop/" + path, body);
    } catch (e) {
      problem.textContent = e.message;
      done = false;
    }
    busy = false;
    return done;
  }

  // load shows the current state of the exercise. Several calls at once all return only after the
  // newest state is shown.
  function load() {
    newest = loadAs(++loads);
    return newest;
  }

  async function loadAs(turn) {
    let next;
    try {
      const q = "?lang=" + lang;
      const newRoom = await ask("api/workshop" + q);
      if (!number) number = newRoom.next || 1;
      next = [newRoom, await ask(`api/workshop/${number}${q}`)];
    } catch (e) {
      if (turn === loads) problem.textContent = e.message;
      return;
    }
    if (turn !== loads) return newest; // a newer load has started in the meantime
    [room, view] = next;
    job = room.job;
    show();
    if (job && job.running) poll();
  }

  // poll watches the running commands until they end.
  function poll() {
    if (polling) return;
    polling = setInterval(async () => {
      let now;
      try {
        now = await ask("api/workshop/job");
      } catch (e) {
        problem.textContent = e.message;
        return;
      }
      if (!polling) return;
      job = now;
      if (job && job.running) return showJob();
      clearInterval(polling);
      polling = 0;
      drawn = 0;
      const here = job && job.number === number;
      await load();
      if (here) ended();
    }, POLL);
  }

  // begin starts commands of the exercise. They may end before the first poll.
  async function begin(path, body) {
    drawn = 0;
    if (!await act(path, body)) return;
    await load();
    if (job && job.number === number && !job.running) ended();
  }

  // ended tells screen readers that the commands have ended, and moves the focus to where the user
  // continues.
  function ended() {
    if (job.stopped || job.problem) {
      const status = exercise.querySelector(job.checks ? "#w-checking" : "#w-status");
      if (status) said.textContent = status.textContent;
      return;
    }
    if (job.checks) {
      said.textContent = view.questions.filter((q) => q.said).map((q) => `${page(q.right ? "right" : "wrong")} ${q.said}`).join(" ");
      if (view.moral) exercise.querySelector("#w-moral").focus();
      return;
    }
    said.textContent = `${page(view.right ? "right" : "wrong")} ${view.why}`;
    exercise.querySelector("#w-look").focus();
  }

  function show() {
    const active = document.activeElement, focused = active && section.contains(active) ? active.id : "";
    const caret = focused && active.type === "text" ? [active.selectionStart, active.selectionEnd] : null;
    const typed = shown === number ? [...exercise.querySelectorAll("input, .question select")].filter((i) => !i.disabled && (i.type !== "radio" || i.checked)) : [];
    shown = number;
    const next = room.exercises.find((e) => e.number === room.next);
    const text = next ? page("score", { points: room.points, of: room.of, next: `${next.number} ${next.title}` }) : page("finished", { points: room.points, of: room.of });
    if (answer.textContent !== text) answer.textContent = text;
    all.setAttribute("aria-label", page("exercises"));
    all.replaceChildren(el("ol", {}, ...room.exercises.map((e) => el("li", {},
      el("a", {
        id: "w-to-" + e.number, href: "#workshop/" + e.number, class: e.state, "aria-current": e.number === number ? "true" : false,
        "aria-label": `${say("exercise")} ${e.number}: ${e.title}, ${page("part", { points: e.points, of: e.of })}${e.state === "todo" ? "" : ", " + say(e.state)}`,
      }, el("b", {}, String(e.number)), el("span", { class: "title" }, e.title), el("span", { class: "points" }, `${e.state === "done" ? "✓ " : ""}${e.points}/${e.of}`))))));
    exercise.setAttribute("aria-label", `${view.number} ${view.title}`);
    exercise.replaceChildren(
      el("h2", { id: "w-exercise-title", tabindex: -1 }, `${view.number}  ${view.title}`),
      el("p", { class: "notes" }, say("worth", { minutes: view.minutes, of: view.of })),
      ...part("predict", predicting()), ...(view.commands.length > 0 ? part("run", running()) : []), ...part("look", looking()), ...part("reply", answering()), ...part("moral", moral()));
    for (const was of typed) { // texts that were typed but not sent
      const i = document.getElementById(was.id);
      if (!i || i.disabled) continue;
      if (i.type === "radio") i.click();
      else i.value = was.value;
    }
    showJob();
    for (const e of exercise.querySelectorAll(".editor")) e.dispatchEvent(new Event("shown"));
    const again = focused && document.getElementById(focused);
    if (again && !again.disabled) {
      again.focus({ preventScroll: true });
      if (caret && again.type === "text") again.setSelectionRange(...caret);
    } else if (focused) exercise.querySelector("#w-exercise-title").focus({ preventScroll: true });
  }
  const part = (name, contents) => [el("h3", { id: "w-" + name, tabindex: -1 }, page(name)), el("div", { class: "part" }, ...contents)];
  const later = (key) => [el("p", { class: "notes" }, page(key))];
  const unseen = () => [el("p", { class: "notes" }, view.commands.length > 0 ? page("afterrun") : page("afterprediction"))]; // exercise 12 has nothing to run

  function predicting() {
    const lock = el("button", { type: "submit", id: "w-lock", class: "main", disabled: true }, page("lock"));
    const options = view.options.map((text, i) => {
      const letter = String.fromCharCode(97 + i);
      const radio = el("input", { type: "radio", name: "option", id: "w-option-" + letter, value: letter, checked: view.predicted === letter, disabled: Boolean(view.predicted), change: () => { lock.disabled = false; } });
      return el("label", { class: "prediction", for: "w-option-" + letter }, radio, el("b", {}, letter), el("span", {}, text));
    });
    const form = el("form", {
      submit: async (e) => {
        e.preventDefault();
        const chosen = form.querySelector("[name=option]:checked");
        if (!chosen || !await act(`${number}/predict`, { lang, letter: chosen.value })) return;
        await load();
        const go = exercise.querySelector("#w-start");
        (go || exercise.querySelector("#w-look")).focus();
      },
    }, el("fieldset", {}, el("legend", {}, say("predict")), ...options), view.predicted ? el("p", { class: "locked" }, page("locked", { letter: view.predicted })) : lock);
    return [el("p", { class: "ask" }, view.ask), el("p", { class: "words" }, view.words), form];
  }

  // copy returns a click handler that copies a text. If the browser forbids that, the handler
  // selects the text.
  const copy = (text, button) => async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = page("copied");
    } catch { // if the clipboard is not allowed, select the text so that the user can copy it
      getSelection().selectAllChildren(button.previousElementSibling);
    }
  };
  function running() {
    const parts = [];
    parts.push(el("ol", { class: "commands" }, ...view.commands.map((c, i) => {
      const button = el("button", { type: "button", id: "w-copy-" + i, disabled: c.includes("…"), "aria-label": `${page("copy")}: ${c}` }, page("copy"));
      button.addEventListener("click", copy(c, button));
      return el("li", {}, el("code", { tabindex: 0 }, c), button);
    })));
    parts.push(el("p", {},
      el("button", { type: "button", id: "w-start", class: "main", disabled: !view.predicted, click: run }, view.ran ? page("again") : page("run")), " ",
      el("button", { type: "button", id: "w-stop", class: "stop", click: stop }, page("stop")), " ",
      view.predicted ? undefined : el("span", { class: "notes" }, page("first"))));
    return [...parts, ...outcome("w-status", "w-output")];
  }
  const stop = () => act("stop", {});

  const outcome = (status, output) => [
    el("p", { id: status, class: "status" }, el("span", { "aria-live": "polite" }), " ", el("span", {})),
    el("pre", { id: output, class: "output", tabindex: 0, role: "region", "aria-label": page("printed") }),
  ];
  async function run() {
    await begin(`${number}/run`, { lang });
    const end = exercise.querySelector("#w-stop");
    if (!end.disabled) end.focus();
  }

  // showJob updates only the running commands' status. If the commands check an answer, the status
  // appears below the answers. Otherwise, it appears below the commands.
  function showJob() {
    const goes = Boolean(job && job.running), here = Boolean(job && job.number === number);
    let text = "";
    if (goes) {
      text = job.checks ? page("checking", job) : page("running", { number: job.number, step: Math.max(1, job.step), steps: Math.max(job.of, job.step) });
      if (here && job.checks && view.own) text += " " + say("building");
    } else if (here && job.stopped) text = page("stopped");
    else if (here && job.problem && located(job.problem).length === 0) text = page("failed", job);
    for (const [status, output, checks] of [["#w-status", "#w-output", false], ["#w-checking", "#w-checked", true]]) {
      const line = exercise.querySelector(status);
      if (!line) continue;
      const mine = Boolean(job) && job.checks === checks && (here || goes), own = mine && here;
      const [what, howLong] = line.children;
      const says = mine || (goes && !here && !checks) ? text : "";
      if (what.textContent !== says) what.textContent = says;
      howLong.textContent = mine && goes ? `${Math.floor(job.seconds)} s` : "";
      line.classList.toggle("problem", own && !goes && Boolean(job.problem));
      const refused = checks && !goes && view.questions.some((q) => q.refused); // the editor shows these errors next to their lines
      const fresh = own && job.printed && !refused && (checks || goes || job.problem || job.stopped);
      const printed = fresh ? job.printed : checks ? "" : view.printed || "";
      const pre = exercise.querySelector(output);
      pre.hidden = printed === "" && (checks || !view.predicted);
      if (pre.textContent === printed) continue;
      pre.textContent = printed;
      pre.scrollTop = goes ? pre.scrollHeight : 0;
    }
    for (const b of exercise.querySelectorAll(".stop")) b.disabled = !goes;
    for (const id of ["start", "check", "hint"]) {
      const b = exercise.querySelector("#w-" + id);
      if (b) b.disabled = goes || (id === "start" && !view.predicted);
    }
  }

  const sign = (right) => [el("b", { "aria-hidden": "true" }, right ? "✓ " : "✗ "), el("span", { class: "hidden" }, page(right ? "right" : "wrong") + " ")];

  function looking() {
    if (!view.ran) return unseen();
    const parts = [el("p", { class: view.right ? "right" : "wrong" }, ...sign(view.right), view.why), el("p", { class: "ask" }, el("b", {}, say("look") + " "), view.look)];
    const place = el("div", { lang: "en" });
    const draw = () => place.replaceChildren(figure(view.drawings[drawn], { caption: view.drawings.length === 1 }));
    if (drawn >= view.drawings.length) drawn = 0;
    if (view.drawings.length > 1) {
      const select = el("select", { id: "w-drawn", change: () => { drawn = select.selectedIndex; draw(); } }, ...view.drawings.map((d, i) => el("option", { selected: i === drawn }, d.handed ? page("handed", d) : d.title)));
      parts.push(el("p", {}, el("label", {}, page("drawn") + " ", select)));
    }
    if (view.drawings.length > 0) draw();
    else if (view.commands.length > 0) place.append(el("p", { class: "notes", lang }, page("undrawn")));
    return [...parts, place];
  }

  // answering shows the questions. Users may leave a question empty and answer it later.
  function answering() {
    if (!view.ran) return unseen();
    const fields = view.questions.map(question);
    const hints = el("ul", { class: "hints" }, ...view.hints.map((h) => el("li", {}, h)));
    const form = el("form", {
      class: "questions",
      submit: async (e) => {
        e.preventDefault();
        let answers = fields.map((f) => f.words(false));
        if (answers.every((words) => words.length === 0)) answers = fields.map((f) => f.words(true));
        if (answers.every((words) => words.length === 0)) {
          problem.textContent = page("nothing");
          return;
        }
        const file = fields.find((f) => f.text);
        await begin(`${number}/answer`, { lang, answers, text: file ? file.text() : "" });
      },
    }, ...fields.map((f) => f.element));
    if (!view.moral) {
      form.append(el("p", {}, el("button", { type: "submit", id: "w-check", class: "main" }, page("check")), " ",
        el("button", { type: "button", class: "stop", click: stop }, page("stop")), " ",
        view.more ? el("button", { type: "button", id: "w-hint", click: async () => { if (await act(`${number}/hint`, { lang })) await load(); } }, page("hint")) : undefined));
      if (view.questions.some((q) => q.said && !q.right)) form.append(el("p", { class: "notes" }, say("again")));
    }
    return [form, hints, ...outcome("w-checking", "w-checked")];
  }

  function question(q, i) {
    const id = "w-q" + (i + 1);
    const element = el("div", { class: "question", role: "group", "aria-labelledby": id + "-ask" }, el("p", { id: id + "-ask", class: "ask" }, q.ask));
    const word = (choice) => page(choice) || choice;
    let words;
    const f = { element };
    if (q.file) {
      const e = editor(id, q);
      element.append(e.element);
      f.text = e.text;
      words = (all) => (all || e.text() !== q.begin ? ["file"] : []);
    } else if (q.fields.length > 0) {
      const selects = q.fields.map((name, k) => el("label", {}, name,
        el("select", { id: `${id}-${k}`, disabled: q.right }, el("option", { value: "" }, "?"), ...q.choices.map((c) => el("option", { value: c, selected: q.given[k] === c }, word(c))))));
      element.append(el("div", { class: "fields" }, ...selects));
      words = () => {
        const given = selects.map((l) => l.lastChild.value);
        return given.every((w) => w === "") ? [] : given;
      };
    } else if (q.choices.length > 0) {
      const radios = q.choices.map((c, k) => el("label", { class: "choice" }, el("input", { type: "radio", name: id, id: `${id}-${k}`, value: c, disabled: q.right, checked: q.given[0] === c }), " " + word(c)));
      element.append(el("div", { class: "choices" }, ...radios));
      words = () => radios.map((l) => l.firstChild).filter((r) => r.checked).map((r) => r.value);
    } else {
      const input = el("input", { type: "text", inputmode: "decimal", autocomplete: "off", id: id + "-0", disabled: q.right, value: q.given[0], "aria-labelledby": id + "-ask" });
      element.append(input);
      words = () => (input.value.trim() === "" ? [] : [input.value.trim()]);
    }
    f.words = (all) => (q.right ? [] : words(all));
    if (q.said) element.append(el("p", { class: q.right ? "right" : "wrong" }, ...sign(q.right), q.said));
    return f;
  }

  // editor returns a text editor with line numbers. It marks lines with errors and lists the errors
  // below the text.
  function editor(id, q) {
    const draft = `lab-draft-${number}`;
    const LINE = 20, TAB = 4;
    const first = kept(draft) ?? q.text ?? "";
    const area = el("textarea", { id: id + "-text", "aria-label": page("file"), wrap: "off", spellcheck: "false", autocapitalize: "off", autocomplete: "off", disabled: q.right, rows: Math.min(36, first.split("\n").length + 1) });
    area.value = first;
    const gutter = el("div", { class: "gutter", "aria-hidden": "true" }), marks = el("div", { class: "marks", "aria-hidden": "true" });
    const failed = job && job.number === number && !job.running ? located(job.problem) : [];
    const wrong = failed.length > 0 ? failed : located(q.refused);
    const numbers = el("div", {}), flags = el("div", {});
    gutter.append(numbers);
    marks.append(flags);
    const scrolled = () => {
      numbers.style.transform = `translateY(${-area.scrollTop}px)`;
      flags.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`;
    };
    const numbered = () => {
      const lines = area.value.split("\n");
      if (numbers.children.length !== lines.length) {
        numbers.replaceChildren(...lines.map((_, i) => el("div", { class: wrong.some((w) => w.line === i + 1) ? "wrong" : "" }, String(i + 1))));
      }
      scrolled();
    };
    for (const w of wrong) {
      const line = (first.split("\n")[w.line - 1] || "").replace(/\t/g, " ".repeat(TAB));
      const flag = el("div", {}, el("span", {}, "✗ " + w.text));
      flag.style.top = `${(w.line - 1) * LINE}px`;
      flag.firstChild.style.marginLeft = `${line.length + 2}ch`;
      flags.append(flag);
    }
    area.addEventListener("scroll", scrolled);
    area.addEventListener("input", () => {
      flags.replaceChildren(); // the errors refer to the text before the edit
      keep(draft, area.value === q.text ? null : area.value);
      numbered();
    });
    const goTo = (line) => {
      const lines = area.value.split("\n"), from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
      area.focus();
      area.setSelectionRange(from, from + (lines[line - 1] || "").length);
      area.scrollTop = Math.max(0, (line - 4) * LINE);
    };
    const element = el("div", { class: "editor" }, el("div", { class: "sheet" }, gutter, el("div", { class: "text" }, marks, area)));
    element.addEventListener("shown", numbered);
    if (wrong.length > 0) {
      element.append(el("ul", { class: "problems" }, ...wrong.map((w) => el("li", {}, el("button", { type: "button", click: () => goTo(w.line) }, page("line", w))))));
    } else if (q.refused) element.append(el("pre", { class: "output", tabindex: 0 }, q.refused));
    if (!q.right) {
      element.append(el("p", {}, el("button", { type: "button", id: id + "-begin", click: () => {
        area.value = q.begin;
        keep(draft, area.value === q.text ? null : area.value);
        flags.replaceChildren();
        numbered();
        area.focus();
      } }, page("begin"))));
    }
    return { element, text: () => area.value };
  }

  const moral = () => (view.moral ? [el("p", { class: "moral" }, view.moral), el("p", {}, say("earned", { points: view.points, of: view.of, score: room.points, all: room.of }))] : later("afterlast"));

  onLanguage(() => {
    lang = spoken();
    if (room) load();
  });
  let busyWith = "";
  return {
    tick(t) { // another page may have started an exercise
      const now = t.status.busy || "";
      if (now !== busyWith && now.startsWith("exercise ") && !polling && !section.hidden) load();
      busyWith = now;
    },
    follow(rest) {
      const to = Number(rest) || number;
      if (to !== number) drawn = 0;
      number = to;
      problem.textContent = "";
      load();
    },
  };
}
