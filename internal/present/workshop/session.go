package workshop

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/testbed/infile"
)

// Session guides a user through the exercises, on a terminal or on a web page.
type Session struct {
	Texts    *Texts
	Dir      string // the results folder; commands write to a subfolder
	Do       Do
	Local    bool      // whether every run uses real servers
	Program  string    // how to start this program, as texts and commands show it
	Out      io.Writer // receives the commands' output
	Told     io.Writer // receives the sentences for the user; if nil, Out receives them
	Progress *Progress
}

const columns = 90

// say prints a sentence in the user's language, with values filled in from f.
func (s *Session) say(key string, f Facts) { s.print("", s.Texts.Say(key, f)) }

func (s *Session) print(indent, text string) { printTo(cmp.Or(s.Told, s.Out), indent, text) }

func printTo(w io.Writer, indent, text string) {
	for i, line := range Wrap(text, columns-Width(indent)) {
		if i == 1 {
			indent = strings.Repeat(" ", Width(indent))
		}
		fmt.Fprintln(w, strings.TrimRight(indent+line, " "))
	}
}

// paragraph prints a text and an empty line.
func (s *Session) paragraph(indent, text string) {
	s.print(indent, text)
	s.blank()
}

func (s *Session) labelled(label, text string) {
	s.paragraph("", join(s.Texts.Say(label, nil), text))
}

// join joins two sentences with a space. After a wide character, such as a Chinese one, it omits
// the space.
func join(first, second string) string {
	if last := []rune(first); Width(string(last[len(last)-1])) == 1 {
		first += " "
	}
	return first + second
}

func (s *Session) blank() { s.print("", "") }

// key returns the key for a text about an exercise, such as "3.why".
func key(e Exercise, rest string) string { return strconv.Itoa(e.Number) + "." + rest }

// factsWith returns the values for an exercise's texts. Values in more have priority.
func (s *Session) factsWith(e Exercise, more Facts) Facts {
	f := Facts{"n": strconv.Itoa(e.Number), "program": s.Program}
	maps.Copy(f, s.Progress.stateOf(e).Facts)
	maps.Copy(f, more)
	return f
}

// text returns a text about an exercise, with its values filled in. rest is the text's key without
// the exercise number.
func (s *Session) text(e Exercise, rest string) string {
	return s.Texts.Say(key(e, rest), s.factsWith(e, nil))
}

// List prints the exercises, the score, and which exercise is next.
func (s *Session) List() {
	names := []string{"exercise", "minutes", "points", "state"}
	head := append([]string{""}, catalog.Map(names, func(name string) string { return s.Texts.Say("ui."+name, nil) })...)
	o, rows, widest := s.Overview(), [][]string{head}, Width(head[1])
	for _, l := range o.Exercises {
		rows = append(rows, []string{strconv.Itoa(l.Number), l.Title, strconv.Itoa(l.Minutes), fmt.Sprintf("%d/%d", l.Points, l.Of), s.Texts.Say("ui."+l.State, nil)})
		widest = max(widest, Width(l.Title))
	}
	for _, r := range rows {
		line := fmt.Sprintf("%2s  %s  %s  %s  %s", r[0], pad(r[1], widest), padLeft(r[2], Width(head[2])), padLeft(r[3], Width(head[3])), r[4])
		fmt.Fprintln(s.Out, strings.TrimRight(line, " "))
	}
	s.blank()
	f := Facts{"points": strconv.Itoa(o.Points), "of": strconv.Itoa(o.Of), "program": s.Program, "next": strconv.Itoa(o.Next)}
	s.say("ui.score", f)
	if o.Next == 0 {
		s.say("ui.all", f)
		return
	}
	s.say("ui.next", f)
}

func padLeft(text string, columns int) string {
	return strings.Repeat(" ", max(0, columns-Width(text))) + text
}

// Show prints an exercise's text and options.
func (s *Session) Show(e Exercise) {
	f := s.factsWith(e, Facts{"minutes": strconv.Itoa(e.Minutes), "of": strconv.Itoa(e.Points())})
	fmt.Fprintf(s.Out, "%d  %s\n", e.Number, s.Texts.Say(key(e, "title"), f))
	s.paragraph("", s.Texts.Say("ui.worth", f))
	s.paragraph("", s.Texts.Say(key(e, "ask"), f))
	s.paragraph("", s.Texts.Say(key(e, "words"), f))
	options, _ := e.randomParts(s.Progress.Seed)
	for i, o := range options {
		s.print("  "+letter(i)+"  ", s.Texts.Say(key(e, o), f))
	}
	s.blank()
}

