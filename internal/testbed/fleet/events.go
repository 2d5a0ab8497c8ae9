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

// Events follows the event files of a fleet's own instances. Its zero value has
// read nothing.
type Events struct {
	read map[string]int64  // bytes of each file
	kept map[string]int64  // of those, copied by Keep
	seen map[string]uint64 // last sequence number of each instance
}

// Seen is the last sequence number of each instance that was read.
func (e *Events) Seen() map[string]uint64 { return maps.Clone(e.seen) }

// ReadEvents is Events.Read for the file of every instance.
func (f *Fleet) ReadEvents(each func(history.Event)) error {
	var lost error
	for _, in := range f.Instances {
		lost = errors.Join(lost, f.Events.Read(in.events, each))
	}
	return lost
}

// Read hands on every event that was written to an instance's file since the last
// time. Its error says that some were lost.
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

// Again hands on once more every event that was read since the last Keep.
func (e *Events) Again(each func(history.Event)) error {
	return e.sections(func(_ string, s *io.SectionReader) error {
		for x, err := range history.Decode(s) {
			if err == nil { // what was lost has been reported before
				each(x)
			}
		}
		return nil
	})
}

// Keep copies to w what was read since the last time, file by file.
func (e *Events) Keep(w io.Writer) error {
	return e.sections(func(path string, s *io.SectionReader) error {
		_, err := io.Copy(w, s)
		e.kept[path] = e.read[path]
		return err
	})
}

// sections opens of each file what was read and not kept.
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
