package lockbench

import (
	"fmt"
	"io"
	"time"
)

// progress tells how far the benchmark has come: on a terminal by a line that
// overwrites itself, elsewhere by a plain line now and then.
type progress struct {
	w    io.Writer
	tty  bool
	last time.Time // of the last step that was printed
}

// step is printed unless the one before it is too recent.
func (p *progress) step(format string, args ...any) {
	every, end := 10*time.Second, "\n"
	if p.tty {
		every, end = 100*time.Millisecond, ""
	}
	if time.Since(p.last) >= every {
		p.last = time.Now()
		p.clear()
		fmt.Fprintf(p.w, format+end, args...)
	}
}

// say prints a line that stays.
func (p *progress) say(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear erases the terminal's line.
func (p *progress) clear() {
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