// letter returns the letter of an option: a for the first one, and so on.
func letter(place int) string { return string(rune('a' + place)) }

// Predicted reports whether the user has made a prediction.
func (s *Session) Predicted(e Exercise) bool { return s.Progress.stateOf(e).Predicted != "" }

// MayRun checks that the user has made a prediction. Otherwise, the error wraps ErrAnswer.
func (s *Session) MayRun(e Exercise) error {
	if s.Predicted(e) {
		return nil
	}
	return fmt.Errorf("%w: make a prediction for exercise %d before you run its commands", ErrAnswer, e.Number)
}

// MayAnswer checks that the exercise has run. Otherwise, the error wraps ErrAnswer.
func (s *Session) MayAnswer(e Exercise) error {
	if s.Ran(e) {
		return nil
	}
	return fmt.Errorf("%w: run the commands of exercise %d before you answer", ErrAnswer, e.Number)
}

// Done reports whether the exercise is finished.
func (s *Session) Done(e Exercise) bool { return s.Progress.stateOf(e).isDone() }

// Ran reports whether an exercise's commands have run.
func (s *Session) Ran(e Exercise) bool { return s.Progress.stateOf(e).Ran }

// AskPrediction returns the prompt for a prediction.
func (s *Session) AskPrediction() string { return s.Texts.Say("ui.predict", nil) }

// HowTo prints the command with which the user can continue. Use it if the user cannot be prompted.
func (s *Session) HowTo(e Exercise, what string) { s.say("ui.how."+what, s.factsWith(e, nil)) }

func (s *Session) predicted(e Exercise) string {
	options, _ := e.randomParts(s.Progress.Seed)
	if i := slices.Index(options, s.Progress.stateOf(e).Predicted); i >= 0 {
		return letter(i)
	}
	return ""
}

// Predict stores the user's prediction. It cannot be changed later. shown is the letter on the
// screen.
func (s *Session) Predict(e Exercise, shown string) error {
	options, _ := e.randomParts(s.Progress.Seed)
	shown = strings.ToLower(strings.TrimSpace(shown))
	if len(shown) != 1 || int(shown[0])-'a' < 0 || int(shown[0])-'a' >= len(options) {
		return fmt.Errorf("%w: %q is not valid: enter a letter from a to %s", ErrAnswer, shown, letter(len(options)-1))
	}
	state := s.Progress.stateOf(e)
	if state.Predicted != "" {
		s.say("ui.predicted", nil)
		return nil
	}
	state.Predicted = options[shown[0]-'a']
	return s.Progress.Save()
}

// Folder is the name of the exercises folder. It begins with an underscore, so that the go command
// ignores its Go files.
const Folder = "_workshop"

// Path returns the path to an exercise's folder, or to a file in it.
func (s *Session) Path(e Exercise, names ...string) string {
	return filepath.Join(append([]string{s.Dir, Folder, strconv.Itoa(e.Number)}, names...)...)
}

const (
	showDir  = "show"  // results from the commands that the exercise shows
	checkDir = "check" // results from the commands that check an answer
)

// empty deletes an exercise's result folder, and stores the folder's path in f as "dir".
func (s *Session) empty(e Exercise, folder string, f Facts) error {
	f["dir"] = s.Path(e, folder)
	return os.RemoveAll(f["dir"])
}

// Run runs an exercise's commands and prints whether the prediction was correct. If there is no
// prediction yet, the error wraps ErrAnswer.
func (s *Session) Run(ctx context.Context, e Exercise) error {
	state := s.Progress.stateOf(e)
	if err := s.MayRun(e); err != nil {
		return err
	}
	if err := s.empty(e, showDir, state.Facts); err != nil {
		return err
	}
	if err := s.show(ctx, e, state.Facts); err != nil {
		return err
	}
	if e.Own {
		if err := s.template(e, state.Facts); err != nil {
			return err
		}
	}
	state.Ran = true
	if err := s.Progress.Save(); err != nil {
		return err
	}
	s.Recall(e)
	return nil
}

