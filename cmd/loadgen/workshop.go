package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/stack"

	"golang.org/x/term"
)

type workshopSettings struct {
	number  int    // number of the exercise; 0 means to list all exercises
	file    string // file with an answer: either a schedule or a lock
	predict string
	answer  string
	lang    string
	kind    string // kind of stack: embedded or local
	seed    uint64
	hint    bool
	again   bool
	reset   bool

	line  *flags.Line
	stdin *bufio.Reader // where answers are read from; nil if no one can answer
}

func newWorkshopSettings() *workshopSettings {
	return &workshopSettings{lang: localeLanguage(os.Getenv), kind: stack.Embedded, seed: rand.Uint64N(1_000_000), line: new(flags.Line)}
}

func (w *workshopSettings) flags() []flags.Flag {
	return []flags.Flag{
		flags.New("predict", "LETTER", "prediction for the exercise (default: the program asks for it)", flags.One(&w.predict, flags.NonEmpty)),
		flags.New("answer", "A,B,…", "an answer to each question, where - skips one (default: the program asks each question)", flags.One(&w.answer, flags.NonEmpty)),
		flags.New("hint", "", "show the next hint, which costs a point", flags.Switch(&w.hint)),
		flags.New("again", "", "run the commands of the exercise again", flags.Switch(&w.again)),
		flags.New("lang", "NAME", "language of the texts: "+flags.Join(workshop.Languages)+" (default: from the locale)", flags.One(&w.lang, flags.OneOf(workshop.Languages...))),
		flags.New("stack", "KIND", "which servers to use: embedded, local", flags.One(&w.kind, flags.OneOf(stack.Embedded, stack.Local))),
		flags.New("seed", "N", "seed for the figures and the option order when the progress begins (default: a random seed)", flags.One(&w.seed, flags.Seed)),
		flags.New("reset", "", "delete the progress and the exercise files", flags.Switch(&w.reset)),
	}
}

// localeLanguage returns the language of the locale in the environment.
func localeLanguage(getenv func(string) string) string {
	return workshop.FromLocale(cmp.Or(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG")))
}

// parseWorkshop parses the flags, the number of an exercise and a file name. It returns a
// flags.HelpError for -h, and an error that wraps flags.ErrUsage for invalid arguments.
func parseWorkshop(args []string) (w *workshopSettings, err error) {
	w = newWorkshopSettings()
	if w.line, err = flags.Parse(w.flags(), args); err != nil {
		return nil, err
	}
	rest := w.line.Args
	if len(rest) > 2 {
		return nil, flags.Usage("workshop %s: there are too many arguments: give an exercise and at most one file", strings.Join(rest, " "))
	}
	if len(rest) > 0 {
		n, err := strconv.Atoi(rest[0])
		if _, ok := workshop.Find(n); err != nil || !ok {
			return nil, flags.Usage("workshop %s: there is no such exercise: choose one from 1 to %d", rest[0], len(workshop.Exercises))
		}
		w.number = n
	}
	if len(rest) > 1 {
		w.file = rest[1]
	}
	if err := flags.Check(rules["workshop"], w.line, map[string]bool{"an exercise": w.number > 0}); err != nil {
		return nil, flags.Usage("%w", err)
	}
	return w, nil
}

const progressFile = "workshop.json"

func (w *workshopSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		w.stdin = bufio.NewReader(os.Stdin)
	}
	err := w.run(ctx, stdout, stderr)
	if errors.Is(err, workshop.ErrAnswer) {
		return flags.Usage("%w", withoutPrefix(err, workshop.ErrAnswer))
	}
	return orInterrupted(err, stderr, ": your progress is kept")
}

// run lists the exercises, shows a hint, or begins an exercise, depending on the command line.
func (w *workshopSettings) run(ctx context.Context, stdout, stderr io.Writer) error {
	s, err := w.session(stdout, stderr)
	if err != nil {
		return err
	}
	if err := s.Progress.Save(); err != nil { // save the random choices, so that the next command makes the same choices
		return err
	}
	if w.number == 0 {
		s.List()
		return nil
	}
	e, _ := workshop.Find(w.number)
	if w.hint {
		return s.Hint(e)
	}
	return w.exercise(ctx, s, e)
}

// session loads the user's progress. If -reset is set, it first deletes the progress and the files
// of the exercises.
func (w *workshopSettings) session(stdout, stderr io.Writer) (*workshop.Session, error) {
	path := filepath.Join(resultsDir, progressFile)
	if w.kind == stack.Local {
		if err := stack.Installed(lock.Redis); err != nil {
			return nil, flags.Usage("%w", err)
		}
	}
	if w.reset {
		if err := errors.Join(os.RemoveAll(path), os.RemoveAll(filepath.Join(resultsDir, workshop.Folder))); err != nil {
			return nil, err
		}
	}
	texts, err := workshop.Load(w.lang)
	if err != nil {
		return nil, err
	}
	progress, err := workshop.ReadProgress(path, w.seed)
	if err != nil {
		return nil, err
	}
	if w.line.Given("seed") && progress.Seed != w.seed {
		return nil, flags.Usage("-seed %d: the progress in %s began with -seed %d: leave out the flag, or delete the progress with -reset", w.seed, path, progress.Seed)
	}
	return &workshop.Session{
		Texts: texts, Progress: progress, Dir: resultsDir, Program: program(), Out: stdout,
		Local: w.kind == stack.Local,
		Do: func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
			return doCommand(ctx, args, out, stderr)
		},
	}, nil
}

