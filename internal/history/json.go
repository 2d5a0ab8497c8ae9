package history

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// maxNote is how many bytes of an event's note are recorded. A note may contain a long error.
	maxNote = 1 << 10
	// maxLine is the maximum length of a line that can be read.
	maxLine = 64 << 10
)

// parse decodes a line of an event file. It returns an error if the line contains no event.
func parse(line []byte) (Event, error) {
	var e Event
	if len(line) > maxLine {
		return Event{}, fmt.Errorf("it has %d bytes", len(line))
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, err
	}
	if e.Seq == 0 || e.Kind == "" {
		return Event{}, errors.New("no event")
	}
	return e, nil
}
