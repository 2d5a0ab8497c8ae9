// Package workshop contains twelve exercises about locks. In each exercise, the user predicts a
// result, runs commands, looks at their output, answers questions, and learns the moral (the lesson
// to remember).
//
// [Exercises] defines the questions, the commands and the rules for all exercises. measure.go
// extracts facts from the results of commands, and judge.go compares answers with these facts. The
// folder text/ has one file of sentences for each language. [Session] guides the user through an
// exercise, and [Progress] is saved between two sessions.
package workshop

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/replay"
)

var (
	// ErrAnswer means that an answer is malformed, such as a word instead of a number.
	ErrAnswer = errors.New("workshop: no answer")
	// ErrEarly means that the user must do another part of the exercise first.
	ErrEarly = errors.New("workshop: too early")
)

// Outcome is the result of a command. Only the fields that belong to the command are set.
type Outcome struct {
	Run      *experiment.Run   // the result of the run command
	Explored []explore.Result  // the results of the explore command
	Excludes catalog.Exclusion // after explore, the exclusion that the first strategy promises
	Forced   *replay.Result    // the result of run -schedule
	Scripts  *Scripts          // the result of workshop -script-flush
}

// Scripts contains an instance's responses to a lock request and an unlock request, between which
// Redis has lost its scripts.
type Scripts struct {
	Locked   bool
	NoScript string // the error of EVALSHA after SCRIPT FLUSH
	Released int    // the number of locks that the unlock released, according to the instance
}

// Do runs a command of this program, with args after the name of the program, and writes its output
// to out.
type Do func(ctx context.Context, args []string, out io.Writer) (Outcome, error)

// Facts contains values that were measured or chosen at random, by name. They fill the placeholders
// in commands and sentences.
type Facts map[string]string

// number returns a value as a number, or false if the value is missing or is not a number.
func (f Facts) number(name string) (float64, bool) {
	x, err := strconv.ParseFloat(f[name], 64)
	return x, err == nil
}

// Step is a command of an exercise. Names in braces are placeholders for Facts.
type Step struct {
	Run     string
	Servers bool // whether the step needs redis-server, and MariaDB or MySQL, for -stack local
	Measure func(Outcome, Facts) error
	// Instead lists the steps to run if the servers are missing.
	Instead []Step
}

// Question asks about the results of the commands, so the user answers it after the run.
type Question struct {
	Points  int
	Fields  []string // labels for the words of an answer; nil if the answer is one word
	Choices []string // the allowed words; nil if the answer is a figure or a file
	File    bool     // whether the answer is a file, which may be handed in any number of times
	Edits   string   // the fact that contains the schedule to edit; empty if the file is a lock
	// Aim prepares the commands that check the answer, by storing parts of the answer as facts. It
	// may be nil.
	Aim func(words []string, f Facts) error
	// judge returns why the answer is right or wrong, as the key of a sentence.
	judge func(*answer) string
}

// Words returns the number of words in an answer.
func (q Question) Words() int { return max(len(q.Fields), 1) }

// Mark contains the points for an answer and the key of the explanation.
type Mark struct {
	Points int    `json:"points"`
	Why    string `json:"why"`
}

// Claim is a value that the text of an exercise mentions. If the user's run measures a different
// value, the user gets a warning.
type Claim struct{ Fact, Value string }

// Exercise describes one exercise: its commands, its questions, and how to judge the answers.
type Exercise struct {
	Number  int
	Minutes int
	Options string // letters that the options have in the texts
	Right   string // letter of the right option

	Draw      func(*rand.Rand, Facts)
	Show      []Step // the steps that run after the prediction
	Claims    []Claim
	Questions []Question
	Try       *Step  // command with a figure, {try}, that the user chooses; nil if there is none
	Check     []Step // the steps that run after the answer, to judge it
	Own       bool   // whether the answer is a lock that the user writes, starting from OwnLock
	Hints     int
}

// Points returns the maximum score: one point for the prediction, and the points of all questions.
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

// Find returns the exercise with this number. If there is none, it returns false.
func Find(number int) (Exercise, bool) {
	if number < 1 || number > len(Exercises) {
		return Exercise{}, false
	}
	return Exercises[number-1], true
}

// randomParts returns the order of the options and the random values of an exercise. They depend
// only on the seed, so they are the same every time.
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

// arguments splits a command into words and fills in the values of f. A value that contains spaces
// stays one word.
func arguments(command string, f Facts) []string {
	words := strings.Fields(command)
	for i, word := range words {
		words[i] = f.fill(word)
	}
	return words
}
