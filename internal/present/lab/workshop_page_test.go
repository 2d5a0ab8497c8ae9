package lab_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"

	"github.com/chromedp/chromedp/kb"
)

// searching returns a function that executes an exercise's explore commands in this process.
func searching(t *testing.T) workshop.Do {
	return func(ctx context.Context, args []string, out io.Writer) (o workshop.Outcome, err error) {
		cfg := explore.Usual()
		f := flag.NewFlagSet(args[0], flag.ContinueOnError)
		strategies, faults, property := f.String("strategies", "", ""), f.String("faults", "", ""), f.String("property", "", "")
		file := f.String("replay", "", "")
		f.IntVar(&cfg.Actors, "actors", cfg.Actors, "")
		f.String("out", "", "")
		f.Bool("quiet", false, "")
		if err := f.Parse(args[1:]); err != nil {
			return o, err
		}
		if *file != "" {
			text, err := os.ReadFile(*file)
			if err != nil {
				return o, err
			}
			handed, err := schedule.Parse(string(text))
			if err != nil {
				return o, err
			}
			r, err := explore.ReplayBy(ctx, bubble(t), nil, handed, "")
			return workshop.Outcome{Explored: []explore.Result{r}}, err
		}
		p, _ := catalog.FindProperty(*property)
		cfg.Strategies, cfg.Faults, cfg.Properties = strings.Split(*strategies, ","), []catalog.Fault{catalog.Fault(*faults)}, []string{p.Name}
		if o.Explored, err = explore.Search(ctx, bubble(t), cfg, func(explore.Result) {}); err != nil {
			return o, err
		}
		return o, report.Explored(out, report.Exploration{Config: cfg, Results: o.Explored, Replay: func(explore.Failure) string { return "" }})
	}
}