// exercise continues an exercise: it asks for a prediction, runs the commands, and then asks the
// questions. If the command is not interactive, it stops early.
func (w *workshopSettings) exercise(ctx context.Context, s *workshop.Session, e workshop.Exercise) error {
	answersGiven := w.answer != "" || w.file != ""
	if !answersGiven || !s.Ran(e) {
		s.Show(e)
	}
	if w.predict != "" {
		if err := s.Predict(e, w.predict); err != nil {
			return err
		}
	}
	for !s.Predicted(e) {
		switch {
		case w.stdin == nil && answersGiven:
			return flags.Usage("workshop %d: the prediction is missing: add -predict LETTER", e.Number)
		case w.stdin == nil:
			s.HowTo(e, "predict")
			return nil
		}
		line, err := ask(ctx, w.stdin, s.AskPrediction(), s.Out)
		if err != nil {
			return err
		}
		switch err := s.Predict(e, line); {
		case errors.Is(err, workshop.ErrAnswer):
			fmt.Fprintln(s.Out, withoutPrefix(err, workshop.ErrAnswer))
		case err != nil:
			return err
		}
	}
	switch {
	case !s.Ran(e) || w.again:
		if err := s.Run(ctx, e); err != nil {
			return err
		}
	case !answersGiven:
		s.Recall(e)
	}
	for {
		given, err := w.answers(ctx, s, e)
		if err != nil || given == nil {
			return err
		}
		if err = s.Answer(ctx, e, given); answersGiven || !errors.Is(err, workshop.ErrAnswer) {
			return err
		}
		fmt.Fprintf(s.Out, "%v\n\n", withoutPrefix(err, workshop.ErrAnswer))
	}
}

// answers returns the answers that the user gave with flags, or otherwise asks the user. It returns
// nil if the command is not interactive, so that it cannot ask.
func (w *workshopSettings) answers(ctx context.Context, s *workshop.Session, e workshop.Exercise) ([][]string, error) {
	if w.answer != "" || w.file != "" {
		return w.answersFromFlags(e)
	}
	if s.Done(e) {
		s.Conclude(e)
		return nil, nil
	}
	var all [][]string
	for _, question := range s.Questions(e) {
		if question == "" {
			all = append(all, []string{workshop.Leave})
			continue
		}
		s.Print(question)
		if w.stdin == nil {
			continue
		}
		line, err := ask(ctx, w.stdin, "", s.Out)
		if err != nil {
			return nil, err
		}
		all = append(all, splitWords(line))
	}
	if w.stdin == nil {
		s.HowTo(e, "answer")
		return nil, nil
	}
	return all, nil
}