// show runs an exercise's commands. It also writes their output to a file, because the output may
// not fit on the terminal.
func (s *Session) show(ctx context.Context, e Exercise, f Facts) (err error) {
	if len(e.Show) == 0 {
		return nil
	}
	if err := os.MkdirAll(f["dir"], 0o755); err != nil {
		return err
	}
	printed, err := os.Create(filepath.Join(f["dir"], printedFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, printed.Close()) }()
	return s.run(ctx, e.Show, f, io.MultiWriter(s.Out, printed))
}

const printedFile = "printed.txt"

// Recall prints whether the prediction was correct, and what to look for in the output.
func (s *Session) Recall(e Exercise) {
	state := s.Progress.stateOf(e)
	s.paragraph(sign(state.Predicted == e.Right), s.text(e, "why."+state.Predicted))
	s.labelled("ui.look", s.text(e, "look"))
	if len(e.Show) > 0 {
		s.paragraph("", s.Texts.Say("ui.printed", Facts{"printed": s.Path(e, showDir, printedFile)}))
	}
}

func sign(right bool) string {
	if right {
		return "✓ "
	}
	return "✗ "
}

// Questions returns an exercise's questions, with "" in place of each correctly answered one.
func (s *Session) Questions(e Exercise) []string {
	var asked []string
	for i := range e.Questions {
		text := ""
		if !s.Progress.stateOf(e).Answers[i].Right {
			text = s.text(e, question(i)+".ask")
			if e.Questions[i].Edits != "" {
				text = join(text, s.Texts.Say("ui.how.file", nil))
			}
		}
		asked = append(asked, text)
	}
	return asked
}

// Print prints text with wrapped lines.
func (s *Session) Print(text string) { s.print("", text) }

func question(i int) string { return "q" + strconv.Itoa(i+1) }

// Leave is the answer that skips a question.
const Leave = "-"