// TestWorkshopPage completes one exercise with the keyboard only, including a wrong answer. In a second
// exercise, it edits a schedule, first with a mistake.
func TestWorkshopPage(t *testing.T) {
	browser := newBrowser(t)
	url := start(t, lab.Config{Workshop: class(t, searching(t))})
	texts, err := workshop.Load("en")
	if err != nil {
		t.Fatal(err)
	}
	p := browser.Open(t, url+"#workshop/5", Look{})
	has(p, "the exercise", "#exercise", texts.Say("5.ask", nil))
	p.Await("nothing to run before the prediction", `document.getElementById("w-start").disabled && document.getElementById("w-lock").disabled && !document.querySelector(".question")`)
	letter := eval[string](p, fmt.Sprintf(`[...document.querySelectorAll(".prediction")].find((o) => o.lastChild.textContent === %q).querySelector("input").value`, texts.Say("5.a", nil)))
	p.Focus("#w-option-" + letter)
	p.Press(" ")
	p.Await("something to lock in", `!document.getElementById("w-lock").disabled`)
	p.Press(kb.Enter)
	has(p, "the prediction", ".locked", "Locked in: "+letter)
	p.Await("the lab to be ready, and the keyboard at Run", `document.activeElement.id === "w-start"`)
	await(t, "the lab", stream(t, url+"/api/events"), isIdle)
	p.Press(kb.Enter)
	has(p, "why the prediction was wrong", "#exercise .wrong", texts.Say("5.why.a", nil))
	has(p, "what was printed", "#w-output", "setnx-del breaks lease-exclusive in 10 steps")
	p.Await("the drawing", `document.querySelector("#exercise svg .holds") && document.querySelector("#exercise .stepper output").textContent === "step 10 of 14"`)
	p.Await("the keyboard at what there is to see", `document.activeElement.id === "w-look"`)
	p.Await("no moral yet", `!document.querySelector(".moral")`)
	p.Focus("#w-q1-0")
	p.Press("8")
	setLanguage(p, "zh")
	p.Await("what was typed in another language", `document.documentElement.lang === "zh" && document.getElementById("w-q1-0").value === "8"`)
	setLanguage(p, "en")
	p.Await("and back", `document.documentElement.lang === "en"`)
	p.Focus("#w-q1-0")
	p.Press(kb.Enter)
	has(p, "the belief that leads to 8", ".question > .wrong", texts.Say("5.q1.deleted", nil))
	p.Await("the end of the check", `!document.getElementById("w-check").disabled`)
	p.Focus("#w-q1-0")
	p.Press(kb.End + kb.Backspace)
	p.Press("10")
	p.Press(kb.Enter)
	has(p, "the moral", ".moral", texts.Say("5.moral", nil))
	has(p, "its points", "#w-to-5 .points", "✓ 1/3") // the prediction and one answer were wrong
	has(p, "the score", "#workshop-answer", "1 of 37 points.")
	p.Await("the keyboard at the moral", `document.activeElement.id === "w-moral"`)
	p.Fits()
	p.Screenshot("workshop")

	p.Focus("#w-to-4")
	p.Press(kb.Enter)
	has(p, "another exercise", "#exercise", texts.Say("4.ask", nil))
	p.Click("#w-option-a")
	p.Click("#w-lock")
	p.Await("the prediction", `document.querySelector(".locked")`)
	p.Click("#w-start")
	p.Await("the schedule", `document.querySelector("#w-q1-text") && document.querySelector("#w-q1-text").value.includes("A dies")`)
	edit := func(old, new string) {
		t.Helper()
		if !eval[bool](p, fmt.Sprintf(`(() => { const a = document.getElementById("w-q1-text"), was = a.value; a.value = was.replace(%q, %q); a.dispatchEvent(new Event("input")); return a.value !== was })()`, old, new)) {
			t.Fatalf("there is no %q", old)
		}
		p.Await("something to press", `!document.getElementById("w-check").disabled`)
		p.Click("#w-check")
	}
	edit("A dies\n", "A flies\nA dies\n")
	p.Await("the line that is no step", `document.querySelector(".editor .gutter .wrong") && document.querySelector(".editor .problems").textContent.includes("A flies")`)
	line := eval[string](p, `document.querySelector(".editor .gutter .wrong").textContent`)
	if got := eval[string](p, fmt.Sprintf(`document.getElementById("w-q1-text").value.split("\n")[%s - 1]`, line)); got != "A flies" {
		t.Errorf("line %s is %q", line, got)
	}
	edit("A flies\n", "A acquire 2 redis\n")
	has(p, "the moral", ".moral", texts.Say("4.moral", nil))
	has(p, "a drawing of what was handed in", "#w-drawn", "Handed in: setnx-expire breaks no property in this schedule")

	for _, lang := range workshop.Languages {
		texts, err := workshop.Load(lang)
		if err != nil {
			t.Fatal(err)
		}
		setLanguage(p, lang)
		p.Await("the page in "+lang, fmt.Sprintf("document.documentElement.lang === %q", lang))
		for selector, key := range map[string]string{
			"#w-exercise-title": "4.title", "#exercise": "4.ask", ".moral": "4.moral", ".question .right": "4.q1.right", "#w-reply": "ui.page.reply", "#w-to-9": "9.title",
		} {
			has(p, key+" in "+lang, selector, texts.Say(key, nil))
		}
	}
	again := browser.Open(t, url+"#workshop/4", Look{Width: 390, Height: 844, Dark: true, Calm: true})
	again.Await("the language that was chosen last", `document.documentElement.lang === "ja" && document.querySelector(".moral") && document.querySelector("#exercise svg")`)
	again.Fits()
	again.Screenshot("workshop-390-dark")
}

// has waits until the first element that matches selector contains the given text.
func has(p *Page, what, selector, text string) {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // cannot happen, because every string can be encoded
	}
	p.Await(what, fmt.Sprintf("document.querySelector(%q) && document.querySelector(%q).textContent.includes(%s)", selector, selector, quoted))
}

// locatedLines is a script that returns the lines that the page finds in a message, with their errors.
const locatedLines = `import("./workshop.js").then(({ located }) => located(%q).map((e) => e.line + " " + e.text).join("; "))`

// testLocated checks that the page finds the lines of the user's file in the messages about it.
func testLocated(t *testing.T, browser *Browser) {
	p := browser.Open(t, start(t, lab.Config{})+"#workshop", Look{})
	for text, want := range map[string]string{
		"-file does not compile: # grablab/internal/grab/lock\n/tmp/a/my.go:30:17: undefined: foo\nmy.go:31: too": "30 undefined: foo; 31 too",
		"line 12: \"A flies\": want a step":            `12 "A flies": want a step`,
		"-file: results/my.go:1:1: expected 'package'": "1 expected 'package'",
		"mine: does not lock what nobody has":          "",
	} {
		if got := eval[string](p, fmt.Sprintf(locatedLines, text)); got != want {
			t.Errorf("problems in %q: %q, want %q", text, got, want)
		}
	}
}
