package workshop

import (
	"cmp"
	"errors"
	"io/fs"

	"grablab/internal/testbed/infile"
)

// Overview lists the exercises and the score, for the web page and for Session.List.
type Overview struct {
	Exercises []Line `json:"exercises"`
	Points    int    `json:"points"`
	Of        int    `json:"of"`   // the maximum score
	Next      int    `json:"next"` // the first unfinished exercise; 0 if all are done
}

// Line is an exercise in an Overview.
type Line struct {
	Number  int    `json:"number"`
	Title   string `json:"title"`
	Minutes int    `json:"minutes"`
	Points  int    `json:"points"`
	Of      int    `json:"of"`    // the maximum score
	State   string `json:"state"` // todo, begun or done
}

// Overview returns the list of exercises and the score.
func (s *Session) Overview() (o Overview) {
	for _, e := range Exercises {
		state := s.Progress.stateOf(e)
		o.Exercises = append(o.Exercises, Line{e.Number, s.Texts.Say(key(e, "title"), nil), e.Minutes, state.points(e), e.Points(), state.word()})
	}
	o.Points, o.Of = s.Progress.Points()
	o.Next = s.Progress.Next()
	return o
}

// View contains the parts of an exercise that the user may see now.
type View struct {
	Line
	Ask       string   `json:"ask"`
	Words     string   `json:"words"`             // explains the terms in the exercise
	Options   []string `json:"options"`           // in random order, with the letters a, b and so on
	Predicted string   `json:"predicted"`         // letter of the predicted option on the screen; empty if there is no prediction
	Commands  []string `json:"commands"`          // command lines that run after the prediction
	Own       bool     `json:"own"`               // whether the answer is a lock that the user writes, starting from OwnLock
	Ran       bool     `json:"ran"`               // whether the commands have run; if not, the fields below are empty
	Right     bool     `json:"right"`             // whether the prediction was right
	Why       string   `json:"why,omitempty"`     // why the prediction was right or wrong
	Printed   string   `json:"printed,omitempty"` // the commands' output
	Look      string   `json:"look,omitempty"`    // what to look at in the output
	Questions []Asked  `json:"questions"`
	Hints     []string `json:"hints"`           // hints that the user has asked for
	More      bool     `json:"more"`            // whether there are more hints
	Moral     string   `json:"moral,omitempty"` // empty until the exercise is done
}

// Asked is a question with the user's last answer.
type Asked struct {
	Ask     string   `json:"ask"`
	Points  int      `json:"points"`
	Fields  []string `json:"fields"`  // labels for an answer's words; empty if the answer is one word
	Choices []string `json:"choices"` // allowed words; empty if the answer is a number or a file
	File    bool     `json:"file"`
	Begin   string   `json:"begin,omitempty"` // the file with which the user starts
	Text    string   `json:"text,omitempty"`  // the file as the user last edited it
	Given   []string `json:"given"`
	Right   bool     `json:"right"`
	Said    string   `json:"said,omitempty"`    // why the last answer was right or wrong; empty if there is no answer
	Refused string   `json:"refused,omitempty"` // why the lock in the file was rejected; may be empty
}

// View returns the parts of an exercise that the user may see now.
func (s *Session) View(e Exercise) (View, error) {
	state := s.Progress.stateOf(e)
	f := s.factsWith(e, nil)
	v := View{
		Line: s.Overview().Exercises[e.Number-1], Ask: s.Texts.Say(key(e, "ask"), f), Words: s.Texts.Say(key(e, "words"), f),
		Predicted: s.predicted(e), Commands: []string{}, Own: e.Own, Ran: state.Ran,
		Questions: []Asked{}, Hints: []string{},
	}
	for _, step := range e.Show {
		v.Commands = append(v.Commands, s.command(step, state.Facts))
	}
	options, _ := e.randomParts(s.Progress.Seed)
	for _, o := range options {
		v.Options = append(v.Options, s.Texts.Say(key(e, o), f))
	}
	if !state.Ran {
		return v, nil
	}
	v.Right, v.Why, v.Look = state.Predicted == e.Right, s.text(e, "why."+state.Predicted), s.text(e, "look")
	if len(e.Show) > 0 {
		printed, err := readIfThere(s.Path(e, showDir, printedFile))
		if err != nil {
			return v, err
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
	v.Hints, v.More = append(v.Hints, s.hints(e)...), state.Hints < e.Hints && !state.isDone()
	if state.isDone() {
		v.Moral = s.text(e, "moral")
	}
	return v, nil
}

// question returns question i of an exercise, together with the answers so far.
func (s *Session) question(e Exercise, i int) (Asked, error) {
	q, a, f := e.Questions[i], s.Progress.stateOf(e).Answers[i], s.Progress.stateOf(e).Facts
	asked := Asked{
		Ask: s.text(e, question(i)+".ask"), Points: q.Points, Fields: append([]string{}, q.Fields...), Choices: append([]string{}, q.Choices...),
		File: q.File, Given: append([]string{}, a.Given...), Right: a.Right,
	}
	if a.Last != nil {
		asked.Said = s.markText(e, i, *a.Last)
	}
	switch {
	case q.Edits != "":
		asked.Begin, asked.Text = f[q.Edits], cmp.Or(f["handed"], f[q.Edits])
	case q.File:
		text, err := readIfThere(s.Path(e, ownFile))
		if err != nil {
			return asked, err
		}
		asked.Begin, asked.Text = OwnLock, cmp.Or(string(text), OwnLock)
		if a.Last != nil && f["own.refused"] != "" {
			asked.Refused = f["own.refused"]
		}
	}
	return asked, nil
}

// readIfThere returns a file's content, or nil if there is no such file.
func readIfThere(path string) ([]byte, error) {
	text, err := infile.Read(path, infile.Small)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Keep saves the user's file and returns its path.
func (s *Session) Keep(e Exercise, text string) (string, error) {
	path := s.Path(e, "schedule.txt")
	if e.Own {
		path = s.Path(e, ownFile)
	}
	return path, save(path, []byte(text))
}
