// Package status shows the progress of long work. On a terminal, it overwrites the same line again
// and again. Start reading at Line.Step.
package status

import (
	"fmt"
	"io"
	"time"
)

// Line shows progress on a single line of a terminal, or on plain lines elsewhere. It is not safe
// for concurrent use.
type Line struct {
	W     io.Writer
	TTY   bool          // whether W is a terminal
	Every time.Duration // least time between two plain lines

	shown time.Time
}

const ttyEvery = 100 * time.Millisecond

// Due reports whether enough time has passed since the last progress line to show another one.
func (l *Line) Due() bool {
	if l.TTY {
		return time.Since(l.shown) >= ttyEvery
	}
	return time.Since(l.shown) >= l.Every
}

// Step shows a progress line, unless the previous one was shown very recently.
func (l *Line) Step(format string, args ...any) {
	if l.Due() {
		l.Show(format, args...)
	}
}

// Show shows a progress line at once.
func (l *Line) Show(format string, args ...any) {
	l.shown = time.Now()
	l.Clear()
	fmt.Fprintf(l.W, format, args...)
	if !l.TTY {
		fmt.Fprintln(l.W)
	}
}

// Say prints a line that stays visible, because later progress lines do not overwrite it.
func (l *Line) Say(format string, args ...any) {
	l.Clear()
	fmt.Fprintf(l.W, format+"\n", args...)
}

// Clear erases the progress line on a terminal.
func (l *Line) Clear() {
	if l.TTY {
		fmt.Fprint(l.W, "\r\x1b[K")
	}
}
