package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
)

// ErrSyntax means that a schedule has a syntax error. Each error that wraps it names the line and
// shows the correct syntax.
var ErrSyntax = errors.New("schedule: bad syntax")

// maxExcerpt is how many characters of a line an error shows. The file may not even be text, so a line
// can be very long.
const maxExcerpt = 80

// Parse reads a schedule. The header lines may be in any order, but must come before the steps.
func Parse(text string) (Schedule, error) {
	var s Schedule
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := s.parseLine(words, seen); err != nil {
			return Schedule{}, fmt.Errorf("%w: line %d: %q: %w", ErrSyntax, i+1, catalog.Shorten(strings.Join(words, " "), maxExcerpt), err)
		}
	}
	for _, h := range headers {
		if h.needed && !seen[h.name] {
			return Schedule{}, fmt.Errorf("%w: the line %q is missing at the top of the file: add a line such as %q", ErrSyntax, h.name, h.name+" "+h.example)
		}
	}
	return s, nil
}

// StepLines returns the line number of each step of a valid schedule. Line numbers start at 1.
func StepLines(text string) []int {
	var lines []int
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if _, err := parseStep(line); err == nil {
			lines = append(lines, i+1)
		}
	}
	return lines
}

// parseLine parses one line, either a header or a step. seen contains the headers so far.
func (s *Schedule) parseLine(words []string, seen map[string]bool) error {
	for _, h := range headers {
		if h.name != words[0] {
			continue
		}
		if len(s.Steps) > 0 {
			return errors.New("this line must come before the first step: move it up")
		}
		if seen[h.name] {
			return fmt.Errorf("the line %q occurs twice: keep one of the two", h.name)
		}
		seen[h.name] = true
		if err := h.parseWords(s, words[1:]); err != nil {
			return fmt.Errorf("%w: write a line such as %q", err, h.name+" "+h.example)
		}
		return nil
	}
	step, err := parseStep(strings.Join(words, " "))
	if err != nil {
		return err
	}
	if err := s.check(step); err != nil {
		return err
	}
	s.Steps = append(s.Steps, step)
	return nil
}

func (s *Schedule) check(step Step) error {
	if step.Actor != "" && s.InstanceOf(step.Actor) == 0 {
		return fmt.Errorf("there is no actor %s: the line that begins with \"actors\" names %s", step.Actor, orNone(printActors(*s)))
	}
	// "locks" is valid only where an instance is cut off or reconnected.
	exists := step.Target == DB || step.Target == Locks && (step.Kind == CutOff || step.Kind == Reaches)
	if step.Target != "" && !exists && !slices.Contains(s.Nodes, step.Target) {
		return fmt.Errorf("there is no server %s: use one of %s", step.Target, strings.Join(append(slices.Clone(s.Nodes), DB), ", "))
	}
	here := func(a Actor) bool { return a.Instance == step.Instance }
	if step.Instance != 0 && !slices.ContainsFunc(s.Actors, here) {
		return fmt.Errorf("no actor is on instance %d: the line that begins with \"actors\" names %s", step.Instance, orNone(printActors(*s)))
	}
	return nil
}

func orNone(actors string) string { return cmp.Or(actors, "none") }

// parseStep reads one step. It does not check whether the actor and the server exist.
func parseStep(line string) (Step, error) {
	words := strings.Fields(line)
	var nearest error
	for kind, f := range forms {
		step, err := f.parse(words)
		if err == nil {
			step.Kind = Kind(kind)
			return step, nil
		}
		// If a line almost matches several forms, the error of the last form helps the user most.
		if !errors.Is(err, errOtherForm) {
			nearest = err
		}
	}
	if nearest != nil {
		return Step{}, nearest
	}
	similar := catalog.Map(forms[Begins:], form.example) // there is no kind 0
	if len(words) > 0 {
		similar = slices.DeleteFunc(similar, func(e string) bool { return subject(strings.Fields(e)[0][1:]) != subject(words[0]) }) // without the opening quote
	}
	if len(similar) == 0 {
		return Step{}, errors.New("there is no such step: begin it with an actor such as A, with a server such as redis, or with the word instance or time")
	}
	return Step{}, fmt.Errorf("there is no such step: use one of %s", strings.Join(similar, ", "))
}

