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
	"regexp"
	"strings"
	"testing"
	"time"

	"grablab/internal/present/lab"
	"grablab/internal/present/workshop"
)

// patience is how long a test waits for a lab. It is long because a slow machine needs minutes for what
// usually takes seconds.
const patience = 5 * time.Minute

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
	late := time.AfterFunc(patience, func() {
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
		p.t.Fatalf("POST %s %s: %s %s", path, body, resp.Status, text)
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
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
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

// TestLabWorkshop completes one exercise through the page's API. It checks that the command line sees the
// same progress.
func TestLabWorkshop(t *testing.T) {
	l := startLab(t)
	l.awaitIdle()
	e, _ := workshop.Find(5)
	l.post("5/predict", `{"lang":"en","letter":"a"}`)
	l.post("5/run", `{"lang":"en"}`)
	if j := l.awaitJob(); j.Problem != "" || !strings.Contains(j.Printed, "setnx-del breaks lease-exclusive in 10 steps") {
		t.Errorf("the run ended with %+v", j)
	}
	l.post("5/answer", `{"lang":"en","answers":[["10"]]}`)
	if j := l.awaitJob(); j.Problem != "" {
		t.Errorf("the check ended with %+v", j)
	}
	progress, err := workshop.ReadProgress(filepath.Join(l.cmd.Dir, resultsDir, progressFile), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := e.Questions[0].Points
	if progress.Exercises[5].Predicted == e.Right {
		want++
	}
	if points, _ := progress.Points(); points != want {
		t.Errorf("the saved progress has %d points, want %d", points, want)
	}
}

// TestLabOwnLock hands in a lock on the page. It checks that the page gets a compiler error with its line,
// and a drawing of the failure that the search finds.
func TestLabOwnLock(t *testing.T) {
	if !proving() {
		t.Skip("it compiles a lock three times: it runs in make prove")
	}
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
	l.post("12/predict", `{"lang":"en","letter":"a"}`)
	type exercise struct {
		workshop.View
		Drawings []struct {
			Title  string `json:"title"`
			Handed bool   `json:"handed"`
		} `json:"drawings"`
	}
	answer := func(pairs ...string) (e exercise, q workshop.Asked) {
		t.Helper()
		text, err := json.Marshal(strings.NewReplacer(pairs...).Replace(workshop.OwnLock))
		if err != nil {
			t.Fatal(err)
		}
		l.post("12/answer", `{"lang":"en","answers":[["my.go"]],"text":`+string(text)+`}`)
		l.awaitJob()
		if err := json.Unmarshal([]byte(get(t, l.url+"/api/workshop/12?lang=en")), &e); err != nil {
			t.Fatal(err)
		}
		return e, e.Questions[0]
	}
	_, q := answer("unset: del", "unset: dell")
	line := 1 + strings.Count(workshop.OwnLock[:strings.Index(workshop.OwnLock, "unset: del")], "\n")
	refused := fmt.Sprintf(`my\.go:%d:\d+: undefined: dell`, line) // the page marks this line
	if q.Said != texts.Say("12.q1.refused", nil) || !regexp.MustCompile(refused).MatchString(q.Refused) {
		t.Errorf("a lock that does not compile: %+v", q)
	}
	e, q := answer()
	if !strings.Contains(q.Said, "1 of 3 points.") || len(e.Drawings) == 0 || !strings.HasPrefix(e.Drawings[0].Title, "mine breaks one-winner") || !e.Drawings[0].Handed {
		t.Errorf("the lock to begin with: %+v, %+v", q, e.Drawings)
	}
	if e, _ := answer("Guard:    order.Naive", "Guard:    order.Guarded", "unset: del}", "unset: compareAndDelete}"); e.Moral != texts.Say("12.moral", nil) {
		t.Errorf("the right lock: %+v", e)
	}
}

// awaitJob waits until no command of an exercise is running, and returns the last job.
func (p *labProcess) awaitJob() lab.Job {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if j := p.job(); !j.Running {
			return j
		}
		if time.Now().After(end) {
			p.t.Fatal("the job does not end")
		}
	}
}

// awaitIdle waits until the lab has started its servers and is idle.
func (p *labProcess) awaitIdle() {
	p.t.Helper()
	for end := time.Now().Add(patience); !p.idle(); time.Sleep(20 * time.Millisecond) {
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
	} {
		if _, err := doCommand(t.Context(), strings.Fields(tt.args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one that contains %s", tt.name, err, tt.want)
		}
	}
	var printed strings.Builder
	args := []string{"explore", "-strategies", "setnx-del", "-actors", "3", "-faults", "slow", "-property", "lease-exclusive", "-out", t.TempDir()}
	o, err := doCommand(t.Context(), args, &printed, io.Discard)
	if err != nil || len(o.Explored) != 1 || len(o.Explored[0].Failures) == 0 || len(o.Explored[0].Failures[0].Moments) == 0 || !strings.Contains(printed.String(), "setnx-del") {
		t.Errorf("doCommand: %+v, %v, %s", o, err, printed.String())
	}
}
