package lab_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/present/lab"
	"grablab/internal/present/workshop"
)

// class returns a function that opens a workshop session in which do replaces the commands.
func class(t *testing.T, do workshop.Do) (open func(lang string) (*workshop.Session, error)) {
	dir := t.TempDir()
	return func(lang string) (*workshop.Session, error) {
		texts, err := workshop.Load(lang)
		if err != nil {
			return nil, err
		}
		progress, err := workshop.ReadProgress(filepath.Join(dir, "workshop.json"), 7)
		return &workshop.Session{Texts: texts, Progress: progress, Dir: dir, Do: do, Program: "loadgen"}, err
	}
}

// del returns the outcome of a simulated explore command of exercise 5.
func del(args []string) workshop.Outcome {
	r := explore.Result{Strategy: "setnx-del", Verdict: "safe", Complete: true}
	if args[len(args)-1] == "3" || strings.Contains(strings.Join(args, " "), "-actors 3") {
		s, err := schedule.Parse("strategy setnx-del\nguard naive\non-lost abort\nactors A@1 B@2\nnodes redis\nttl 3s\nproperty lease-exclusive\n\nA begins\nA acquire 1 redis\nA release 1 redis\n")
		if err != nil {
			panic(err)
		}
		f := explore.Failure{Property: "lease-exclusive", Mode: "F5", Schedule: s, Moments: make([]explore.Moment, len(s.Steps))}
		r.Verdict, r.Failures = "unsafe", []explore.Failure{f}
	}
	return workshop.Outcome{Explored: []explore.Result{r}}
}

// exercise is the data that the page gets about one exercise.
type exercise struct {
	workshop.View
	Drawings []json.RawMessage
}

