package workshop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"grablab/internal/testbed/infile"
)

// progressSchema is the version of the file.
const progressSchema = 1

// Progress is what is kept between two calls: one file in the results folder.
type Progress struct {
	Schema    int            `json:"schema"`
	Seed      uint64         `json:"seed"`
	Exercises map[int]*State `json:"exercises"`

	path  string
	write func(path string, data []byte) error
}

// State is how far one exercise has come.
type State struct {
	Predicted string   `json:"predicted"` // the first prediction, as the texts name options; "": none yet
	Ran       bool     `json:"ran"`
	Facts     Facts    `json:"facts"`
	Answers   []Answer `json:"answers"` // one for each question
	Hints     int      `json:"hints"`   // that were asked for
}

// Answer is what became of one question.
type Answer struct {
	Right bool     `json:"right"`
	Best  int      `json:"best"`            // points that an answer has brought so far
	Wrong int      `json:"wrong"`           // answers that were wrong; of a file none counts
	Given []string `json:"given,omitempty"` // the last answer
	Last  *Mark    `json:"last,omitempty"`  // what that was worth; nil: there was none
}

// ReadProgress reads the file, or begins with a seed where there is none. write is how
// it is written, whole or not at all.
func ReadProgress(path string, seed uint64, write func(path string, data []byte) error) (*Progress, error) {
	p := &Progress{Schema: progressSchema, Seed: seed, Exercises: map[int]*State{}, path: path, write: write}
	b, err := infile.Read(path, infile.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	if err == nil && p.Schema != progressSchema {
		err = fmt.Errorf("it is of version %d, and this program knows %d", p.Schema, progressSchema)
	}
	if err != nil {
		return nil, fmt.Errorf("workshop: %s: %w; -reset begins anew", path, err)
	}
	return p, nil
}

// Save writes the file.
func (p *Progress) Save() error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p.path), 0o755)
	}
	if err == nil {
		err = p.write(p.path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("workshop: %w", err)
	}
	return nil
}

// of is the state of an exercise, which begins with what the seed draws.
func (p *Progress) of(e Exercise) *State {
	s := p.Exercises[e.Number]
	if s == nil {
		s = &State{}
		_, s.Facts = e.drawn(p.Seed)
		p.Exercises[e.Number] = s
	}
	for len(s.Answers) < len(e.Questions) {
		s.Answers = append(s.Answers, Answer{})
	}
	return s
}

// done says whether nothing is left to answer.
func (s *State) done() bool {
	for _, a := range s.Answers {
		if !a.Right {
			return false
		}
	}
	return s.Predicted != ""
}

// word is the name of how far it has come.
func (s *State) word() string {
	switch {
	case s.done():
		return "done"
	case s.Predicted != "":
		return "begun"
	}
	return "todo"
}

// points are those of an exercise so far: one for a right first prediction, and what the
// answers brought, one less for each that was wrong before and for each hint.
func (s *State) points(e Exercise) int {
	points := 0
	for i := range e.Questions {
		points += max(0, s.Answers[i].Best-s.Answers[i].Wrong)
	}
	points = max(0, points-s.Hints)
	if s.Ran && s.Predicted == e.Right { // before, the score would give the answer away
		points++
	}
	return points
}

// Points are those of all exercises so far, and those that there are.
func (p *Progress) Points() (points, of int) {
	for _, e := range Exercises {
		points += p.of(e).points(e)
		of += e.Points()
	}
	return points, of
}

// Next is the first exercise that is not done; 0: all are.
func (p *Progress) Next() int {
	for _, e := range Exercises {
		if !p.of(e).done() {
			return e.Number
		}
	}
	return 0
}
