// Package status shows how far a long piece of work has come: on a terminal by a
// line that overwrites itself, elsewhere by a plain line now and then. Begin at
// Line.Step.
package status

import (
	"fmt"
	"io"
	"time"
)

// Line is the progress line. It is not safe for concurrent use.
type Line struct {
	W     io.Writer
	TTY   bool          // W is a terminal
	Every time.Duration // between two plain lines, at least

	shown time.Time
}

const ttyEvery = 100 * time.Millisecond

// Due says whether the line that is shown is old enough to be replaced.
func (l *Line) Due() bool {
	if l.TTY {
		return time.Since(l.shown) >= ttyEvery
	}
	return time.Since(l.shown) >= l.Every
}

// Step is Show, if it is due.
func (l *Line) Step(format string, args ...any) {
	if l.Due() {
		l.Show(format, args...)
	}
}

// Show replaces the line that is shown.
func (l *Line) Show(format string, args ...any) {
	l.shown = time.Now()
	l.Clear()
	fmt.Fprintf(l.W, format, args...)
	if !l.TTY {
		fmt.Fprintln(l.W)
	}
}

// Say prints a line that stays.
func (l *Line) Say(format string, args ...any) {
	l.Clear()
	fmt.Fprintf(l.W, format+"\n", args...)
}

// Clear erases the terminal's line.
func (l *Line) Clear() {
	if l.TTY {
		fmt.Fprint(l.W, "\r\x1b[K")
	}
}
