// Package workshop is twelve exercises that can be failed: what each asks, which
// commands of this program it runs, what is measured of them, and how an answer is
// judged by that.
//
// An exercise goes predict, run, look, answer, moral. [Exercises] is the table;
// measure.go takes facts from what a command has come to, judge.go holds an answer
// against them, and both are pure, so that a terminal and a page can share them. The
// sentences are in text/, a file a language. [Session] leads through an exercise in a
// terminal, and [Progress] is what is kept between two calls.
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
	// ErrAnswer says that what was given is no answer to the question, so that it is
	// neither right nor wrong.
	ErrAnswer = errors.New("workshop: no answer")
	// ErrEarly says that something else comes first.
	ErrEarly = errors.New("workshop: too early")
)

// Outcome is what a command has come to: one of these.
type Outcome struct {
	Run      *experiment.Run   // of run
	Explored []explore.Result  // of explore
	Excludes catalog.Exclusion // what the first of the explored strategies claims
	Forced   *replay.Result    // of run -schedule
	Scripts  *Scripts          // of workshop -script-flush
}

// Scripts is what an instance said to a lock and an unlock, between which Redis forgot
// its scripts.
type Scripts struct {
	Locked   bool
	NoScript string // what EVALSHA said after SCRIPT FLUSH
	Released int    // what the instance said to the unlock
}

// Do runs a command of this program, the words after its name, and prints to out what
// that prints.
type Do func(ctx context.Context, args []string, out io.Writer) (Outcome, error)

// Facts are what is known of an exercise by name: what was drawn for it, and what
// its commands have measured. They fill the slots of its commands and sentences.
type Facts map[string]string

// number is a fact as a figure.
func (f Facts) number(name string) (float64, bool) {
	x, err := strconv.ParseFloat(f[name], 64)
	return x, err == nil
}

// Need is what a step cannot do without.
type Need int

// The needs.
const (
	Nothing Need = iota
	Servers      // redis-server and MariaDB or MySQL, for -stack local
	Signals      // that a process can be stopped, and killed
)

// Step is one command of an exercise. Its slots are filled from the facts.
type Step struct {
	Run     string
	Needs   Need
	Measure func(Outcome, Facts) error
	// Instead is done where what it needs is not there. nil: nothing is.
	Instead []Step
}

// Question is what is asked after the run. Judge holds the words of an answer
// against the facts.
type Question struct {
	Points  int
	Fields  []string // what each word of an answer is about; nil: it consists of one
	Choices []string // what a word may be; nil: a figure, or a file
	File    bool     // the answer is a file, which may be handed in again and again
	Edits   string   // the fact that has the schedule which is to be edited; "": the file is a lock
	// Aim notes what the commands of the check need of the answer. nil: nothing.
	Aim   func(words []string, f Facts) error
	Judge func(words []string, f Facts) (Mark, error)
}

// Words is of how many an answer consists.
func (q Question) Words() int { return max(len(q.Fields), 1) }

// Mark is what an answer is worth, and the key of the sentence that says why, after
// that of the question.
type Mark struct {
	Points int    `json:"points"`
	Why    string `json:"why"`
}

// Claim is what the sentences of an exercise take for granted of its facts.
type Claim struct{ Fact, Value string }

// Exercise is one of the twelve.
type Exercise struct {
	Number  int
	Minutes int
	Options string // the letters of the options, as the texts have them
	Right   string // of them

	Draw      func(*rand.Rand, Facts)
	Show      []Step // once there is a prediction
	Claims    []Claim
	Questions []Question
	Try       *Step  // with a figure of one's own, {try}, to find an answer by; nil: there is none
	Check     []Step // once there is an answer, to judge it by
	Own       bool   // the answer is a lock of one's own, which is built, and begins with OwnLock
	Hints     int
}

// Points is what an exercise is worth: the prediction, and its questions.
func (e Exercise) Points() int {
	points := 1
	for _, q := range e.Questions {
		points += q.Points
	}
	return points
}

// Words is of how many its answers consist.
func (e Exercise) Words() int {
	n := 0
	for _, q := range e.Questions {
		n += q.Words()
	}
	return n
}

// Find looks an exercise up by its number.
func Find(number int) (Exercise, bool) {
	if number < 1 || number > len(Exercises) {
		return Exercise{}, false
	}
	return Exercises[number-1], true
}

// drawn is what the seed makes of an exercise: the order of its options, and what is
// drawn for it.
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

// arguments puts facts into the words of a command, each of which stays one.
func arguments(command string, f Facts) []string {
	words := strings.Fields(command)
	for i, word := range words {
		words[i] = f.fill(word)
	}
	return words
}
