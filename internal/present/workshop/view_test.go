package workshop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// paged returns a session like that of a web page. If do is nil, the session must not run any command.
func paged(t *testing.T, lang string, do Do) *Session {
	t.Helper()
	dir := t.TempDir()
	p, err := ReadProgress(filepath.Join(dir, "workshop.json"), 7)
	if err != nil {
		t.Fatal(err)
	}
	if do == nil {
		do = func(context.Context, []string, io.Writer) (Outcome, error) {
			t.Error("the session ran a command")
			return Outcome{}, nil
		}
	}
	return &Session{Texts: loaded(t, lang), Progress: p, Dir: dir, Do: do, Out: io.Discard, Program: "loadgen"}
}

func viewed(t *testing.T, s *Session, e Exercise) (v View, text string) {
	t.Helper()
	v, err := s.View(e)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "null") {
		t.Errorf("%d: a list is missing: %s", e.Number, b)
	}
	return v, string(b)
}

// TestViewHidesLaterTexts checks that a view hides the texts that belong to a later step. These are the reason
// for the prediction before the run, the moral before the last right answer, and hints that the user has not
// requested.
func TestViewHidesLaterTexts(t *testing.T) {
	for _, lang := range Languages {
		s := paged(t, lang, nil)
		for _, e := range Exercises {
			inner := func(parts ...string) (all []string) {
				for _, p := range parts {
					text, err := json.Marshal(slots.Split(s.Texts.Say(key(e, p), nil), 2)[0])
					if err != nil {
						t.Fatal(err)
					}
					if t := strings.Trim(string(text), `"`); len(t) > 6 {
						all = append(all, t)
					}
				}
				return all
			}
			later := inner("look", "q1.ask", "why."+e.Right, "moral", "hint1")
			has := func(text string, parts []string, want bool) {
				t.Helper()
				for _, p := range parts {
					if strings.Contains(text, p) != want {
						t.Errorf("%s %d: %q in its view: %v, want %v", lang, e.Number, p, !want, want)
					}
				}
			}
			v, text := viewed(t, s, e)
			has(text, later, false)
			if len(v.Options) != len(e.Options) || len(v.Commands) != len(e.Show) || v.Predicted != "" || v.Of != e.Points() {
				t.Errorf("view before the run, %s %d: %+v", lang, e.Number, v)
			}
			if err := s.Run(t.Context(), e); !errors.Is(err, ErrAnswer) {
				t.Errorf("%d runs before it is predicted: %v", e.Number, err)
			}
			if err := s.Predict(e, "b"); err != nil {
				t.Fatal(err)
			}
			if err := s.Answer(t.Context(), e, make([][]string, len(e.Questions))); !errors.Is(err, ErrAnswer) {
				t.Errorf("%d is answered before it has run: %v", e.Number, err)
			}
			v, text = viewed(t, s, e)
			has(text, later, false)
			if v.Predicted != "b" || v.State != "begun" || v.Points != 0 {
				t.Errorf("%s %d: predicted %q, %s, %d points", lang, e.Number, v.Predicted, v.State, v.Points)
			}
			state := s.Progress.stateOf(e)
			state.Ran = true
			v, text = viewed(t, s, e)
			has(text, inner("look", "q1.ask", "why."+state.Predicted), true)
			has(text, inner("moral", "hint1"), false)
			if !v.More || len(v.Hints) != 0 {
				t.Errorf("%d: hints %q, more: %v", e.Number, v.Hints, v.More)
			}
			if err := s.Hint(e); err != nil {
				t.Fatal(err)
			}
			_, text = viewed(t, s, e)
			has(text, inner("hint1"), true)
			for i := range state.Answers {
				state.Answers[i] = Answer{Right: true, Best: e.Questions[i].Points, Last: &Mark{e.Questions[i].Points, right}}
			}
			v, text = viewed(t, s, e)
			has(text, inner("moral", "q1.right"), true)
			if v.State != "done" || v.More || !v.Questions[0].Right {
				t.Errorf("view of the finished exercise %d: %+v", e.Number, v)
			}
		}
	}
}

// TestChoicesAreAnswers checks that every answer that a page offers is valid.
func TestChoicesAreAnswers(t *testing.T) {
	for _, e := range Exercises {
		for i, q := range e.Questions {
			for _, choice := range q.Choices {
				words := make([]string, q.Words())
				for k := range words {
					words[k] = choice
				}
				if _, err := q.Judge(words, measured); err != nil {
					t.Errorf("Judge: %d.q%d: %q: %v", e.Number, i+1, choice, err)
				}
			}
		}
	}
}

// TestViewAfterAnAnswer checks that the view shows the reply to an answer, even in another language and after
// the progress was read from its file again.
func TestViewAfterAnAnswer(t *testing.T) {
	s := paged(t, "en", nil)
	e, _ := Find(5)
	if err := s.Predict(e, "a"); err != nil {
		t.Fatal(err)
	}
	state := s.Progress.stateOf(e)
	state.Ran, state.Facts["three.steps"], state.Facts["three.released"] = true, "10", "8"
	if err := s.Answer(t.Context(), e, [][]string{{"8"}}); err != nil {
		t.Fatal(err)
	}
	p, err := ReadProgress(s.Progress.path, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, lang := range Languages {
		again := paged(t, lang, nil)
		again.Progress = p
		v, _ := viewed(t, again, e)
		if want := again.Texts.Say("5.q1.deleted", nil); v.Questions[0].Said != want || v.Questions[0].Right || v.Questions[0].Given[0] != "8" {
			t.Errorf("%s: %+v, want the reply %q", lang, v.Questions[0], want)
		}
	}
}

// TestProgressThatCannotBeRead checks that the error for an invalid progress file tells the user what to do.
func TestProgressThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workshop.json")
	good := fmt.Sprintf(`{"schema":%d,"exercises":{"5":{}}}`, progressSchema)
	for text, ok := range map[string]bool{
		good:                                   true,
		strings.Replace(good, "{}", "null", 1): false,
		strings.Replace(good, `{"5":{}}`, "null", 1):   false,
		strings.Replace(good, `{"5":{}}`, "[1]", 1):    false,
		fmt.Sprintf(`{"schema":%d}`, progressSchema+1): false,
		"": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadProgress(path, 1)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "-reset") {
			t.Errorf("%s: ReadProgress: %v", text, err)
		}
	}
}

