// Package workshop contains twelve exercises. Each one defines its questions, the commands
// that it runs, the facts that it measures, and the rules that judge an answer.
//
// An exercise has five parts: predict, run, look, answer, moral. [Exercises] is the table of
// exercises. measure.go extracts facts from the results of commands, and judge.go compares
// answers with the facts. Both are pure, so a terminal and a page can share them. The folder
// text/ has one file of sentences per language. [Session] leads through an exercise, and
// [Progress] stores the state between two calls.
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
	// ErrAnswer means that the input is not a valid answer. It is neither right nor wrong.
	ErrAnswer = errors.New("workshop: no answer")
	// ErrEarly means that another part of the exercise must come first.
	ErrEarly = errors.New("workshop: too early")
)

// Outcome is the result of a command. The field for that command is set.
type Outcome struct {
	Run      *experiment.Run   // for run
	Explored []explore.Result  // for explore
	Excludes catalog.Exclusion // for explore, the exclusion that the first strategy claims
	Forced   *replay.Result    // for run -schedule
	Scripts  *Scripts          // for workshop -script-flush
}

// Scripts holds the replies of an instance to a lock and an unlock. Redis forgot its scripts
// between the two.
type Scripts struct {
	Locked   bool
	NoScript string // the error of EVALSHA after SCRIPT FLUSH
	Released int    // the number of locks released by the unlock, as the instance reports it
}

// Do runs a command of this program and prints its output to out. args are the words after
// the program name.
type Do func(ctx context.Context, args []string, out io.Writer) (Outcome, error)

// Facts holds the known data of an exercise by name: values drawn at random and values
// measured by its commands. They fill the slots of commands and sentences.
type Facts map[string]string

// number returns a fact as a number, or false if it is missing or not a number.
func (f Facts) number(name string) (float64, bool) {
	x, err := strconv.ParseFloat(f[name], 64)
	return x, err == nil
}

// Step is one command of an exercise. Its slots are filled from the facts.
type Step struct {
	Run     string
	Servers bool // true if it needs redis-server, and MariaDB or MySQL, for -stack local
	Measure func(Outcome, Facts) error
	// Instead lists the steps to run if there are no such servers. It may be empty.
	Instead []Step
}

// Question is asked after the run. Judge compares the words of an answer with the facts.
type Question struct {
	Points  int
	Fields  []string // labels of the words of an answer; nil if the answer is one word
	Choices []string // the allowed words; nil if the answer is a figure or a file
	File    bool     // true if the answer is a file, which may be handed in any number of times
	Edits   string   // the fact with the schedule to edit; empty if the file is a lock
	// Aim stores the values of the answer that the check commands need. It may be nil.
	Aim   func(words []string, f Facts) error
	Judge func(words []string, f Facts) (Mark, error)
}

// Words returns the number of words in an answer.
func (q Question) Words() int { return max(len(q.Fields), 1) }

// Mark is the number of points for an answer, and the key of the sentence with the reason.
// That key follows the key of the question.
type Mark struct {
	Points int    `json:"points"`
	Why    string `json:"why"`
}

// Claim is a fact that the sentences of an exercise rely on.
type Claim struct{ Fact, Value string }

// Exercise is one of the twelve exercises.
type Exercise struct {
	Number  int
	Minutes int
	Options string // the letters of the options in the texts
	Right   string // the letter of the right option

	Draw      func(*rand.Rand, Facts)
	Show      []Step // run after the prediction
	Claims    []Claim
	Questions []Question
	Try       *Step  // a command with a figure, {try}, that the user chooses; nil if there is none
	Check     []Step // run after the answer, to judge it
	Own       bool   // true if the answer is a lock that the user writes, starting from OwnLock
	Hints     int
}

// Points returns the maximum for an exercise: one point for the prediction, plus its
// questions.
func (e Exercise) Points() int {
	points := 1
	for _, q := range e.Questions {
		points += q.Points
	}
	return points
}

// Words returns the number of words in all answers of the exercise.
func (e Exercise) Words() int {
	n := 0
	for _, q := range e.Questions {
		n += q.Words()
	}
	return n
}

// Find returns the exercise with a number, or false if there is none.
func Find(number int) (Exercise, bool) {
	if number < 1 || number > len(Exercises) {
		return Exercise{}, false
	}
	return Exercises[number-1], true
}

// drawn returns the random parts of an exercise for a seed: the order of its options, and
// its drawn facts.
func (e Exercise) drawn(seed uint64) (options []string, f Facts) {
	r := rand.New(rand.NewPCG(seed, uint64(e.Number)))
	options = strings.Split(e.Options, "")
	r.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	f = Facts{"seed": strconv.FormatUint(seed, 10)}
	if e.Draw != nil {
		e.Draw(r, f)
	}
	return options, f
}

// arguments splits a command into words and fills their slots. A filled word stays one word.
func arguments(command string, f Facts) []string {
	words := strings.Fields(command)
	for i, word := range words {
		words[i] = f.fill(word)
	}
	return words
}
