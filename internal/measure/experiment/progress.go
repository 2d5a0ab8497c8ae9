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

// progress shows how far a run has come, and how long it may still take.
type progress struct {
	mu      sync.Mutex
	line    status.Line
	total   int
	begun   int
	running []*workerProgress // with a cell under way, in the order in which these began
	pace    [2]pace           // of cells without a fault, and with one
}

// pace is how fast the cells of a kind get done.
type pace struct {
	left, done int
	atOnce     int
	took       time.Duration // those that are done, together
}

// workerProgress is the progress of one worker.
type workerProgress struct {
	*progress
	cell   string // as it is shown
	number int    // of the cell, in the order in which cells began; from 1
	pace   *pace  // of cells of its kind
	since  time.Time
}

func newProgress(cfg Config) *progress {
	return &progress{line: status.Line{W: cmp.Or(cfg.Log, io.Discard), TTY: cfg.TTY, Every: 5 * time.Second}}
}

// expect sets how many cells are to come: calm ones one by one, then faulty ones
// by so many workers at a time.
func (p *progress) expect(calm, faulty, workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = calm + faulty
	p.pace = [2]pace{{left: calm, atOnce: 1}, {left: faulty, atOnce: workers}}
}

// begin begins a cell.
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

// step reports how far the cell has come, not more often than can be read.
func (t *workerProgress) step(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.Due() {
		t.showLocked(t, "  "+fmt.Sprintf(format, args...))
	}
}

// end ends the cell.
func (t *workerProgress) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.left--
	t.pace.done++
	t.pace.took += time.Since(t.since)
	t.running = slices.DeleteFunc(t.running, func(o *workerProgress) bool { return o == t })
}

// say is printed at once, also in the middle of a progress line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.Say(format, args...)
}

// showLocked prints what a worker is doing. A terminal shows all workers at a
// time, and no more of each than its cell.
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

// timeLeftLocked estimates for how long the run will go on, from the cells that are
// done; !ok: none is left, or none is done yet of a kind that is left.
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
