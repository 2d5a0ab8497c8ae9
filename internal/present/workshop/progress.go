package workshop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/testbed/infile"

	"github.com/google/renameio/v2"
)

// progressSchema is the version of the progress file format.
const progressSchema = 1

// Progress records the user's progress in all exercises. It is saved in a file.
type Progress struct {
	Schema    int            `json:"schema"`
	Seed      uint64         `json:"seed"`
	Exercises map[int]*State `json:"exercises"`

	path string
}

// State is the user's progress in one exercise.
type State struct {
	// Predicted is the letter, in the text files, of the option that the user has predicted. The
	// screen shows the options in random order, so their letters differ there. It is empty before the
	// prediction.
	Predicted string   `json:"predicted"`
	Ran       bool     `json:"ran"`     // whether the commands have run
	Facts     Facts    `json:"facts"`   // random and measured values that fill the placeholders in texts and commands
	Answers   []Answer `json:"answers"` // one per question
	Hints     int      `json:"hints"`   // number of hints shown so far
}

// Answer is the user's progress on one question.
type Answer struct {
	Right bool     `json:"right"`
	Best  int      `json:"best"`            // the highest score for an answer so far
	Wrong int      `json:"wrong"`           // number of wrong answers, except for files
	Given []string `json:"given,omitempty"` // the last answer
	Last  *Mark    `json:"last,omitempty"`  // the mark for the last answer; nil if there was none
}

// ReadProgress reads a progress file, or returns a new Progress with this seed if there is no file
// yet.
func ReadProgress(path string, seed uint64) (*Progress, error) {
	p := &Progress{Schema: progressSchema, Seed: seed, Exercises: map[int]*State{}, path: path}
	b, err := infile.Read(path, infile.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	if err == nil && p.Schema != progressSchema {
		err = fmt.Errorf("the file has version %d, but this program reads only version %d", p.Schema, progressSchema)
	}
	if err == nil && (p.Exercises == nil || slices.Contains(slices.Collect(maps.Values(p.Exercises)), nil)) {
		err = errors.New("an exercise is null")
	}
	if err != nil {
		return nil, fmt.Errorf("workshop: %s: %w: delete your progress with -reset, and start again", path, err)
	}
	return p, nil
}

// Save writes the progress to its file.
func (p *Progress) Save() error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return save(p.path, append(b, '\n'))
}

// save writes a file atomically, and creates its folder if necessary.
func save(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}

// stateOf returns the user's progress in an exercise. Before the first attempt, that contains only
// the exercise's random values.
func (p *Progress) stateOf(e Exercise) *State {
	s := p.Exercises[e.Number]
	if s == nil {
		s = &State{}
		_, s.Facts = e.randomParts(p.Seed)
		p.Exercises[e.Number] = s
	}
	for len(s.Answers) < len(e.Questions) {
		s.Answers = append(s.Answers, Answer{})
	}
	s.Answers = s.Answers[:len(e.Questions)] // an older version may have asked more questions
	return s
}

// isDone reports whether the user has made a prediction and has answered all questions correctly.
func (s *State) isDone() bool {
	isWrong := func(a Answer) bool { return !a.Right }
	return s.Predicted != "" && !slices.ContainsFunc(s.Answers, isWrong)
}

// word returns an exercise's state: "done", "begun" or "todo".
func (s *State) word() string {
	switch {
	case s.isDone():
		return "done"
	case s.Predicted != "":
		return "begun"
	}
	return "todo"
}

// points returns the score for an exercise. A correct prediction earns a point, and each wrong
// answer or hint costs one.
func (s *State) points(e Exercise) int {
	points := 0
	for i := range e.Questions {
		points += max(0, s.Answers[i].Best-s.Answers[i].Wrong)
	}
	points = max(0, points-s.Hints)
	if s.Ran && s.Predicted == e.Right { // before the run, the score would reveal the answer
		points++
	}
	return points
}

// Points returns the total score and the maximum score.
func (p *Progress) Points() (points, of int) {
	for _, e := range Exercises {
		points += p.stateOf(e).points(e)
		of += e.Points()
	}
	return points, of
}

// Next returns the number of the first unfinished exercise, or 0 if all are finished.
func (p *Progress) Next() int {
	return catalog.First(Exercises, func(e Exercise) bool { return !p.stateOf(e).isDone() }).Number
}

// isSettled reports whether an answer is correct and final. A file is never final, because the user
// can submit it again.
func (s *State) isSettled(i int, q Question) bool { return s.Answers[i].Right && !q.File }