// TestKeep checks that Keep saves an edited file at the path that the user would also submit in a
// terminal. A later run must not overwrite the file.
func TestKeep(t *testing.T) {
	s := paged(t, "en", nil)
	own, _ := Find(12)
	if err := s.Predict(own, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	v, _ := viewed(t, s, own)
	if q := v.Questions[0]; q.Begin != OwnLock || q.Text != OwnLock {
		t.Errorf("the editor begins with %q, %q", q.Begin, q.Text)
	}
	path, err := s.Keep(own, "package lock // mine\n")
	if err != nil || path != s.Progress.stateOf(own).Facts["template"] {
		t.Fatalf("Keep: %s, %v", path, err)
	}
	if err := s.Run(t.Context(), own); err != nil { // the second run must not overwrite the file
		t.Fatal(err)
	}
	if v, _ := viewed(t, s, own); v.Questions[0].Text != "package lock // mine\n" {
		t.Errorf("after another run, the editor has %q", v.Questions[0].Text)
	}
	schedules, _ := Find(4)
	if path, err := s.Keep(schedules, foundExpire); err != nil || !strings.HasPrefix(path, s.Path(schedules)) {
		t.Errorf("Keep: %s, %v", path, err)
	}
}

// TestInvalidAnswerRunsNothing checks that no command runs if one of the answers is invalid or if the file does
// not exist.
func TestInvalidAnswerRunsNothing(t *testing.T) {
	e, _ := Find(10)
	text := "strategy setnx\nactors A@1 B@2\n\nA begins\n"
	file := filepath.Join(t.TempDir(), "copy.txt")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, word, want string }{
		{file, "5", `"5" is not valid: enter one of yes, no`},
		{"12", "no", `"12" is not a file: enter the path of your file`},
	} {
		s := paged(t, "en", nil)
		state := s.Progress.stateOf(e)
		state.Ran, state.Facts = true, Facts{"half.schedule": text, "fenced.overlaps": "24"}
		err := s.Answer(t.Context(), e, [][]string{{tt.file}, {tt.word}})
		if !errors.Is(err, ErrAnswer) || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("Answer: %s, %s: %v, want %s", tt.file, tt.word, err, tt.want)
		}
	}
}

// TestAgainSaysWhatHolds checks that only an exercise with a file mentions files after a wrong answer.
func TestAgainSaysWhatHolds(t *testing.T) {
	for _, lang := range Languages {
		for _, e := range Exercises {
			var out strings.Builder
			s := paged(t, lang, nil)
			s.Out = &out
			s.Conclude(e)
			hasFile := slices.ContainsFunc(e.Questions, func(q Question) bool { return q.File })
			flat := strings.NewReplacer("\n", " ").Replace(out.String())
			if lang != "en" {
				flat = strings.ReplaceAll(flat, " ", "")
			}
			if got := strings.Contains(flat, strings.ReplaceAll(s.Texts.Say("ui.files", nil), "\n", " ")); got != hasFile {
				t.Errorf("%s: exercise %d mentions files: %v, want %v:\n%s", lang, e.Number, got, hasFile, out.String())
			}
		}
	}
}

// TestFileIsJudgedAgain checks that a user can hand in another file after a right one, and that a wrong file
// then costs no points.
func TestFileIsJudgedAgain(t *testing.T) {
	for _, e := range Exercises {
		at := slices.IndexFunc(e.Questions, func(q Question) bool { return q.File })
		if at < 0 {
			continue
		}
		ran := 0
		s := paged(t, "en", func(context.Context, []string, io.Writer) (Outcome, error) {
			ran++
			return Outcome{}, RefusedError{Why: "it does not compile"}
		})
		state := s.Progress.stateOf(e)
		state.Ran, state.Facts = true, Facts{}
		answers := make([][]string, len(e.Questions))
		for i := range answers {
			answers[i] = []string{Leave}
			state.Answers[i].Right, state.Answers[i].Best = true, 1
		}
		file := filepath.Join(t.TempDir(), "other.go")
		if err := os.WriteFile(file, []byte("package lock\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		answers[at] = []string{file}
		err := s.Answer(t.Context(), e, answers)
		if ran == 0 && err == nil {
			t.Errorf("exercise %d does not judge a second file", e.Number)
		}
		if a := state.Answers[at]; !a.Right || a.Best != 1 {
			t.Errorf("exercise %d: a second file has changed the score: %+v", e.Number, a)
		}
	}
}

// TestOwnLockCompiles checks that the lock with which exercise 12 starts compiles as a file of package lock.
func TestOwnLockCompiles(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "grablab/internal/grab/lock").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, overlay := filepath.Join(t.TempDir(), "my.go"), filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(strings.TrimSpace(string(out)), "own_template.go"): file}})
	if err := errors.Join(err, os.WriteFile(file, []byte(OwnLock), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "grablab/internal/grab/lock").CombinedOutput(); err != nil {
		t.Errorf("go build failed: %v: %s", err, out)
	}
}