func TestWorkshopCalls(t *testing.T) {
	began, goOn := make(chan struct{}, 8), make(chan error)
	url := start(t, lab.Config{Workshop: class(t, func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
		fmt.Fprintln(out, "working")
		began <- struct{}{}
		select {
		case err := <-goOn:
			return del(args), err
		case <-ctx.Done():
			return workshop.Outcome{}, ctx.Err()
		}
	})})
	tok := map[string]string{"X-Lab-Token": token(t, url)}
	ticks := stream(t, url+"/api/events")
	await(t, "the lab", ticks, func(tick lab.Tick) bool { return tick.Status.Phase == lab.Idle })
	read := func(path string, into any) {
		t.Helper()
		status, text := get(t, url+"/api/workshop"+path)
		if err := json.Unmarshal([]byte(text), into); err != nil || status != http.StatusOK {
			t.Fatalf("GET %s: status %d, %v", path, status, err)
		}
	}
	view := func(n int, lang string) (e exercise) {
		t.Helper()
		read(fmt.Sprintf("/%d?lang=%s", n, lang), &e)
		return e
	}
	job := func() (j lab.Job) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			if read("/job", &j); !j.Running {
				return j
			}
			if time.Now().After(end) {
				t.Fatalf("the job is still running: %+v", j)
			}
		}
	}
	calls := func(tests []call) {
		t.Helper()
		for _, tt := range tests {
			if status, text := post(t, url+"/api/workshop/"+tt.path, tt.body, tt.header); status != tt.status || !strings.Contains(text, tt.says) {
				t.Errorf("%s: status %d %s, want %d …%s…", tt.name, status, text, tt.status, tt.says)
			}
		}
	}
	en := `{"lang":"en"}`
	other := map[string]string{"X-Lab-Token": "another"}
	calls([]call{
		{"no token", "5/predict", `{"lang":"en","letter":"a"}`, nil, 403, "reload it"},
		{"another token", "5/run", en, other, 403, "reload it"},
		{"another token", "5/answer", en, other, 403, "reload it"},
		{"another token", "5/hint", en, other, 403, "reload it"},
		{"another token", "stop", `{}`, other, 403, "reload it"},
		{"no exercise", "13/predict", `{"lang":"en","letter":"a"}`, tok, 400, "use a number from 1 to 12"},
		{"no number", "x/run", en, tok, 400, "use a number from 1 to 12"},
		{"no language", "5/predict", `{"lang":"fr","letter":"a"}`, tok, 400, "use one of en, zh, ja"},
		{"no option", "5/predict", `{"lang":"en","letter":"e"}`, tok, 400, "enter a letter from a to d"},
		{"not locked in", "5/run", en, tok, 400, "make a prediction for exercise 5 before you run its commands"},
		{"not run", "5/answer", `{"lang":"en","answers":[["10"]]}`, tok, 400, "before you answer"},
		{"locked in", "5/predict", `{"lang":"en","letter":"b"}`, tok, 200, ""},
		{"not run yet", "5/answer", `{"lang":"en","answers":[["10"]]}`, tok, 400, "before you answer"},
		{"too long", "5/answer", `{"text":"` + strings.Repeat("x", 1<<17) + `"}`, tok, 400, "too large"},
	})
	for path, says := range map[string]string{"/13?lang=en": "use a number from 1 to 12", "/5?lang=fr": "use one of en, zh, ja", "?lang=": "use one of en, zh, ja"} {
		if status, text := get(t, url+"/api/workshop"+path); status != http.StatusBadRequest || !strings.Contains(text, says) {
			t.Errorf("GET %s: status %d %s", path, status, text)
		}
	}
	if len(began) > 0 {
		t.Fatal("an invalid call has started a command")
	}

	// While an exercise runs, the lab refuses other tasks. While a live run runs, it refuses the exercise.
	calls([]call{{"run", "5/run", en, tok, 200, ""}})
	<-began
	calls([]call{
		{"run again", "5/run", en, tok, 409, "exercise 5"},
		{"a prediction meanwhile", "4/predict", `{"lang":"en","letter":"a"}`, tok, 409, "exercise 5 is running"},
		{"a hint meanwhile", "5/hint", en, tok, 409, "exercise 5 is running"},
	})
	if status, text := post(t, url+"/api/start", `{"strategy":"setnx","fault":"none","rate":10}`, tok); status != 409 || !strings.Contains(text, "exercise 5 (view Workshop)") {
		t.Errorf("a live run during an exercise: %d %s", status, text)
	}
	var j lab.Job
	if read("/job", &j); !j.Running || j.Number != 5 || j.Step != 1 || j.Of != 2 || !strings.Contains(j.Printed, "$ loadgen explore -strategies setnx-del") || !strings.Contains(j.Printed, "working") {
		t.Errorf("the running job is %+v", j)
	}
	calls([]call{{"stop", "stop", `{}`, tok, 200, ""}})
	if j := job(); !j.Stopped || view(5, "en").Ran {
		t.Errorf("the stopped job is %+v", j)
	}
	if status, text := post(t, url+"/api/start", `{"strategy":"setnx","fault":"none","rate":10}`, tok); status != 200 {
		t.Fatalf("POST /api/start: status %d %s", status, text)
	}
	calls([]call{{"an exercise beside a live run", "5/run", en, tok, 409, "a live run (view Live)"}})
	if status, text := post(t, url+"/api/stop", `{}`, tok); status != 200 {
		t.Fatalf("POST /api/stop: status %d %s", status, text)
	}

	// If a command fails, the page shows the error, and the exercise does not count as run.
	calls([]call{{"run", "5/run", en, tok, 200, ""}})
	goOn <- errors.New("there is no room on the disk")
	if j := job(); j.Problem != "there is no room on the disk" || view(5, "en").Ran {
		t.Errorf("the failed job is %+v", j)
	}

	// After a successful run, the exercise has a drawing and its texts in every language.
	calls([]call{{"run", "5/run", `{"lang":"zh"}`, tok, 200, ""}})
	goOn <- nil
	goOn <- nil
	if j := job(); j.Problem != "" || j.Stopped {
		t.Fatalf("the job ended with %+v", j)
	}
	for _, lang := range workshop.Languages {
		texts, err := workshop.Load(lang)
		if err != nil {
			t.Fatal(err)
		}
		v := view(5, lang)
		if !v.Ran || len(v.Drawings) != 1 || v.Look != texts.Say("5.look", nil) || v.Moral != "" || v.Questions[0].Said != "" {
			t.Errorf("exercise in the language %s: %+v", lang, v)
		}
	}
	for _, tt := range []struct{ answer, why, problem string }{
		{"5", "second", ""}, {"ten", "", `"ten" is not a whole number: enter one such as 12`},
	} {
		calls([]call{{tt.answer, "5/answer", `{"lang":"en","answers":[["` + tt.answer + `"]]}`, tok, 200, ""}})
		j := job()
		texts, _ := workshop.Load("en")
		if v := view(5, "en"); j.Problem != tt.problem || v.Questions[0].Right || v.Moral != "" || tt.why != "" && v.Questions[0].Said != texts.Say("5.q1."+tt.why, nil) {
			t.Errorf("answer %s: job %+v, exercise %+v", tt.answer, j, v)
		}
	}
	calls([]call{{"a hint", "5/hint", en, tok, 200, ""}, {"the right answer", "5/answer", `{"lang":"en","answers":[["3"]]}`, tok, 200, ""}})
	job()
	if v := view(5, "ja"); !v.Questions[0].Right || v.Moral == "" || len(v.Hints) != 1 || v.State != "done" || v.Points > 1 {
		t.Errorf("after the right answer, the exercise is %+v", v)
	}
	var all struct {
		workshop.Overview
		Labels map[string]string
	}
	for _, lang := range workshop.Languages {
		read("?lang="+lang, &all)
		if len(all.Exercises) != 12 || all.Of != 37 || all.Labels["page.lock"] == "" || all.Next != 1 {
			t.Errorf("classroom in the language %s: %+v", lang, all)
		}
	}
}