// subject maps words of the same kind to one word: any actor to "A", and any Redis server to
// "redis". It returns other words unchanged.
func subject(word string) string {
	switch {
	case isActor(word):
		return "A"
	case strings.HasPrefix(word, "redis"):
		return "redis"
	}
	return word
}

// errOtherForm means that a line does not match the form that parseStep tried. Another form may
// still match.
var errOtherForm = errors.New("another form")

// parse parses the words of a step that has this form. It returns errOtherForm if the step has
// another form.
func (f form) parse(words []string) (Step, error) {
	pattern := f.words()
	if len(words) == 0 || len(pattern) != len(words) {
		return Step{}, errOtherForm
	}
	for i, p := range pattern {
		if _, ok := fields[p]; !ok && p != words[i] {
			return Step{}, errOtherForm
		}
	}
	var s Step
	for i, p := range pattern {
		field, ok := fields[p]
		if !ok {
			continue
		}
		if err := field.parse(&s, words[i]); err != nil {
			return Step{}, fmt.Errorf("%q: %w", words[i], err)
		}
	}
	return s, nil
}

func (f form) example() string {
	return strconv.Quote(f.print(Step{Actor: "A", Phase: "acquire", N: 1, Target: "redis", Instance: 1, Duration: 10 * time.Second}))
}

// A field is a variable part of a line, such as an actor's name. In is the struct type that stores
// the value.
type field[In any] struct {
	print func(In) string
	parse func(*In, string) error
}

// fieldAt returns a field. at returns the address of the field's value; print and parse convert the
// value to text and back.
func fieldAt[In, T any](at func(*In) *T, print func(T) string, parse func(string) (T, error)) field[In] {
	return field[In]{
		func(in In) string { return print(*at(&in)) },
		func(in *In, text string) (err error) {
			*at(in), err = parse(text)
			return err
		},
	}
}

func unchanged(text string) string { return text }

// fields maps each placeholder, such as <actor>, to the Step field that it sets.
var fields = map[string]field[Step]{
	"<actor>":    fieldAt(func(s *Step) *string { return &s.Actor }, unchanged, only(isActor, "an actor must be a capital letter, such as A")),
	"<phase>":    fieldAt(func(s *Step) *string { return &s.Phase }, unchanged, only(isPhase, "the phase of a grab must be one of "+strings.Join(phases, ", "))),
	"<n>":        fieldAt(func(s *Step) *int { return &s.N }, strconv.Itoa, parseCount),
	"<target>":   fieldAt(func(s *Step) *string { return &s.Target }, unchanged, only(isServer, `this must be the name of a server, such as "redis", "redlock-2" or "db"`)),
	"<instance>": fieldAt(func(s *Step) *int { return &s.Instance }, strconv.Itoa, parseCount),
	"<duration>": fieldAt(func(s *Step) *time.Duration { return &s.Duration }, time.Duration.String, parseDuration),
	"<jump>":     fieldAt(func(s *Step) *time.Duration { return &s.Duration }, signed, parseJump),
}

// phases lists the parts of a grab. Each call belongs to one of them.
var phases = []string{"acquire", "read", "claim", "release", "renew"}

// only returns a function that accepts a word if valid returns true. Otherwise, the function returns an
// error with the text in wrong.
func only(valid func(string) bool, wrong string) func(string) (string, error) {
	return func(word string) (string, error) {
		if !valid(word) {
			return "", errors.New(wrong)
		}
		return word, nil
	}
}

func isActor(word string) bool { return len(word) == 1 && word[0] >= 'A' && word[0] <= 'Z' }

func isPhase(word string) bool { return slices.Contains(phases, word) }

func parseCount(word string) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 {
		return 0, errors.New("this must be a whole number of 1 or more")
	}
	return n, nil
}

// isServer reports whether a word can be a server's name, which begins with a lower-case letter.
func isServer(word string) bool {
	if word == "time" || word == "instance" || word[0] < 'a' || word[0] > 'z' {
		return false
	}
	return strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func parseDuration(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return 0, errors.New(`this must be a duration such as "10s"`)
	}
	return d, nil
}

func parseJump(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d == 0 || word[0] != '+' && word[0] != '-' {
		return 0, errors.New(`this must be a duration with a sign, such as "+10s"`)
	}
	return d, nil
}
