package experiment

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
)

// progress shows how far a run has come: on a terminal by a line that
// overwrites itself, elsewhere by a plain line now and then.
type progress struct {
	w   io.Writer
	tty bool

	mu      sync.Mutex
	total   int
	begun   int
	running []*workerProgress // with a cell under way, in the order in which these began
	pace    [2]pace           // of cells without a fault, and with one
	width   int               // of the line on the terminal
	printed time.Time
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
	cell   string
	number int
	pace   *pace
	since  time.Time
}

const (
	ttyEvery   = 100 * time.Millisecond
	plainEvery = 5 * time.Second
)

func newProgress(cfg Config) *progress {
	w := cfg.Log
	if w == nil {
		w = io.Discard
	}
	return &progress{w: w, tty: cfg.TTY, printed: time.Now()}
}

// expect says how many cells are to come: those without a fault one by one,
// then those with one by so many workers at a time.
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
	every := plainEvery
	if t.tty {
		every = ttyEvery
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.printed) >= every {
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
	p.clearLocked()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// showLocked prints what a worker is doing. A terminal shows all workers at a
// time, and no more of each than its cell.
func (p *progress) showLocked(t *workerProgress, detail string) {
	p.printed = time.Now()
	line := fmt.Sprintf("[%d/%d] %s", t.number, p.total, t.cell)
	if p.tty && len(p.running) > 1 {
		var cells []string
		for _, o := range p.running {
			cells = append(cells, o.cell)
		}
		line, detail = fmt.Sprintf("[%d/%d] %s", p.begun, p.total, strings.Join(cells, ", ")), ""
	}
	if left, ok := p.timeLeftLocked(); ok {
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	line += detail
	if !p.tty {
		fmt.Fprintln(p.w, line)
		return
	}
	p.clearLocked()
	fmt.Fprint(p.w, line)
	p.width = len(line)
}

// timeLeftLocked estimates for how long the run will go on, from the cells that are
// done; !ok: of a kind that is still to come none is, or none is to come.
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

// clearLocked wipes the line on the terminal.
func (p *progress) clearLocked() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}

// close leaves the terminal clean.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
}
