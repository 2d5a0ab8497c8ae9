package experiment

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/measure/status"
)

// progress shows how far a run has come and how long it may still take.
type progress struct {
	mu      sync.Mutex
	line    status.Line
	total   int
	begun   int
	running []*workerProgress // workers with a running cell, in the order of its start
	pace    [2]pace           // for cells without a fault and cells with one
}

// pace is the speed at which the cells of a kind finish.
type pace struct {
	left, done int
	atOnce     int
	took       time.Duration // total time of the finished cells
}

// workerProgress is the progress of one worker.
type workerProgress struct {
	*progress
	cell   string // the name that is shown
	number int    // of the cell, counted from 1 in the order of the starts
	pace   *pace  // for cells of its kind
	since  time.Time
}

func newProgress(cfg Config) *progress {
	return &progress{line: status.Line{W: cmp.Or(cfg.Log, io.Discard), TTY: cfg.TTY, Every: 5 * time.Second}}
}

// expect sets the number of cells to come. Cells without a fault run one by one, and cells
// with a fault run on several workers at once.
func (p *progress) expect(calm, faulty, workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = calm + faulty
	p.pace = [2]pace{{left: calm, atOnce: 1}, {left: faulty, atOnce: workers}}
}

// begin records the start of a cell.
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

// step reports the progress of the cell, at a readable rate.
func (t *workerProgress) step(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.Due() {
		t.showLocked(t, "  "+fmt.Sprintf(format, args...))
	}
}

// end records the end of the cell.
func (t *workerProgress) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.left--
	t.pace.done++
	t.pace.took += time.Since(t.since)
	t.running = slices.DeleteFunc(t.running, func(o *workerProgress) bool { return o == t })
}

// say prints a line at once, even in the middle of a progress line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.Say(format, args...)
}

// showLocked prints what a worker is doing. A terminal shows all workers, but only the names
// of their cells.
func (p *progress) showLocked(t *workerProgress, detail string) {
	line := fmt.Sprintf("[%d/%d] %s", t.number, p.total, t.cell)
	if p.line.TTY && len(p.running) > 1 {
		var cells []string
		for _, o := range p.running {
			cells = append(cells, o.cell)
		}
		line, detail = fmt.Sprintf("[%d/%d] %s", p.begun, p.total, strings.Join(cells, ", ")), ""
	}
	if left, ok := p.timeLeftLocked(); ok {
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	p.line.Show("%s%s", line, detail)
}

// timeLeftLocked estimates the remaining time from the finished cells. It returns false if
// no cell is left, or if no cell of a remaining kind has finished.
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