// splitWords splits a line at commas, including Chinese and Japanese commas.
func splitWords(line string) []string {
	words := strings.Split(strings.NewReplacer("，", ",", "、", ",").Replace(line), ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// answersFromFlags assigns the answers from the flags to the questions. Without -answer, it answers only the
// question that expects a file.
func (w *workshopSettings) answersFromFlags(e workshop.Exercise) ([][]string, error) {
	var words []string
	if w.answer != "" {
		words = splitWords(w.answer)
	}
	if w.file != "" {
		i := slices.IndexFunc(e.Questions, func(q workshop.Question) bool { return q.File })
		if i < 0 {
			return nil, flags.Usage("exercise %d does not take a file: give the answer with -answer", e.Number)
		}
		if words == nil {
			words = slices.Repeat([]string{workshop.Leave}, len(e.Questions)-1)
		}
		words = slices.Insert(words, min(i, len(words)), w.file)
	}
	empty := slices.Contains(words, "")
	var all [][]string
	for _, q := range e.Questions {
		n := q.Words()
		if len(words) > 0 && words[0] == workshop.Leave {
			n = 1
		}
		n = min(n, len(words))
		all, words = append(all, words[:n]), words[n:]
	}
	if empty || len(words) > 0 || slices.ContainsFunc(all, func(a []string) bool { return len(a) == 0 }) {
		return nil, flags.Usage("-answer %q: must have %s, separated by commas; - skips a question", w.answer, catalog.Plural(e.Words(), "value", "values"))
	}
	return all, nil
}

// ask prints a question and reads one line as the answer, unless ctx ends first.
func ask(ctx context.Context, in *bufio.Reader, question string, out io.Writer) (string, error) {
	fmt.Fprint(out, question+"> ")
	line, err := readLine(ctx, in)
	fmt.Fprintln(out)
	if errors.Is(err, io.EOF) { // the user has pressed Ctrl-D
		err = context.Canceled
	}
	return line, err
}

// readLine reads one line without the spaces around it, unless ctx ends first. It returns io.EOF if
// there are no more lines.
func readLine(ctx context.Context, in *bufio.Reader) (string, error) {
	var line string
	read := make(chan error, 1)
	go func() { // a read from a terminal cannot be cancelled, so this goroutine may outlive readLine
		var err error
		if line, err = in.ReadString('\n'); line != "" && errors.Is(err, io.EOF) { // the last line has no newline
			err = nil
		}
		read <- err
	}()
	select {
	case err := <-read:
		return strings.TrimSpace(line), err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// doCommand runs a command of this program for an exercise, in this process.
func doCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	if args[0] == "explore" {
		return doExplore(ctx, args[1:], stdout, stderr)
	}
	// Without the name of a command, the arguments are flags of run.
	err = subcommand(parseRun, runHelp, (*runSettings).execute)(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, exitInterrupted):
		return o, context.Canceled
	case err != nil:
		return o, err
	}
	o.Run, err = report.Load(args[slices.Index(args, "-out")+1])
	return o, err
}

// doExplore runs the command explore for an exercise. It returns what the search found.
func doExplore(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	s, err := parseExplore(args)
	if err != nil {
		return o, err
	}
	o.Explored, err = s.explore(ctx, stderr)
	if err != nil {
		if s.file != "" && ctx.Err() == nil {
			why := withoutPrefix(withoutPrefix(err, flags.ErrUsage), explore.ErrConfig)
			return o, workshop.RefusedError{Why: why.Error()}
		}
		return o, err
	}
	if chosen, err := parseStrategies(s.Strategies[0], s.Added...); err == nil {
		o.Excludes = chosen[0].Excludes
	}
	if err := s.conclude(o.Explored, nil, stdout, stderr); err != nil && !errors.Is(err, exitAssert) {
		return o, err
	}
	return o, nil
}

// workshopOf returns a function that opens a workshop session for the web page.
func (s *labSettings) workshopOf() func(lang string) (*workshop.Session, error) {
	seed := newWorkshopSettings().seed // all sessions use the same seed until the progress is saved
	return func(lang string) (*workshop.Session, error) {
		w := newWorkshopSettings()
		w.lang, w.seed, w.kind = lang, seed, s.kind
		session, err := w.session(io.Discard, io.Discard)
		if err != nil {
			return nil, err
		}
		do := session.Do
		session.Do = func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
			o, err := do(ctx, args, out)
			if errors.Is(err, flags.ErrUsage) { // the page shows the message as it is
				err = withoutPrefix(err, flags.ErrUsage)
			}
			return o, err
		}
		return session, nil
	}
}