// Answer judges the answers, one per question, and prints the reasons. The error wraps ErrAnswer if
// an answer is malformed, or if the exercise has not run.
func (s *Session) Answer(ctx context.Context, e Exercise, answers [][]string) error {
	state := s.Progress.stateOf(e)
	if err := s.MayAnswer(e); err != nil {
		return err
	}
	if len(answers) != len(e.Questions) {
		return fmt.Errorf("%w: %d answers to %d questions: give one answer for each, or - to skip a question", ErrAnswer, len(answers), len(e.Questions))
	}
	for i, q := range e.Questions {
		if !left(answers[i]) && len(answers[i]) != q.Words() {
			return fmt.Errorf("%w: %q: must have %s, separated by commas", ErrAnswer, strings.Join(answers[i], ","), catalog.Plural(q.Words(), "value", "values"))
		}
	}
	// Buffer the output, because it reveals the answers. The user sees it only once all answers are
	// correct.
	var shown bytes.Buffer
	var asked []int // the questions to answer now
	for i, q := range e.Questions {
		if !left(answers[i]) && !state.isSettled(i, q) {
			asked = append(asked, i)
		}
	}
	if err := s.check(ctx, e, asked, answers, &shown); err != nil {
		return err
	}
	marks := make([]Mark, len(answers))
	for _, i := range asked {
		var err error
		if marks[i], err = e.Questions[i].Judge(answers[i], state.Facts); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(asked, func(i int) bool { return marks[i].Why != right }) {
		_, _ = shown.WriteTo(s.Out)
	}
	for _, i := range asked {
		s.mark(e, i, answers[i], marks[i])
	}
	if err := s.Progress.Save(); err != nil {
		return err
	}
	s.Conclude(e)
	return nil
}

// left reports whether an answer skips its question.
func left(words []string) bool {
	return len(words) == 0 || len(words) == 1 && (words[0] == Leave || words[0] == "")
}

// check runs the commands that judge the answers to the questions in asked, and writes their output
// to shown. For a file, it prints the output immediately.
func (s *Session) check(ctx context.Context, e Exercise, asked []int, answers [][]string, shown io.Writer) error {
	f := s.Progress.stateOf(e).Facts
	if err := s.empty(e, checkDir, f); err != nil {
		return err
	}
	file := -1 // the question whose answer is a file
	for _, i := range asked {
		var err error
		switch q := e.Questions[i]; {
		case q.File:
			file = i
		case q.Aim != nil:
			err = q.Aim(answers[i], f)
		default:
			_, err = q.Judge(answers[i], f)
		}
		if errors.Is(err, ErrAnswer) { // otherwise, the commands might run for nothing
			return err
		}
	}
	switch {
	case file >= 0:
		return s.handedIn(ctx, e, e.Questions[file], answers[file][0], f)
	case len(asked) == 0 || e.TakesFile():
		return nil
	}
	return s.run(ctx, e.Check, f, shown)
}

// handedIn reads the user's file and runs the commands that check it. For a lock that must be
// rejected, it prints the reason but returns no error.
func (s *Session) handedIn(ctx context.Context, e Exercise, q Question, path string, f Facts) error {
	text, err := infile.Read(path, infile.Small)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %q is not a file: enter the path of your file", ErrAnswer, path)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	f["file"], f["handed"] = path, string(text)
	if q.Edits != "" {
		if _, _, err := bothSchedules(f, q.Edits); err != nil {
			return err
		}
	}
	if e.Own {
		f["own.refused"] = "" // an earlier version of the lock may have been rejected
		s.paragraph("", s.Texts.Say("ui.building", nil))
	}
	err = s.run(ctx, e.Check, f, s.Out)
	if refused, ok := errors.AsType[RefusedError](err); ok {
		f["own.refused"] = refused.Why
		s.paragraph("", refused.Why)
		return nil
	}
	return err
}

// RefusedError explains why the user's lock was rejected.
type RefusedError struct{ Why string }

// Error implements error.
func (e RefusedError) Error() string { return e.Why }

// mark stores the points for an answer and prints why it is right or wrong.
func (s *Session) mark(e Exercise, i int, given []string, m Mark) {
	a := &s.Progress.stateOf(e).Answers[i]
	a.Best, a.Given, a.Last = max(a.Best, m.Points), given, &m
	isRight := m.Why == right
	if a.Right = a.Right || isRight; !a.Right && !e.Questions[i].File {
		a.Wrong++
	}
	s.paragraph(sign(isRight), s.markText(e, i, m))
}

func (s *Session) markText(e Exercise, i int, m Mark) string {
	f := s.factsWith(e, Facts{"points": strconv.Itoa(m.Points), "of": strconv.Itoa(e.Questions[i].Points)})
	why := key(e, question(i)+"."+m.Why)
	if m.Why == other && !s.Texts.Has(why) {
		why = "ui.wrong"
	}
	return s.Texts.Say(why, f)
}

// Conclude prints an exercise's score and lesson. If some answers are missing, it instead prints
// how to answer again.
func (s *Session) Conclude(e Exercise) {
	state := s.Progress.stateOf(e)
	points, of := s.Progress.Points()
	f := s.factsWith(e, Facts{"points": strconv.Itoa(state.points(e)), "of": strconv.Itoa(e.Points()),
		"score": strconv.Itoa(points), "all": strconv.Itoa(of), "next": strconv.Itoa(s.Progress.Next())})
	if !state.isDone() {
		again := s.Texts.Say("ui.again", f)
		if e.TakesFile() {
			again = join(again, s.Texts.Say("ui.files", f))
		}
		s.print("", join(again, s.Texts.Say("ui.how.ask", f)))
		return
	}
	s.labelled("ui.moral", s.text(e, "moral"))
	s.say("ui.earned", f)
	if s.Progress.Next() != 0 {
		s.say("ui.next", f)
	}
}

// Hint prints the next hint, which costs a point.
func (s *Session) Hint(e Exercise) error {
	state := s.Progress.stateOf(e)
	switch {
	case state.isDone():
		s.say("ui.hint.done", nil)
		return nil
	case state.Predicted == "":
		s.say("ui.hint.early", nil)
		return nil
	case state.Hints < e.Hints:
		state.Hints++
	}
	for _, text := range s.hints(e) {
		s.print("• ", text)
	}
	if state.Hints == e.Hints {
		s.say("ui.hint.last", nil)
	}
	return s.Progress.Save()
}

func (s *Session) hints(e Exercise) (all []string) {
	for i := range s.Progress.stateOf(e).Hints {
		all = append(all, s.text(e, "hint"+strconv.Itoa(i+1)))
	}
	return all
}

// OwnLock is the source code of the lock that the user must improve in exercise 12. It has two
// mistakes: it releases the lock with a plain DEL, and it writes without a check.
//
//go:embed own_lock.go.txt
var OwnLock string

// ownFile is the name of the file with the user's lock.
const ownFile = "my.go"

// template copies OwnLock to the user's file, unless that file already exists.
func (s *Session) template(e Exercise, f Facts) error {
	path := s.Path(e, ownFile)
	f["template"] = path
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return save(path, []byte(OwnLock))
}
