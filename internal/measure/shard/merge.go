package shard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"grablab/internal/testbed/load"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Part is the result of one shard.
type Part struct {
	Record
	Answers string // file with the responses to the shard's requests, in vegeta's encoding
}

// maxApart is the largest clock difference between two shards at which a merged result still
// reports latencies.
const maxApart = time.Second

// Merge combines several shards' results as if one process had sent the whole load.
type Merge struct {
	Merged
	Parts []Part
}

// New returns a Merge of the given parts. lost maps the index of each missing part to the reason.
func New(count int, parts []Part, lost map[int]string) *Merge {
	m := &Merge{Merged{Count: count}, parts}
	has := map[int]bool{}
	for _, p := range parts {
		has[p.Index] = true
		for _, o := range parts {
			m.ClocksApartMS = max(m.ClocksApartMS, p.ClockMS-o.ClockMS)
		}
	}
	for i := range count {
		switch {
		case lost[i] != "":
			m.Lost = append(m.Lost, fmt.Sprintf("shard %d of %d: %s", i, count, lost[i]))
		case !has[i]:
			m.Lost = append(m.Lost, fmt.Sprintf("shard %d of %d: none of the folders contains the result of this shard", i, count))
		}
	}
	return m
}

// Apart returns a message if two shards' clocks differ so much that their times are not comparable,
// and "" otherwise.
func (m Merged) Apart() string {
	if m.ClocksApartMS <= float64(maxApart.Milliseconds()) {
		return ""
	}
	return fmt.Sprintf("the clocks of two shards differ by %.1f s, so latencies and the order of requests are unknown: synchronize the clocks", m.ClocksApartMS/1000)
}

// Began returns when the first shard began, by the database's clock.
func (m *Merge) Began() (first time.Time) {
	for i, p := range m.Parts {
		if began := p.BeganAt.Add(-p.ahead()); i == 0 || began.Before(first) {
			first = began
		}
	}
	return first
}

func (r Record) ahead() time.Duration { return time.Duration(r.ClockMS * float64(time.Millisecond)) }

// Replay calls each for every recorded response, with the time at which the request was due by the
// database's clock. It takes one response from each part in turn, so that responses for the same
// order stay close together. newPlan must return the plan of the whole load.
func (m *Merge) Replay(cfg load.Config, newPlan func() *load.Plan, each func(r *vegeta.Result, due time.Time) error) error {
	readers := make([]*reader, len(m.Parts))
	for i, p := range m.Parts {
		f, err := os.Open(p.Answers)
		if err != nil {
			return fmt.Errorf("shard: %w", err)
		}
		defer f.Close()
		plan := newPlan()
		plan.Split(load.Share{Index: p.Index, Count: p.Count})
		readers[i] = &reader{p, plan, vegeta.NewDecoder(bufio.NewReader(f)), 0}
	}
	for len(readers) > 0 {
		var open []*reader
		for _, r := range readers {
			result, err := r.next()
			if errors.Is(err, io.EOF) {
				continue
			}
			if err == nil {
				err = each(result, r.BeganAt.Add(r.plan.Due(cfg, result.Seq)-r.ahead()))
			}
			if err != nil {
				return fmt.Errorf("shard: %s: %w", r.Answers, err)
			}
			open = append(open, r)
		}
		readers = open
	}
	return nil
}

type reader struct {
	Part
	plan   *load.Plan
	decode vegeta.Decoder
	count  int
}

// next returns the next response, with its time converted to the database's clock. After the last
// response, it returns io.EOF.
func (r *reader) next() (*vegeta.Result, error) {
	result := new(vegeta.Result)
	err := r.decode(result)
	switch {
	case errors.Is(err, io.EOF) && r.count < r.plan.Requests():
		return nil, fmt.Errorf("the file contains only %d of %d answers: copy it again from the machine of the shard", r.count, r.plan.Requests())
	case err != nil:
		return nil, err
	}
	r.count++
	result.Timestamp = result.Timestamp.Add(-r.ahead())
	return result, nil
}
