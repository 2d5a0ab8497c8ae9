package workshop

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"grablab/internal/testbed/infile"
)

// Overview is the exercises, and the score.
type Overview struct {
	Exercises []Line `json:"exercises"`
	Points    int    `json:"points"`
	Of        int    `json:"of"`
	Next      int    `json:"next"` // the first that is not done; 0: all are
}

// Line is an exercise in an Overview.
type Line struct {
	Number  int    `json:"number"`
	Title   string `json:"title"`
	Minutes int    `json:"minutes"`
	Points  int    `json:"points"`
	Of      int    `json:"of"`
	State   string `json:"state"` // todo, begun, done
}

// Overview returns it.
func (s *Session) Overview() (o Overview) {
	for _, e := range Exercises {
		state := s.Progress.of(e)
		o.Exercises = append(o.Exercises, Line{e.Number, s.Texts.Say(key(e, "title"), nil), e.Minutes, state.points(e), e.Points(), state.word()})
	}
	o.Points, o.Of = s.Progress.Points()
	o.Next = s.Progress.Next()
	return o
}

// View is an exercise as far as it has come, in parts: what comes later is not in it.
type View struct {
	Line
	Ask       string   `json:"ask"`
	Words     string   `json:"words"`
	Options   []string `json:"options"`           // as they are drawn; the letters a, b, … go with them
	Predicted string   `json:"predicted"`         // the letter of the first prediction; "": there is none
	Commands  []string `json:"commands"`          // that are run then, as they would be typed
	Own       bool     `json:"own"`               // the answer is a lock, which is built
	Ran       bool     `json:"ran"`               // all that follows is of what has run
	Right     bool     `json:"right"`             // the prediction was
	Why       string   `json:"why,omitempty"`     // it was, or was not
	Differs   []string `json:"differs,omitempty"` // from what the texts say
	Printed   string   `json:"printed,omitempty"` // by the commands
	Look      string   `json:"look,omitempty"`    // at what
	Questions []Asked  `json:"questions"`         //
	Try       string   `json:"try,omitempty"`     // a command that takes a figure of one's own; "": there is none
	Tried     string   `json:"tried,omitempty"`   // what came of those that were tried
	Hints     []string `json:"hints"`             // that were asked for
	More      bool     `json:"more"`              // there are further ones
	Moral     string   `json:"moral,omitempty"`   // once nothing is left
}

// Asked is a question, and what was last answered to it.
type Asked struct {
	Ask      string    `json:"ask"`
	Points   int       `json:"points"`
	Fields   []string  `json:"fields"`  // what each word is about; none: it is one word
	Choices  []string  `json:"choices"` // what a word may be; none: a figure, or a file
	File     bool      `json:"file"`
	Begin    string    `json:"begin,omitempty"` // the file to begin with
	Text     string    `json:"text,omitempty"`  // the file as it was edited last
	Given    []string  `json:"given"`
	Right    bool      `json:"right"`
	Said     string    `json:"said,omitempty"` // why it was right or wrong; "": nothing was answered
	Refused  string    `json:"refused,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // where in the file
}

// View returns an exercise as far as it has come.
func (s *Session) View(e Exercise) (View, error) {
	state := s.Progress.of(e)
	f := s.with(e, nil)
	v := View{
		Line: s.Overview().Exercises[e.Number-1], Ask: s.Texts.Say(key(e, "ask"), f), Words: s.Texts.Say(key(e, "words"), f),
		Predicted: s.predicted(e), Commands: append([]string{}, s.commands(e.Show, state.Facts)...), Own: e.Own, Ran: state.Ran,
		Questions: []Asked{}, Hints: []string{},
	}
	options, _ := e.drawn(s.Progress.Seed)
	for _, o := range options {
		v.Options = append(v.Options, s.Texts.Say(key(e, o), f))
	}
	if !state.Ran {
		return v, nil
	}
	v.Right, v.Why, v.Differs, v.Look = state.Predicted == e.Right, s.why(e), s.differs(e), s.look(e)
	if len(e.Show) > 0 {
		printed, err := infile.Read(s.Path(e, Shown, printedFile), infile.Small)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been tidied away
			return v, fmt.Errorf("workshop: %w", err)
		}
		v.Printed = string(printed)
	}
	for i := range e.Questions {
		q, err := s.question(e, i)
		if err != nil {
			return v, err
		}
		v.Questions = append(v.Questions, q)
	}
	if e.Try != nil {
		v.Try, v.Tried = s.command(*e.Try, state.Facts), state.Facts["tried"]
	}
	v.Hints, v.More = append(v.Hints, s.hints(e)...), state.Hints < e.Hints && !state.done()
	if state.done() {
		v.Moral = s.moral(e)
	}
	return v, nil
}

func (s *Session) question(e Exercise, i int) (Asked, error) {
	q, a, f := e.Questions[i], s.Progress.of(e).Answers[i], s.Progress.of(e).Facts
	asked := Asked{
		Ask: s.asks(e, i), Points: q.Points, Fields: append([]string{}, q.Fields...), Choices: append([]string{}, q.Choices...),
		File: q.File, Given: append([]string{}, a.Given...), Right: a.Right,
	}
	if a.Last != nil {
		asked.Said = s.said(e, i, *a.Last)
	}
	switch {
	case q.Edits != "":
		asked.Begin, asked.Text = f[q.Edits], cmp.Or(f["handed"], f[q.Edits])
	case q.File:
		text, err := infile.Read(s.Path(e, ownFile), infile.Small)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return asked, fmt.Errorf("workshop: %w", err)
		}
		asked.Begin, asked.Text = OwnLock, cmp.Or(string(text), OwnLock)
		if a.Last != nil && f["own.refused"] != "" {
			asked.Refused, asked.Problems = f["own.refused"], Located(f["own.refused"])
		}
	}
	return asked, nil
}

// Keep writes a file that was edited in a page to where it can be handed in, or edited
// further, and returns its path.
func (s *Session) Keep(e Exercise, text string) (string, error) {
	path := s.Path(e, "schedule.txt")
	if e.Own {
		path = s.Path(e, ownFile)
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("workshop: %w", err)
	}
	return path, nil
}

// Problem is what is wrong at a line of a file.
type Problem struct {
	Line int    `json:"line"`
	Text string `json:"text"`
}

// located finds the lines that a compiler, or the parser of schedules, names.
var located = regexp.MustCompile(`(?m)(?:\S*` + regexp.QuoteMeta(ownFile) + `:(\d+)(?::\d+)?|\bline (\d+)): (.*)$`)

// Located returns what a text says of lines of a file.
func Located(text string) (all []Problem) {
	for _, m := range located.FindAllStringSubmatch(text, -1) {
		line, err := strconv.Atoi(m[1] + m[2])
		if err == nil {
			all = append(all, Problem{line, strings.TrimSpace(m[3])})
		}
	}
	return all
}
