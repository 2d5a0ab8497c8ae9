package lockbench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells how far the benchmark has come: on a terminal by a line that
// overwrites itself, elsewhere by a plain line now and then.
type progress struct {
	w     io.Writer
	tty   bool
	width int
	last  time.Time
}

const (
	ttyEvery   = 100 * time.Millisecond
	plainEvery = 10 * time.Second
)

// step is shown not more often than anybody reads.
func (p *progress) step(format string, args ...any) {
	every := plainEvery
	if p.tty {
		every = ttyEvery
	}
	if time.Since(p.last) >= every {
		p.show(format, args...)
	}
}

func (p *progress) show(format string, args ...any) {
	p.last = time.Now()
	line := fmt.Sprintf(format, args...)
	if !p.tty {
		fmt.Fprintln(p.w, line)
		return
	}
	p.end()
	fmt.Fprint(p.w, line)
	p.width = len(line)
}

// say is printed whole, also in the middle of a progress line.
func (p *progress) say(format string, args ...any) {
	p.end()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// end leaves the terminal clean.
func (p *progress) end() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}
