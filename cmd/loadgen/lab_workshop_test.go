package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"grablab/internal/present/browsertest"
	"grablab/internal/present/lab"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/stack"

	"github.com/chromedp/chromedp/kb"
)

// labProcess is a lab that runs until the end of its test. It keeps the user's progress in its own
// folder.
type labProcess struct {
	cmd   *exec.Cmd
	t     *testing.T
	url   string
	token string
	said  *bufio.Reader
	ended bool
}

func startLab(t *testing.T) *labProcess { return startLabIn(t, t.TempDir()) }

func startLabIn(t *testing.T, dir string) *labProcess {
	t.Helper()
	p := &labProcess{cmd: loadgen(t, "lab", "-addr", "127.0.0.1:0"), t: t}
	p.cmd.Dir = dir
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.said = bufio.NewReader(stdout)
	t.Cleanup(p.end)
	line, err := p.said.ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(line, "the lab is "))
	if err != nil || len(words) == 0 {
		t.Fatalf("it says %q, %v", line, err)
	}
	p.url = words[0]
	_, rest, _ := strings.Cut(get(t, p.url), `name="lab-token" content="`)
	p.token, _, _ = strings.Cut(rest, `"`)
	return p
}

// end stops the lab with the signal that Ctrl-C sends.
func (p *labProcess) end() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.cmd.Process.Signal(os.Interrupt)
	late := time.AfterFunc(browsertest.Patience, func() {
		p.t.Error("the lab did not end after a signal")
		_ = p.cmd.Process.Kill()
	})
	defer late.Stop()
	_, _ = io.Copy(io.Discard, p.said)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the lab ended with %v", err)
	}
}

// post sends a request to the workshop, which must succeed.
func (p *labProcess) post(path, body string) {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodPost, p.url+"/api/workshop/"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("X-Lab-Token", p.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s %s: %s %s", path, body, resp.Status, text)
	}
}

// job returns the workshop's current job, or its last one if none is running.
func (p *labProcess) job() (j lab.Job) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(get(p.t, p.url+"/api/workshop/job")), &j); err != nil {
		p.t.Fatal(err)
	}
	return j
}

// idle reports whether the lab is idle, as stated in the first event that it sends.
func (p *labProcess) idle() bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), browsertest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/events", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var tick lab.Tick
			return json.Unmarshal([]byte(data), &tick) == nil && tick.Status.Phase == lab.Idle
		}
	}
	return false
}

// speak selects the language of the page.
func speak(p *browsertest.Page, lang string) {
	browsertest.Eval[bool](p, fmt.Sprintf(`(() => { const l = document.getElementById("language"); l.value = %q; return l.dispatchEvent(new Event("change")); })()`, lang))
}

// TestLabWorkshop completes one exercise on the page with the keyboard only, including a wrong answer. It
// checks that the command line sees the same progress. In a second exercise, it edits a schedule, first
// with a mistake.
func TestLabWorkshop(t *testing.T) {
	browser := browsertest.New(t)
	l := startLab(t)
	texts, err := workshop.Load("en")
	if err != nil {
		t.Fatal(err)
	}
	p := browser.Open(t, l.url+"/#workshop/5", browsertest.Look{})
	has(p, "the exercise", "#exercise", texts.Say("5.ask", nil))
	p.Await("nothing to run before the prediction", `document.getElementById("w-start").disabled && document.getElementById("w-lock").disabled && !document.querySelector(".question")`)
	letter := browsertest.Eval[string](p, fmt.Sprintf(`[...document.querySelectorAll(".prediction")].find((o) => o.lastChild.textContent === %q).querySelector("input").value`, texts.Say("5.a", nil)))
	p.Focus("#w-option-" + letter)
	p.Press(" ")
	p.Await("something to lock in", `!document.getElementById("w-lock").disabled`)
	p.Press(kb.Enter)
	has(p, "the prediction", ".locked", "Locked in: "+letter)
	p.Await("the lab to be ready, and the keyboard at Run", `document.activeElement.id === "w-start"`)
	l.awaitIdle()
	p.Press(kb.Enter)
	has(p, "why the prediction was wrong", "#exercise .wrong", texts.Say("5.why.a", nil))
	has(p, "what was printed", "#w-output", "setnx-del breaks lease-exclusive in 10 steps")
	p.Await("the drawing", `document.querySelector("#exercise svg .holds") && document.querySelector("#exercise .stepper output").textContent === "step 10 of 14"`)
	p.Await("the keyboard at what there is to see", `document.activeElement.id === "w-look"`)
	p.Await("no moral yet", `!document.querySelector(".moral")`)
	p.Focus("#w-q1-0")
	p.Press("8")
	speak(p, "zh")
	p.Await("what was typed in another language", `document.documentElement.lang === "zh" && document.getElementById("w-q1-0").value === "8"`)
	speak(p, "en")
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

	progress, err := workshop.ReadProgress(filepath.Join(l.cmd.Dir, resultsDir, progressFile), 0)
	if points, _ := progress.Points(); err != nil || points != 1 {
		t.Errorf("the saved progress has %d points, %v; want 1", points, err)
	}

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
		if !browsertest.Eval[bool](p, fmt.Sprintf(`(() => { const a = document.getElementById("w-q1-text"), was = a.value; a.value = was.replace(%q, %q); a.dispatchEvent(new Event("input")); return a.value !== was })()`, old, new)) {
			t.Fatalf("there is no %q", old)
		}
		p.Await("something to press", `!document.getElementById("w-check").disabled`)
		p.Click("#w-check")
	}
	edit("A dies\n", "A flies\nA dies\n")
	p.Await("the line that is no step", `document.querySelector(".editor .gutter .wrong") && document.querySelector(".editor .problems").textContent.includes("A flies")`)
	line := browsertest.Eval[string](p, `document.querySelector(".editor .gutter .wrong").textContent`)
	if got := browsertest.Eval[string](p, fmt.Sprintf(`document.getElementById("w-q1-text").value.split("\n")[%s - 1]`, line)); got != "A flies" {
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
		speak(p, lang)
		p.Await("the page in "+lang, fmt.Sprintf("document.documentElement.lang === %q", lang))
		for selector, key := range map[string]string{
			"#w-exercise-title": "4.title", "#exercise": "4.ask", ".moral": "4.moral", ".question .right": "4.q1.right", "#w-reply": "ui.page.reply", "#w-to-9": "9.title",
		} {
			has(p, key+" in "+lang, selector, texts.Say(key, nil))
		}
	}
	again := browser.Open(t, l.url+"/#workshop/4", browsertest.Look{Width: 390, Height: 844, Dark: true, Calm: true})
	again.Await("the language that was chosen last", `document.documentElement.lang === "ja" && document.querySelector(".moral") && document.querySelector("#exercise svg")`)
	again.Fits()
	again.Screenshot("workshop-390-dark")
}

