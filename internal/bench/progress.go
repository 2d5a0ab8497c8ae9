package bench

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress tells how far a run has come: on a terminal by a line that
// overwrites itself, elsewhere by a plain line now and then.
type progress struct {
	w   io.Writer
	tty bool

	mu    sync.Mutex
	head  string
	width int // of the line that stands on the terminal
	last  time.Time
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
	return &progress{w: w, tty: cfg.TTY, last: time.Now()}
}

// cell begins the nth cell of total.
func (p *progress) cell(n, total int, name string) {
	p.mu.Lock()
	p.head = fmt.Sprintf("[%d/%d] %s", n, total, name)
	p.last = time.Now()
	p.mu.Unlock()
	p.show(p.head)
}

// step tells of the cell under way, not more often than anybody reads.
func (p *progress) step(format string, args ...any) {
	every := plainEvery
	if p.tty {
		every = ttyEvery
	}
	p.mu.Lock()
	due := time.Since(p.last) >= every
	if due {
		p.last = time.Now()
	}
	head := p.head
	p.mu.Unlock()
	if due {
		p.show(head + "  " + fmt.Sprintf(format, args...))
	}
}

// say is printed at once, also in the middle of a progress line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) show(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.tty {
		fmt.Fprintln(p.w, line)
		return
	}
	p.clear()
	fmt.Fprint(p.w, line)
	p.width = len(line)
}

// clear wipes the line that stands on the terminal. p.mu is held.
func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}

// end leaves the terminal clean.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}
