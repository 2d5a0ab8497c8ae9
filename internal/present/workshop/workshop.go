// Package workshop contains twelve exercises about locks. In each exercise, the user predicts a
// result, runs commands, looks at their output, answers questions, and learns the moral (the lesson
// to remember).
//
// [Exercises] defines the questions, the commands and the rules for all exercises. measure.go
// extracts facts from command results, and judge.go compares answers with these facts. The text/
// folder has a file of sentences for each language. [Session] guides the user through an exercise,
// and [Progress] is saved between sessions.
package workshop

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/measure/experiment"
)

// ErrAnswer means that the user must correct something. An answer may be malformed, such as a word
// instead of a number, or another part of the exercise may come first.
var ErrAnswer = errors.New("workshop: no answer")

// Outcome is a command's result. Only the fields that belong to the command are set.
type Outcome struct {
	Run      *experiment.Run   // the result of the run command
	Explored []explore.Result  // the results of the explore command
	Excludes catalog.Exclusion // after explore, the exclusion that the first strategy promises
}

// Do runs this program with args, and writes the command's output to out.
type Do func(ctx context.Context, args []string, out io.Writer) (Outcome, error)

// Facts contains measured and random values by name. They fill the placeholders in commands and
// sentences.
type Facts map[string]string

// number returns a value as a number, or false if the value is missing or not a number.
func (f Facts) number(name string) (float64, bool) {
	x, err := strconv.ParseFloat(f[name], 64)
	return x, err == nil
}

// Step is a command in an exercise. Names in braces are placeholders for Facts.
type Step struct {
	command  string
	measures []measure // store the results of the command
}

// measure stores values from a command's result as facts.
type measure func(Outcome, Facts) error

func step(command string, measures ...measure) Step { return Step{command, measures} }

// Question asks about the commands' results, so the user answers it after the run.
type Question struct {
	Points  int
	Fields  []string // labels for an answer's words; nil if the answer is one word
	Choices []string // allowed words; nil if the answer is a number or a file
	File    bool     // whether the answer is a file; the user can submit it any number of times
	Edits   string   // the fact with the schedule to edit; empty if the file is a lock
	// Aim prepares the commands that check the answer: it stores parts of the answer as facts. It
	// may be nil.
	Aim func(words []string, f Facts) error
	// judge returns the key of the sentence that explains why the answer is right or wrong.
	judge func(*answer) string
}

// Words returns the number of words in an answer.
func (q Question) Words() int { return max(len(q.Fields), 1) }

// Mark contains an answer's points and the key of the explanation.
type Mark struct {
	Points int    `json:"points"`
	Why    string `json:"why"`
}

// Exercise describes one exercise: its commands, its questions, and how to judge the answers.
type Exercise struct {
	Number  int
	Minutes int
	Options string // the options' letters in the texts
	Right   string // the right option's letter

	Draw      func(*rand.Rand, Facts) // stores the exercise's random values; may be nil
	Show      []Step                  // steps that run after the prediction
	Questions []Question
	Check     []Step // steps that run after the answer, to judge it
	Own       bool   // whether the answer is a lock that the user writes, starting from OwnLock
	Hints     int    // number of hints
}

// Points returns the maximum score: one point for the prediction, plus the points for all
// questions.
func (e Exercise) Points() int {
	points := 1
	for _, q := range e.Questions {
		points += q.Points
	}
	return points
}

// Words returns the number of words in the answers to all questions.
func (e Exercise) Words() int {
	n := 0
	for _, q := range e.Questions {
		n += q.Words()
	}
	return n
}

// TakesFile reports whether the user answers a question of the exercise with a file.
func (e Exercise) TakesFile() bool {
	return slices.ContainsFunc(e.Questions, func(q Question) bool { return q.File })
}

// Find returns the exercise with this number. If there is none, it returns false.
func Find(number int) (Exercise, bool) {
	if number < 1 || number > len(Exercises) {
		return Exercise{}, false
	}
	return Exercises[number-1], true
}

// randomParts returns the order of an exercise's options and its random values. They depend only on
// the seed, so they are the same every time.
func (e Exercise) randomParts(seed uint64) (options []string, f Facts) {
	r := rand.New(rand.NewPCG(seed, uint64(e.Number)))
	options = strings.Split(e.Options, "")
	r.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	f = Facts{"seed": strconv.FormatUint(seed, 10)}
	if e.Draw != nil {
		e.Draw(r, f)
	}
	return options, f
}
