package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"

	"golang.org/x/term"
)

// workshopSettings is a call of the workshop as it was asked for.
type workshopSettings struct {
	number  int    // of the exercise; 0: list them
	file    string // handed in
	predict string
	answer  string
	lang    string
	kind    string // of the stack; "": embedded, and real servers where an exercise needs them
	seed    uint64
	hint    bool
	again   bool
	reset   bool
	prepare bool

	scriptFlush bool
	unlockAs    string

	given map[string]bool
	stdin io.Reader // nil: nobody can be asked
}

func newWorkshopSettings() *workshopSettings {
	return &workshopSettings{lang: localeLanguage(os.Getenv), seed: rand.Uint64N(1_000_000), unlockAs: "u1"}
}

func (w *workshopSettings) options() []option {
	return []option{
		{"predict", "LETTER", "predict, without being asked", one(&w.predict, nonEmpty)},
		{"answer", "A,B,…", "answer, without being asked: one for each question; - leaves one", one(&w.answer, nonEmpty)},
		{"hint", "", "show the next hint, which costs a point", toggle{&w.hint}},
		{"again", "", "run the commands of the exercise again", toggle{&w.again}},
		{"lang", "NAME", "of the texts: " + strings.Join(workshop.Languages, ", ") + "; without it, that of the locale", one(&w.lang, oneOf(workshop.Languages...))},
		{"stack", "KIND", "what runs underneath: embedded, local (default: embedded, and local where an exercise needs real servers, and they are there)", one(&w.kind, oneOf(stack.Embedded, stack.Local))},
		{"seed", "N", "draws figures and the order of options, for a progress that begins (default: drawn)", one(&w.seed, parseSeed)},
		{"reset", "", "forget the progress, with what its exercises have written", toggle{&w.reset}},
		{"prepare", "", "download and build all that a class without a network needs, and say what is missing", toggle{&w.prepare}},
		{"script-flush", "", "lock with the article's scripts, have Redis forget them, and unlock", toggle{&w.scriptFlush}},
		{"unlock-as", "NAME", "whose token -script-flush unlocks with", one(&w.unlockAs, nonEmpty)},
	}
}

// localeLanguage is the language of the texts for the locale of messages.
func localeLanguage(getenv func(string) string) string {
	return workshop.FromLocale(cmp.Or(getenv("LC_ALL"), getenv("LC_MESSAGES"), getenv("LANG")))
}

// parseWorkshop reads the flags of workshop, and the exercise and the file between
// them. Its errors wrap errUsage, or flag.ErrHelp.
func parseWorkshop(args []string) (*workshopSettings, error) {
	w := newWorkshopSettings()
	rest, given, err := readArgs("workshop", w.options(), args)
	if err != nil {
		return nil, err
	}
	w.given = given
	return w, w.take(rest)
}

// take reads the exercise and the file.
func (w *workshopSettings) take(rest []string) error {
	if len(rest) > 2 {
		return fmt.Errorf("%w: workshop takes an exercise and a file at the most, not %q", errUsage, rest)
	}
	if len(rest) > 0 {
		n, err := strconv.Atoi(rest[0])
		if _, ok := workshop.Find(n); err != nil || !ok {
			return fmt.Errorf("%w: there is no exercise %q; they go from 1 to %d", errUsage, rest[0], len(workshop.Exercises))
		}
		w.number = n
	}
	if len(rest) > 1 {
		w.file = rest[1]
	}
	for _, name := range []string{"predict", "answer", "hint", "again"} {
		if w.given[name] && w.number == 0 {
			return fmt.Errorf("%w: -%s is for an exercise: say which, as in workshop 5 -%s", errUsage, name, name)
		}
	}
	for _, name := range []string{"reset", "prepare", "script-flush"} {
		if w.given[name] && w.number != 0 {
			return fmt.Errorf("%w: -%s is for no single exercise", errUsage, name)
		}
	}
	if w.given["unlock-as"] && !w.scriptFlush {
		return fmt.Errorf("%w: -unlock-as goes with -script-flush", errUsage)
	}
	return nil
}

func workshopHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: loadgen workshop [flags]
       loadgen workshop N [FILE] [flags]

Twelve exercises. Without a number it lists them, the score and what is next. Of
an exercise it asks for a prediction, runs the exercise's commands, says what to
look at, and asks for an answer, which it judges by what these commands measured.
FILE is an answer that is a file: a schedule, or a lock of your own.

