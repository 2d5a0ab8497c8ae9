package fleet

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"grablab/internal/history"
)

// Events reads the instances' event files, and remembers how much of each file it has read. The
// zero value is ready to use.
type Events struct {
	read map[string]int64  // number of bytes read, by file
	kept map[string]int64  // number of bytes copied by Keep, by file
	seen map[string]uint64 // last sequence number read, by instance
}

// Seen returns the last event's sequence number for each instance.
func (e *Events) Seen() map[string]uint64 { return maps.Clone(e.seen) }

// ReadEvents calls each for every new event of all instances. Only our own instances record events.
func (f *Fleet) ReadEvents(each func(history.Event)) error {
	var lost error
	if !f.Ours {
		return nil
	}
	for _, in := range f.Instances {
		lost = errors.Join(lost, f.Events.Read(in.events, each))
	}
	return lost
}

// Read calls each for every new event in a file. It returns an error if a line is unreadable. A
// check.Scan of the events also finds missing lines.
func (e *Events) Read(path string, each func(history.Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer f.Close()
	from := e.read[path]
	end, err := history.End(f)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if e.read == nil {
		e.read, e.kept, e.seen = map[string]int64{}, map[string]int64{}, map[string]uint64{}
	}
	e.read[path] = end
	var lost error
	for x, err := range history.Decode(io.NewSectionReader(f, from, end-from)) {
		if err != nil {
			lost = err
			continue
		}
		e.seen[x.Instance] = x.Seq
		each(x)
	}
	return lost
}

// Again calls each a second time for every event that was read since the last call to Keep.
func (e *Events) Again(each func(history.Event)) error {
	return e.sections(func(_ string, s *io.SectionReader) error {
		for x, err := range history.Decode(s) {
			if err == nil { // Read has already reported unreadable lines
				each(x)
			}
		}
		return nil
	})
}

// Keep copies to w the events that were read since Keep was last called.
func (e *Events) Keep(w io.Writer) error {
	return e.sections(func(path string, s *io.SectionReader) error {
		_, err := io.Copy(w, s)
		e.kept[path] = e.read[path]
		return err
	})
}

// sections calls each for the part of every file that was read since the last call to Keep.
func (e *Events) sections(each func(path string, s *io.SectionReader) error) error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(e.read)) {
		f, err := os.Open(path)
		if err == nil {
			err = errors.Join(each(path, io.NewSectionReader(f, e.kept[path], e.read[path]-e.kept[path])), f.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("fleet: %w", err))
		}
	}
	return errors.Join(errs...)
}