// call is a call of the workshop's API, with the expected status and a part of the response.
type call struct {
	name, path, body string
	header           map[string]string
	status           int
	says             string
}

// TestPageHasItsLabels checks that the page's script uses exactly the labels that the texts contain.
func TestPageHasItsLabels(t *testing.T) {
	script, err := os.ReadFile("workshop.js")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := workshop.Load("en")
	if err != nil {
		t.Fatal(err)
	}
	labels, used := texts.Under("ui.page."), 0
	for name := range labels {
		if strings.Contains(string(script), strconv.Quote(name)) || name == "yes" || name == "no" {
			used++
			continue
		}
		t.Errorf("nothing shows ui.page.%s", name)
	}
	for _, call := range strings.Split(string(script), "page(\"")[1:] {
		if name, _, _ := strings.Cut(call, `"`); labels[name] == "" {
			t.Errorf("there is no ui.page.%s", name)
		}
	}
	if used < 20 {
		t.Errorf("only %d labels are used, want at least 20", used)
	}
}

// TestEndDuringExercise checks that the lab waits for the end of an exercise that it interrupts.
func TestEndDuringExercise(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	t.Run("lab", func(t *testing.T) {
		url := start(t, lab.Config{Workshop: class(t, func(ctx context.Context, _ []string, _ io.Writer) (workshop.Outcome, error) {
			close(began)
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
			close(ended)
			return workshop.Outcome{}, ctx.Err()
		})})
		tok := map[string]string{"X-Lab-Token": token(t, url)}
		await(t, "the lab", stream(t, url+"/api/events"), isIdle)
		for _, call := range []string{"predict", "run"} {
			if status, text := post(t, url+"/api/workshop/5/"+call, `{"lang":"en","letter":"a"}`, tok); status != http.StatusOK {
				t.Fatalf("POST %s: status %d %s", call, status, text)
			}
		}
		<-began
	})
	select {
	case <-ended:
	default:
		t.Error("the lab ended before the exercise")
	}
}