`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	printOptions(tw, newWorkshopSettings().options())
	fmt.Fprintf(tw, "\nProgress is kept in %s.\n", filepath.Join(resultsDir, progressFile))
}

const progressFile = "workshop.json"

// workshopCommand is loadgen workshop: flags, and one call of a session.
func workshopCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return invoke(ctx, args, stdout, stderr, parseWorkshop, workshopHelp, (*workshopSettings).execute)
}

func (w *workshopSettings) execute(ctx context.Context, stdout, stderr io.Writer) int {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		w.stdin = os.Stdin
	}
	err := w.run(ctx, stdout, stderr)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "interrupted: what was done before is kept")
		return exitInterrupted
	case errors.Is(err, workshop.ErrAnswer):
		err = fmt.Errorf("%w: %s", errUsage, answerError(err))
	}
	if err != nil {
		return complain(stderr, err)
	}
	return exitDone
}

// answerError is why an answer is neither right nor wrong.
func answerError(err error) string {
	return strings.TrimPrefix(err.Error(), workshop.ErrAnswer.Error()+": ")
}

func (w *workshopSettings) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case w.prepare:
		return w.prepareClass(ctx, stdout)
	case w.scriptFlush:
		_, err := flushScripts(ctx, cmp.Or(w.kind, stack.Embedded), w.unlockAs, stdout, stderr)
		return err
	}
	s, err := w.session(stdout, stderr)
	if err != nil {
		return err
	}
	if err := s.Progress.Save(); err != nil { // what was drawn stays
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

// session reads the progress, or begins anew.
func (w *workshopSettings) session(stdout, stderr io.Writer) (*workshop.Session, error) {
	path := filepath.Join(resultsDir, progressFile)
	if w.reset {
		if err := errors.Join(removeFile(path), os.RemoveAll(filepath.Join(resultsDir, workshop.Folder))); err != nil {
			return nil, err
		}
	}
	texts, err := workshop.Load(w.lang)
	if err != nil {
		return nil, err
	}
	progress, err := workshop.ReadProgress(path, w.seed, replaceFile)
	if err != nil {
		return nil, err
	}
	if w.given["seed"] && progress.Seed != w.seed {
		return nil, fmt.Errorf("%w: -seed %d: the progress in %s has begun with %d; begin anew with -reset", errUsage, w.seed, path, progress.Seed)
	}
	s := &workshop.Session{
		Texts: texts, Progress: progress, Dir: resultsDir, Program: program(), Out: stdout,
		Local: w.kind == stack.Local, Signals: proc.CanStop(runtime.GOOS),
		Do: func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
			return doCommand(ctx, args, out, stderr)
		},
	}
	if s.Servers = stack.Installed(lock.Redis); w.kind == stack.Embedded {
		s.Servers = errors.New("-stack embedded has no servers")
	}
	if s.Local && s.Servers != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, s.Servers)
	}
	return s, nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// exercise goes on with one as far as it comes.
func (w *workshopSettings) exercise(ctx context.Context, s *workshop.Session, e workshop.Exercise) error {
	answers := w.answer != "" || w.file != ""
	if !answers || !s.Ran(e) {
		s.Show(e)
	}
	if w.predict != "" {
		if err := s.Predict(e, w.predict); err != nil {
			return err
		}
	}
	for !s.Predicted(e) {
		if w.stdin == nil {
			s.HowTo(e, "predict")
			return nil
		}
		line, err := ask(ctx, w.stdin, s.AskPrediction(), s.Out)
		if err != nil {
			return err
		}
		switch err := s.Predict(e, line); {
		case errors.Is(err, workshop.ErrAnswer):
			fmt.Fprintln(s.Out, answerError(err))
		case err != nil:
			return err
		}
	}
	switch {
	case !s.Ran(e) || w.again:
		if err := s.Run(ctx, e); err != nil {
			return err
		}
	case !answers:
		s.Recall(e)
	}
	for {
		given, err := w.answers(ctx, s, e)
		if err != nil || given == nil {
			return err
		}
		if err = s.Answer(ctx, e, given); answers || !errors.Is(err, workshop.ErrAnswer) {
			return err
		}
		fmt.Fprintf(s.Out, "%s\n\n", answerError(err))
	}
}

// answers takes those of the flags, or asks for them. nil: there are none.
func (w *workshopSettings) answers(ctx context.Context, s *workshop.Session, e workshop.Exercise) ([][]string, error) {
	if w.answer != "" || w.file != "" {
		return w.split(e)
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
		all = append(all, splitWords(cmp.Or(line, workshop.Leave)))
	}
	if w.stdin == nil {
		s.HowTo(e, "answer")
		return nil, nil
	}
	return all, nil
}

// splitWords splits at commas, those of Chinese and Japanese keyboards as well.
func splitWords(line string) []string {
	words := strings.Split(strings.NewReplacer("，", ",", "、", ",").Replace(line), ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// split gives each question its words. The file is the answer to the one that asks for
// a file, and leaves the others, unless they are answered, too.
func (w *workshopSettings) split(e workshop.Exercise) ([][]string, error) {
	var words []string
	if w.answer != "" {
		words = splitWords(w.answer)
	}
	if w.file != "" {
		i := slices.IndexFunc(e.Questions, func(q workshop.Question) bool { return q.File })
		if i < 0 {
			return nil, fmt.Errorf("%w: exercise %d has no answer that is a file; -answer takes its answer", errUsage, e.Number)
		}
		if words == nil {
			words = slices.Repeat([]string{workshop.Leave}, len(e.Questions)-1)
		}
		words = slices.Insert(words, min(i, len(words)), w.file)
	}
	var all [][]string
	for _, q := range e.Questions {
		n := q.Words()
		if len(words) > 0 && words[0] == workshop.Leave {
			n = 1
		}
		n = min(n, len(words))
		all, words = append(all, words[:n]), words[n:]
	}
	if len(words) > 0 || slices.ContainsFunc(all, func(a []string) bool { return len(a) == 0 }) {
		return nil, fmt.Errorf("%w: -answer %q: want %d, with commas between them; - leaves a question", errUsage, w.answer, e.Words())
	}
	return all, nil
}

// ask prints a question, and reads a line, or ends with ctx.
func ask(ctx context.Context, in io.Reader, question string, out io.Writer) (string, error) {
	fmt.Fprint(out, question+"> ")
	type answer struct {
		line string
		err  error
	}
	read := make(chan answer, 1)
	go func() { // a read from a terminal cannot be ended; the process is, instead
		line, err := readLine(in)
		read <- answer{line, err}
	}()
	select {
	case a := <-read:
		fmt.Fprintln(out)
		return strings.TrimSpace(a.line), a.err
	case <-ctx.Done():
		fmt.Fprintln(out)
		return "", ctx.Err()
	}
}

// readLine takes no more from in than the line: what follows is another answer's.
func readLine(in io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := in.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return string(line), nil
		case n == 1:
			line = append(line, b[0])
		case errors.Is(err, io.EOF) && len(line) > 0:
			return string(line), nil
		case errors.Is(err, io.EOF):
			return "", context.Canceled // Ctrl-D
		case err != nil:
			return "", err
		}
	}
}

// doCommand runs a command of this program in this process.
func doCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	switch args[0] {
	case "explore":
		return doExplore(ctx, args[1:], stdout, stderr)
	case "workshop":
		w, err := parseWorkshop(args[1:])
		if err != nil {
			return o, err
		}
		o.Scripts, err = flushScripts(ctx, cmp.Or(w.kind, stack.Embedded), w.unlockAs, stdout, stderr)
		return o, err
	case "run":
		s, err := parseRun(args[1:])
		if err != nil {
			return o, err
		}
		cfg, forced, err := s.force(ctx, stdout, stderr)
		if err == nil {
			o.Forced = &forced
			concludeSchedule(stdout, cfg, forced)
		}
		return o, err
	}
	switch code := runCommand(ctx, args, stdout, stderr); code {
	case exitDone:
		o.Run, err = report.Load(args[slices.Index(args, "-out")+1])
		return o, err
	case exitInterrupted:
		return o, context.Canceled
	default:
		return o, fmt.Errorf("that command ended with exit code %d", code)
	}
}

func doExplore(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	s, err := parseExplore(args)
	if err != nil {
		return o, err
	}
	defer func(strategies []lock.Strategy) { lock.Strategies = strategies }(lock.Strategies) // a file adds its own
	o.Explored, err = s.explore(ctx, stderr)
	if err != nil {
		if s.file != "" && ctx.Err() == nil {
			why := strings.TrimPrefix(err.Error(), errUsage.Error()+": ")
			return o, workshop.RefusedError{Why: strings.TrimPrefix(why, explore.ErrConfig.Error()+": ")}
		}
		return o, err
	}
	if st, err := lock.Find(s.Strategies[0]); err == nil {
		o.Excludes = st.Excludes
	}
	if code := s.conclude(o.Explored, nil, stdout, stderr); code != exitDone && code != exitAssert {
		return o, fmt.Errorf("that command ended with exit code %d", code)
	}
	return o, nil
}
