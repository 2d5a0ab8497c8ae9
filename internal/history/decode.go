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

// ErrEventsLost means that a line of the file is unreadable, so at least one event is missing.
var ErrEventsLost = errors.New("history: events lost")

// Decode yields the events in r in order. If a line is unreadable, it yields an error that wraps
// ErrEventsLost, and continues. Any other error comes from r and ends the sequence. Decode does not
// notice missing lines, but their numbers are missing from the field Seq.
func Decode(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewReaderSize(r, maxLine)
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
				err = fmt.Errorf("%w: line %d cannot be read: %w", ErrEventsLost, no, err)
			}
			if !yield(e, err) {
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
