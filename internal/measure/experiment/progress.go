package experiment

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/measure/status"
)

// progress shows which test is running, and how many there are.
type progress struct {
	mu    sync.Mutex
	line  status.Line
	total int // number of tests in the run
	begun int
}

// workerProgress shows the progress of one worker.
type workerProgress struct {
	*progress
	cell   string
	number int // number of the test in the order in which tests start, from 1
}

func newProgress(cfg Config) *progress {
	return &progress{line: status.Line{W: cmp.Or(cfg.Log, io.Discard), TTY: cfg.TTY, Every: 5 * time.Second}}
}

func (t *workerProgress) begin(s *cellSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress.begun++
	t.number = t.progress.begun
	t.cell = s.Strategy
	if s.Fault != catalog.NoFault {
		t.cell = s.String()
	}
	t.showLocked("")
}

// step shows progress within a test, unless it did so very recently.
func (t *workerProgress) step(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.Due() {
		t.showLocked("  " + fmt.Sprintf(format, args...))
	}
}

// showLocked shows what the worker is doing. The caller must hold the mutex.
func (t *workerProgress) showLocked(detail string) {
	t.line.Show("[%d/%d] %s%s", t.number, t.total, t.cell, detail)
}

// say prints a message at once, even if a progress line is visible.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.Say(format, args...)
}