// has waits until the first element that matches selector contains the given text.
func has(p *browsertest.Page, what, selector, text string) {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // it is a string
	}
	p.Await(what, fmt.Sprintf("document.querySelector(%q) && document.querySelector(%q).textContent.includes(%s)", selector, selector, quoted))
}

// TestLabOwnLock writes a lock on the page. It checks that a compiler error is shown at its line, and that
// the page draws the failure that the search finds.
func TestLabOwnLock(t *testing.T) {
	if !proving() {
		t.Skip("it compiles a lock three times: it runs in make prove")
	}
	browser := browsertest.New(t)
	dir, err := os.MkdirTemp(filepath.Join("..", "..", resultsDir), "_lab-") // in the source tree, where a lock can be built
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := startLabIn(t, dir)
	l.awaitIdle()
	texts, err := workshop.Load("en")
	if err != nil {
		t.Fatal(err)
	}
	p := browser.Open(t, l.url+"/#workshop/12", browsertest.Look{})
	p.Await("the exercise", `document.getElementById("w-option-a")`)
	p.Click("#w-option-a")
	p.Click("#w-lock")
	p.Await("the lock to begin with", `document.getElementById("w-q1-text") && document.getElementById("w-q1-text").value.includes("setPX, unset: del")`)
	edit := func(pairs ...string) {
		t.Helper()
		for len(pairs) > 0 {
			browsertest.Eval[bool](p, fmt.Sprintf(`(() => { const a = document.getElementById("w-q1-text"); a.value = a.value.replace(%q, %q); a.dispatchEvent(new Event("input")); return true })()`, pairs[0], pairs[1]))
			pairs = pairs[2:]
		}
		p.Await("something to press", `!document.getElementById("w-check").disabled`)
		p.Click("#w-check")
		p.Await("the check to begin", `document.getElementById("w-check").disabled`)
		for end := time.Now().Add(2 * browsertest.Patience); l.job().Running; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the check of the lock does not end")
			}
		}
	}
	edit("unset: del", "unset: dell")
	has(p, "why it cannot be judged", ".question > .wrong", texts.Say("12.q1.refused", nil))
	has(p, "what the compiler says", ".editor .problems", "undefined: dell")
	if line := browsertest.Eval[string](p, `document.getElementById("w-q1-text").value.split("\n")[document.querySelector(".editor .gutter .wrong").textContent - 1]`); !strings.Contains(line, "dell") {
		t.Errorf("the compiler error is shown at line %q, want the line with dell", line)
	}
	edit("unset: dell", "unset: del")
	has(p, "what it breaks", ".question > .wrong", "1 of 3 points.")
	has(p, "the drawing of that", "#w-drawn", "Handed in: mine breaks one-winner")
	edit("Guard:    order.Naive", "Guard:    order.Guarded", "unset: del}", "unset: compareAndDelete}")
	has(p, "the moral", ".moral", texts.Say("12.moral", nil))
}

// awaitIdle waits until the lab has started its servers and is idle.
func (p *labProcess) awaitIdle() {
	p.t.Helper()
	for end := time.Now().Add(browsertest.Patience); !p.idle(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal("the lab is not ready")
		}
	}
}

// TestDoCommand checks that a failed command of an exercise returns its own error message, and that a
// successful one returns its outcome and output.
func TestDoCommand(t *testing.T) {
	t.Setenv(asMain, "1")
	for _, tt := range []struct{ name, args, want string }{
		{"usage", "explore -strategies setnx -actors 99", "-actors"},
		{"a file that is none", "explore -file none.go", "none.go"},
		{"servers", "run -schedule none.txt -stack " + stack.Local, "none.txt"},
	} {
		if _, err := doCommand(t.Context(), strings.Fields(tt.args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one that contains %s", tt.name, err, tt.want)
		}
	}
	var printed strings.Builder
	args := []string{"explore", "-strategies", "setnx-del", "-actors", "3", "-faults", "slow", "-property", "lease-exclusive", "-out", t.TempDir()}
	o, err := doCommand(t.Context(), args, &printed, io.Discard)
	if err != nil || len(o.Explored) != 1 || len(o.Explored[0].Failures) == 0 || len(o.Explored[0].Failures[0].Moments) == 0 || !strings.Contains(printed.String(), "setnx-del") {
		t.Errorf("%+v, %v, %s", o, err, printed.String())
	}
}
