package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// ErrEventsLost means that events are missing from the file.
var ErrEventsLost = errors.New("history: events lost")

// Decode yields the events in r in order. If a line is unreadable or events are missing, it yields
// an error that wraps ErrEventsLost, and continues. Any other error comes from r and ends the
// sequence.
func Decode(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewReaderSize(r, maxLine)
		last := map[string]Event{} // the last event of each instance
		for no := 1; ; no++ {
			line, err := lines.ReadBytes('\n')
			switch {
			case err == io.EOF && len(line) == 0:
				return
			case err != nil && err != io.EOF: // the last line may have no newline
				yield(Event{}, fmt.Errorf("history: %w", err))
				return
			}
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			e, err := parse(line)
			if err != nil {
				if !yield(Event{}, fmt.Errorf("%w: line %d cannot be read: %w", ErrEventsLost, no, err)) {
					return
				}
				continue
			}
			if e.Op == Cell {
				clear(last) // another cell of the run may reuse the names for other processes
			}
			before, known := last[e.Instance]
			if gap := known && e.Incarnation == before.Incarnation && e.Seq != before.Seq+1; gap {
				if !yield(Event{}, fmt.Errorf("%w: events are missing at line %d: event %d of %s follows event %d", ErrEventsLost, no, e.Seq, e.Instance, before.Seq)) {
					return
				}
			}
			last[e.Instance] = e
			if !yield(e, nil) {
				return
			}
		}
	}
}

// lastIncarnation returns the incarnation in the last complete event in tail, or 0 if there is
// none.
func lastIncarnation(tail []byte) int {
	lines := bytes.Split(tail, []byte{'\n'})
	for _, line := range slices.Backward(lines) {
		if e, err := parse(line); err == nil {
			return e.Incarnation
		}
	}
	return 0
}
