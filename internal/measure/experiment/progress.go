package experiment

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/measure/status"
)

// progress shows how many tests have finished, and how long the remaining ones may take.
type progress struct {
	mu      sync.Mutex
	line    status.Line
	total   int
	begun   int
	running []*workerProgress // workers that are running a test, the earliest start first
	pace    [2]pace           // for tests without a fault, and for tests with a fault
}

// pace measures how fast tests finish. There is one pace for tests without a fault, and one for
// tests with a fault.
type pace struct {
	left, done int
	atOnce     int
	took       time.Duration // total time that the finished tests took
}

type workerProgress struct {
	*progress
	cell   string
	number int // number of the test in the order in which tests start, from 1
	pace   *pace
	since  time.Time
}

func newProgress(cfg Config) *progress {
	return &progress{line: status.Line{W: cmp.Or(cfg.Log, io.Discard), TTY: cfg.TTY, Every: 5 * time.Second}}
}

// expect sets how many tests without and with a fault will run. The workers share only the tests
// with a fault.
func (p *progress) expect(faultless, faulty, workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = faultless + faulty
	p.pace = [2]pace{{left: faultless, atOnce: 1}, {left: faulty, atOnce: workers}}
}

func (t *workerProgress) begin(s *cellSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress.begun++
	t.number, t.since = t.progress.begun, time.Now()
	t.cell, t.pace = s.Strategy, &t.progress.pace[0]
	if s.Fault != catalog.NoFault {
		t.cell, t.pace = s.String(), &t.progress.pace[1]
	}
	t.running = append(t.running, t)
	t.showLocked(t, "")
}

// step shows progress within a test, unless it did so very recently.
func (t *workerProgress) step(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.Due() {
		t.showLocked(t, "  "+fmt.Sprintf(format, args...))
	}
}

func (t *workerProgress) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.left--
	t.pace.done++
	t.pace.took += time.Since(t.since)
	t.running = slices.DeleteFunc(t.running, func(o *workerProgress) bool { return o == t })
}

// say prints a message at once, even if a progress line is visible.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.Say(format, args...)
}

// showLocked shows what a worker is doing. On a terminal, it shows the tests of all workers. The
// caller must hold the mutex.
func (p *progress) showLocked(t *workerProgress, detail string) {
	line := fmt.Sprintf("[%d/%d] %s", t.number, p.total, t.cell)
	if p.line.TTY && len(p.running) > 1 {
		cells := catalog.Join(p.running, ", ", func(o *workerProgress) string { return o.cell })
		line, detail = fmt.Sprintf("[%d/%d] %s", p.begun, p.total, cells), ""
	}
	if left, ok := p.timeLeftLocked(); ok {
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	p.line.Show("%s%s", line, detail)
}

// timeLeftLocked estimates the remaining time. It returns false if no test has finished yet, or if
// all have.
func (p *progress) timeLeftLocked() (left time.Duration, ok bool) {
	for _, k := range p.pace {
		if k.left == 0 {
			continue
		}
		if k.done == 0 {
			return 0, false
		}
		left += k.took / time.Duration(k.done) * time.Duration(k.left) / time.Duration(k.atOnce)
		ok = true
	}
	for _, t := range p.running {
		left -= time.Since(t.since) / time.Duration(t.pace.atOnce)
	}
	return max(left, 0), ok
}
