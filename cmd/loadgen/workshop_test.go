package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/stack"
)

// student completes exercises in this process, with its own folder and language.
type student struct {
	*workshop.Session
	t   *testing.T
	out bytes.Buffer
}

func newStudent(t *testing.T, kind, lang string) *student {
	t.Helper()
	t.Setenv(asMain, "1") // makes child processes behave like loadgen
	c := &student{t: t}
	dir := t.TempDir()
	texts, err := workshop.Load(lang)
	if err != nil {
		t.Fatal(err)
	}
	progress, err := workshop.ReadProgress(filepath.Join(dir, progressFile), 7)
	if err != nil {
		t.Fatal(err)
	}
	c.Session = &workshop.Session{
		Texts: texts, Progress: progress, Dir: dir, Program: "loadgen", Out: &c.out, Local: kind == stack.Local,
		Do: func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
			var errs bytes.Buffer
			o, err := doCommand(ctx, args, out, &errs)
			if err != nil {
				err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, errs.String())
			}
			return o, err
		},
	}
	return c
}

// stated contains the facts that the texts of an exercise state, with their values.
var stated = map[int]workshop.Facts{
	1:  {"shown.verdict": "unsafe", "shown.grabs": "20", "shown.double": "19"},
	2:  {"one.verdict": "unknown", "one.grabs": "1", "two.verdict": "unsafe", "two.grabs": "2"},
	3:  {"nottl.verdict": "stuck", "shown.verdict": "safe"},
	4:  {"expire.verdict": "stuck", "expire.mode": "F4", "expire.steps": "5", "setnx.verdict": "safe", "setnx.complete": "true"},
	5:  {"two.verdict": "safe", "two.complete": "true", "three.verdict": "unsafe", "three.mode": "F5"},
	6:  {"getdel.verdict": "unsafe", "getdel.mode": "F6", "setnx.verdict": "safe", "setnx.complete": "true", "watch.verdict": "safe", "watch.complete": "true", "load.verdict": "safe"},
	7:  {"near.verdict": "safe", "near.setnx.verdict": "safe", "far.verdict": "unsafe", "far.setnx.verdict": "safe", "seconds.verdict": "unsafe", "ms.verdict": "safe"},
	8:  {"paused.verdict": "unsafe", "search.verdict": "unsafe", "search.mode": "F11", "replayed.rows": "2"},
	9:  {"redis-restart.watchdog.verdict": "unsafe", "redis-restart.redlock.verdict": "safe", "redis-restart.redlock-miswired.verdict": "unsafe", "twice.verdict": "unsafe", "twice.mode": "F20", "thrice.breaks": "0", "failover.watchdog.verdict": "unsafe"},
	10: {"fenced.double": "0", "half.verdict": "unsafe", "half.mode": "F34", "whole.verdict": "safe", "whole.complete": "true"},
	11: {"none.verdict": "unsafe", "cas.verdict": "safe", "setnx.verdict": "safe", "redlock.verdict": "safe"},
}

// play completes exercise n with the right prediction and answers. It checks that the student gets all
// points, and that the commands have the results that the text states.
func (c *student) play(n int) {
	c.t.Helper()
	e, _ := workshop.Find(n)
	began := time.Now()
	c.Show(e)
	if err := c.Predict(e, c.letterOf(e, e.Right)); err != nil {
		c.t.Fatal(err)
	}
	if err := c.Run(c.t.Context(), e); err != nil {
		c.t.Fatalf("%d: Run: %v\n%s", n, err, c.out.String())
	}
	f := c.facts(n)
	for fact, value := range stated[n] {
		if got := f[fact]; got != value {
			c.t.Errorf("%d: %s is %q, but the text states %q", n, fact, got, value)
		}
	}
	c.wrongly(e)
	if err := c.Answer(c.t.Context(), e, c.rightly(n)); err != nil {
		c.t.Fatalf("Answer(%d): %v\n%s", n, err, c.out.String())
	}
	if state := c.Progress.Exercises[n]; !c.Done(e) || state.Predicted != e.Right {
		c.t.Errorf("%d is not done, or was predicted wrongly:\n%s", n, tail(c.out.String()))
	}
	took := time.Since(began).Round(time.Second)
	c.t.Logf("%s %d: %v", c.Texts.Language, n, took)
	for _, left := range regexp.MustCompile(`\{[a-z][\w.-]*\}`).FindAllString(c.out.String(), -1) {
		if left != "{1}" {
			c.t.Errorf("%d: the text still contains the slot %s", n, left)
		}
	}
	c.out.Reset()
}

func tail(text string) string { return text[max(0, len(text)-3000):] }

func (c *student) facts(n int) workshop.Facts { return c.Progress.Exercises[n].Facts }

// letterOf returns the letter of an option in the printed list.
func (c *student) letterOf(e workshop.Exercise, option string) string {
	want := c.Texts.Say(strconv.Itoa(e.Number)+"."+option, nil)
	start := want
	if r := []rune(want); len(r) > 20 { // the first 20 characters are never wrapped
		start = string(r[:20])
	}
	for _, line := range strings.Split(c.out.String(), "\n") {
		rest, ok := strings.CutPrefix(line, "  ")
		if ok && len(rest) > 3 && rest[1:3] == "  " && (rest[3:] == want || start != want && strings.HasPrefix(rest[3:], start)) {
			return rest[:1]
		}
	}
	c.t.Fatalf("%d: option %s, %q, is not shown:\n%s", e.Number, option, want, c.out.String())
	return ""
}

// rightly returns the right answers to an exercise whose commands have run.
func (c *student) rightly(n int) [][]string {
	f := c.facts(n)
	number := func(name string) int {
		x, err := strconv.Atoi(f[name])
		if err != nil {
			c.t.Fatalf("%d: %s: %v in %v", n, name, err, slices.Sorted(maps.Keys(f)))
		}
		return x
	}
	word := func(words ...string) (all [][]string) {
		for _, w := range words {
			all = append(all, []string{w})
		}
		return all
	}
	switch n {
	case 1:
		return word(strconv.Itoa(number("drivers") - 1))
	case 2:
		return word(f["instances"], "no")
	case 3:
		return word(f["ttl"] + "000")
	case 4:
		return word(c.edit("right.txt", f["expire.schedule"], "A dies\n", "A acquire 2 redis\nA dies\n"))
	case 5:
		return word("10")
	case 6:
		return word("5")
	case 7:
		return word("470")
	case 8:
		return word("before claim 1", "1")
	case 9:
		return [][]string{{"unsafe", "safe", "unsafe", "n/a", "unsafe", "n/a"}}
	case 10:
		moved := strings.Replace(f["half.schedule"], "B claim 1 db\n", "", 1)
		return word(c.edit("right.txt", moved, "A claim 1 db\n", "B claim 1 db\nA claim 1 db\n"), "no")
	case 11:
		return word(strconv.FormatFloat(c.float(f["redlock.commands"])/c.float(f["setnx.commands"]), 'f', 1, 64), "0")
	default:
		fenced := strings.NewReplacer("order.Naive,\n", "order.Fenced,\n\tFences: true,\n", "setPX, unset: del", "setFenced, unset: compareAndDelete").Replace(workshop.OwnLock)
		return word(c.write("right.go", fenced))
	}
}

func (c *student) float(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return x
}

func (c *student) write(name, text string) string {
	path := filepath.Join(c.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *student) edit(name, text, old, new string) string {
	if !strings.Contains(text, old) {
		c.t.Fatalf("no %q in\n%s", old, text)
	}
	return c.write(name, strings.Replace(text, old, new, 1))
}

// wrongFiles returns the paths of wrong answer files. It maps each to the key of the sentence that must
// be the reply.
func (c *student) wrongFiles(n int) map[string]string {
	f := c.facts(n)
	switch n {
	case 4:
		return map[string]string{
			c.edit("alive.txt", f["expire.schedule"], "A dies\n", ""):                                                          "alive",
			c.edit("key.txt", f["expire.schedule"], "A acquire 1 redis\nA dies\n", "A dies\nA acquire 1 redis\nB read 1 db\n"): "lines",
			c.edit("skipped.txt", f["expire.schedule"], "A dies\n", "A read 1 db\nA dies\n"):                                   "skipped",
			c.edit("other.txt", f["expire.schedule"], "A dies\n", "time passes 1s\nA dies\n"):                                  "breaks",
			c.write("same.txt", f["expire.schedule"]):                                                                          "lines",
		}
	case 10:
		serial := strings.Replace(f["half.schedule"], "B begins\nB acquire 1 redis\nB read 1 db\nA resumes\nA read 1 db\nA claim 1 db\nA release 1 redis\n",
			"A resumes\nA read 1 db\nA claim 1 db\nA release 1 redis\nB begins\nB acquire 1 redis\nB read 1 db\n", 1)
		return map[string]string{
			c.write("same.txt", f["half.schedule"]):                                               "same",
			c.write("serial.txt", serial):                                                         "apart",
			c.edit("short.txt", f["half.schedule"], "A paused\n", ""):                             "lines",
			c.edit("header.txt", f["half.schedule"], "guard fence-write", "guard fenced"):         "header",
			c.edit("still.txt", f["half.schedule"], "B begins\nB acquire", "B begins\nB acquire"): "same",
		}
	case 12:
		if !proving() || c.Local { // this takes minutes, and does not depend on the servers
			return nil
		}
		nothing := strings.Replace(workshop.OwnLock, "redisKeyLock{set: setPX, unset: del}.New", "none.New", 1)
		busy := strings.NewReplacer("import (", "import (\n\t\"context\"\n", "set: setPX, unset: del", "set: never, unset: never").Replace(workshop.OwnLock) +
			"\nfunc never(context.Context, *redisKeyLease) (bool, error) { return false, nil }\n"
		return map[string]string{
			c.write("naive.go", workshop.OwnLock):                                                    "order",
			c.write("nothing.go", strings.Replace(nothing, "order.Naive,\n", "order.Guarded,\n", 1)): "faultless",
			c.write("busy.go", busy):                                                                 "refused",
			c.edit("token.go", workshop.OwnLock, "unset: del", "unset: compareAndDelete"):            "order",
			c.write("half.go", strings.NewReplacer("order.Naive,\n", "order.FenceWrite,\n\tFences: true,\n", "setPX, unset: del", "setFenced, unset: compareAndDelete").Replace(workshop.OwnLock)): "order",
			c.write("del.go", strings.NewReplacer("order.Naive,\n", "order.Fenced,\n\tFences: true,\n", "setPX,", "setFenced,").Replace(workshop.OwnLock)):                                         "lock",
			c.edit("nobody.go", workshop.OwnLock, "catalog.Global", "catalog.NoExclusion"):                                                                                                         "excludes",
		}
	}
	return nil
}

// wrongly hands in the wrong answer files. It checks that none is accepted, and that the reply to each
// is the sentence for that mistake.
func (c *student) wrongly(e workshop.Exercise) {
	for path, why := range c.wrongFiles(e.Number) {
		answers := slices.Repeat([][]string{{workshop.Leave}}, len(e.Questions))
		answers[0] = []string{path}
		c.out.Reset()
		if err := c.Answer(c.t.Context(), e, answers); err != nil {
			c.t.Errorf("%d: Answer: %s: %v", e.Number, filepath.Base(path), err)
			continue
		}
		said := unbroken(c.out.String())
		want, longest := c.Texts.Say(fmt.Sprintf("%d.q1.%s", e.Number, why), nil), ""
		for _, piece := range regexp.MustCompile(`\{[^}]*\}`).Split(want, -1) { // find the longest text between slots
			if len(piece) > len(longest) {
				longest = piece
			}
		}
		if c.Done(e) || c.Progress.Exercises[e.Number].Answers[0].Right || longest == "" || !strings.Contains(said, unbroken(longest)) {
			c.t.Errorf("%d: the reply to %s must be the sentence %s, %q:\n%s", e.Number, filepath.Base(path), why, want, tail(c.out.String()))
		}
	}
}

// unbroken removes all spaces and line breaks, so that wrapped texts can be compared.
func unbroken(text string) string { return strings.Join(strings.Fields(text), "") }

func proving() bool { return os.Getenv("GRABLAB_PROVE") != "" }

var allTwelve = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}

// TestWorkshop checks that right predictions and answers earn all points of an exercise, and that wrong
// answers are not accepted. The commands must have the results that the texts state.
func TestWorkshop(t *testing.T) {
	c := newStudent(t, stack.Embedded, "en")
	exercises := []int{1, 4, 5}
	if proving() {
		exercises = allTwelve
	}
	c.exercises(exercises)
}

// exercises completes the exercises with these numbers, and checks that the student has all their
// points.
func (c *student) exercises(numbers []int) {
	t := c.t
	want := 0
	for _, n := range numbers {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			c.t = t
			c.play(n)
			e, _ := workshop.Find(n)
			want += e.Points()
		})
	}
	c.t = t
	if points, of := c.Progress.Points(); points != want || of != 37 {
		t.Errorf("%d of %d points, want %d of 37", points, of, want)
	}
}

// TestWorkshopTranslated checks that exercises can be completed in the other languages too.
func TestWorkshopTranslated(t *testing.T) {
	translated := map[string][]int{"zh": {4}, "ja": {5}}
	if proving() {
		translated = map[string][]int{"zh": {3, 4, 10}, "ja": {5, 8, 10}}
	}
	for lang, exercises := range translated {
		t.Run(lang, func(t *testing.T) {
			c := newStudent(t, stack.Embedded, lang)
			c.exercises(exercises)
		})
	}
}

// TestWorkshopOnServers completes all exercises on real servers.
func TestWorkshopOnServers(t *testing.T) {
	if !proving() {
		t.Skip("it runs in make prove")
	}
	if err := stack.Installed(lock.Redis); err != nil {
		t.Fatal(err)
	}
	c := newStudent(t, stack.Local, "en")
	c.exercises(allTwelve)
	if *update && !t.Failed() {
		c.writeFacts()
	}
}

// writeFacts saves the measured facts that docs/workshop.md shows as an example. It leaves out long
// texts and the paths of files and folders.
func (c *student) writeFacts() {
	all := map[int]workshop.Facts{}
	for n, state := range c.Progress.Exercises {
		all[n] = maps.Clone(state.Facts)
		maps.DeleteFunc(all[n], func(name, value string) bool {
			return strings.Contains(value, "\n") || name == "dir" || name == "file" || name == "handed"
		})
		for name, value := range all[n] {
			all[n][name] = strings.Replace(value, c.Dir, resultsDir, 1)
		}
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.WriteFile("../../internal/present/workshop/testdata/facts.json", append(b, '\n'), 0o644)
	}
	if err != nil {
		c.t.Error(err)
	}
}

// TestWorkshopCosts checks that a wrong answer and a hint each cost a point. The reply to a wrong answer
// must not contain the right one.
func TestWorkshopCosts(t *testing.T) {
	c := newStudent(t, stack.Embedded, "en")
	e, _ := workshop.Find(5)
	c.Show(e)
	if err := errors.Join(c.Predict(e, c.letterOf(e, "b")), c.Run(t.Context(), e)); err != nil {
		t.Fatal(err)
	}
	c.out.Reset()
	if err := errors.Join(c.Answer(t.Context(), e, [][]string{{"8"}}), c.Hint(e)); err != nil {
		t.Fatal(err)
	}
	if said := c.out.String(); strings.Contains(said, "10") || !strings.Contains(said, "no one else has it yet") {
		t.Errorf("the reply to the wrong answer is\n%s", said)
	}
	if err := c.Answer(t.Context(), e, [][]string{{"10"}}); err != nil {
		t.Fatal(err)
	}
	if points, _ := c.Progress.Points(); points != 0 {
		t.Errorf("%d points for a wrong prediction, a wrong figure and a hint; want 0", points)
	}
}

// TestWorkshopOfThePage checks that the page can open a session in every language. For an unknown language, it
// must return an error instead of a session without texts.
func TestWorkshopOfThePage(t *testing.T) {
	t.Chdir(t.TempDir())
	open := (&labSettings{kind: stack.Embedded}).workshopOf()
	for _, lang := range workshop.Languages {
		session, err := open(lang)
		if err != nil || session.Texts == nil || session.Do == nil {
			t.Errorf("%s: %+v, %v", lang, session, err)
		}
	}
	for _, lang := range []string{"", "xx", "../en"} {
		if session, err := open(lang); session != nil || !errors.Is(err, workshop.ErrAnswer) {
			t.Errorf("%q: session %+v, error %v", lang, session, err)
		}
	}
}

// TestWorkshopCommand checks that the command keeps its progress between calls, and that it asks no
// questions without a terminal.
func TestWorkshopCommand(t *testing.T) {
	dir := t.TempDir()
	call := func(want int, args ...string) (string, string) {
		t.Helper()
		cmd := loadgen(t, append([]string{"workshop"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "LC_ALL=C")
		code, out, errs := output(t, cmd)
		if code != want {
			t.Errorf("workshop %v: exit %d, want %d\n%s%s", args, code, want, out, errs)
		}
		return out, errs
	}
	for _, tt := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"-seed", "7"}, int(exitDone), "Score: 0 of 37 points.\nNext: ", ""},
		{[]string{"-seed", "8"}, int(exitUsage), "", "began with -seed 7"},
		{[]string{"5"}, int(exitDone), "workshop 5 -predict LETTER", ""},
		{[]string{"5", "-answer", "10"}, int(exitUsage), "", "the prediction is missing: add -predict LETTER"},
		{[]string{"5", "-predict", "x"}, int(exitUsage), "", `"x" is not valid: enter a letter from a to d`},
		{[]string{"5", "-predict", "a"}, int(exitDone), "After which step do two drivers hold", ""},
		{[]string{"5", "-predict", "b"}, int(exitDone), "Only your first prediction counts", ""},
		{[]string{"5", "-answer", "ten"}, int(exitUsage), "", `"ten" is not a whole number`},
		{[]string{"5", "-answer", "10,no"}, int(exitUsage), "", "must have 1 value, separated"},
		{[]string{"5", "my.txt"}, int(exitUsage), "", "does not take a file"},
		{[]string{"5", "-answer", "10"}, int(exitDone), "3 of 3 points for this exercise; 3 of 37 in total.", ""},
		{[]string{"-lang", "ja"}, int(exitDone), "得点：37 点中 3 点。", ""},
		{[]string{"-lang", "fr"}, int(exitUsage), "", "must be one of en, zh, ja"},
		{[]string{"13"}, int(exitUsage), "", "there is no such exercise"},
		{[]string{"-predict", "a"}, int(exitUsage), "", "the exercise is missing"},
		{[]string{"5", "-reset"}, int(exitUsage), "", "applies to all exercises"},
		{[]string{"5", "-hint", "-answer", "a"}, int(exitUsage), "", "-hint only shows a hint"},
		{[]string{"2", "-predict", "a"}, int(exitDone), "-answer ANSWER", ""},
		{[]string{"2", "-answer", ","}, int(exitUsage), "", `-answer ",": must have 2 values, separated by commas; - skips a question`},
		{[]string{"-reset", "-seed", "8"}, int(exitDone), "Score: 0 of 37 points.", ""},
		{[]string{"-h"}, int(exitDone), "Usage: loadgen workshop", ""},
	} {
		out, errs := call(tt.code, tt.args...)
		if !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.err) {
			t.Errorf("workshop %v: want %q and %q, got\n%s%s", tt.args, tt.out, tt.err, out, errs)
		}
	}
}

// TestResetKeepsProgressOnError checks that -reset deletes nothing if the command cannot run.
func TestResetKeepsProgressOnError(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", "")
	progress := filepath.Join(resultsDir, progressFile)
	if err := errors.Join(os.Mkdir(resultsDir, 0o755), os.WriteFile(progress, []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	w, err := parseWorkshop([]string{"-reset", "-stack", "local"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.run(t.Context(), io.Discard, io.Discard); !errors.Is(err, flags.ErrUsage) {
		t.Errorf("without servers: %v", err)
	}
	if _, err := os.Stat(progress); err != nil {
		t.Errorf("the progress is gone: %v", err)
	}
}

// TestErrorsOfAnExerciseOnThePage checks the usage errors of an exercise's commands that the page gets. The page
// shows such a message as it is, so the message must not begin as in a terminal.
func TestErrorsOfAnExerciseOnThePage(t *testing.T) {
	t.Chdir(t.TempDir())
	session, err := newLabSettings().workshopOf()("en")
	if err != nil {
		t.Fatal(err)
	}
	for args, names := range map[string]string{"explore -actors 99": "-actors 99", "explore -no-such-flag": "-no-such-flag", "-drivers 0 -out x": "-drivers 0"} {
		_, err := session.Do(t.Context(), strings.Fields(args), io.Discard)
		if err == nil || strings.HasPrefix(err.Error(), flags.ErrUsage.Error()) || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestWorkshopAsksAgain checks that the command repeats a question after an invalid answer in a terminal,
// and that such an answer costs no points.
func TestWorkshopAsksAgain(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	typed := func(lines string) (string, error) {
		w, err := parseWorkshop([]string{"5", "-seed", "7", "-lang", "en"})
		if err != nil {
			t.Fatal(err)
		}
		w.stdin = bufio.NewReader(strings.NewReader(lines))
		var out, errs bytes.Buffer
		err = w.run(t.Context(), &out, &errs)
		return out.String(), err
	}
	out, err := typed("q\n")
	if want := `"q" is not valid: enter a letter from a to d`; !errors.Is(err, context.Canceled) || strings.Count(out, "Your prediction") != 2 || !strings.Contains(out, want) {
		t.Errorf("%v, want %s and the question again:\n%s", err, want, out)
	}
	cmd := loadgen(t, "workshop", "5", "-lang", "en", "-predict", "a")
	cmd.Dir = dir
	if code, out, errs := output(t, cmd); code != int(exitDone) {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	out, err = typed("nine\nstep 10\n")
	if err != nil || !strings.Contains(out, `"nine" is not a whole number`) || !strings.Contains(out, "3 of 3 points for this exercise") {
		t.Errorf("%v, want the question again and all points:\n%s", err, out)
	}
	printed, err := os.ReadFile(filepath.Join(resultsDir, workshop.Folder, "5", "show", "printed.txt"))
	if err != nil || !strings.Contains(string(printed), "breaks lease-exclusive in 10 steps") {
		t.Errorf("%v; the commands printed %q", err, printed)
	}
}

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{"4, no": {"4", "no"}, "4，否": {"4", "否"}, "4、いいえ": {"4", "いいえ"}, "": {""}} {
		if got := splitWords(line); !slices.Equal(got, want) {
			t.Errorf("splitWords(%q) = %q, want %q", line, got, want)
		}
	}
}

// TestAsk checks that ask reads exactly one line without the spaces around it. At the end of the input or of
// the context, it must return an error.
func TestAsk(t *testing.T) {
	in := bufio.NewReader(strings.NewReader(" c \n10"))
	var out bytes.Buffer
	for _, want := range []string{"c", "10"} {
		if got, err := ask(t.Context(), in, "Answer", &out); got != want || err != nil {
			t.Errorf("ask returned %q, %v; want %q", got, err, want)
		}
	}
	if _, err := ask(t.Context(), in, "", &out); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := ask(ctx, bufio.NewReader(r), "", &out); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestLocaleLanguage(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "en"},
		{map[string]string{"LANG": "ja_JP.UTF-8"}, "ja"},
		{map[string]string{"LANG": "ja_JP.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"},
		{map[string]string{"LANG": "ja_JP.UTF-8", "LC_ALL": "C"}, "en"},
	} {
		if got := localeLanguage(func(k string) string { return tt.env[k] }); got != tt.want {
			t.Errorf("localeLanguage(%v) = %s, want %s", tt.env, got, tt.want)
		}
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"F5"}, int(exitDone), []string{"F5, a failure mode: a release does not check the owner", "cure", "setnx-del"}},
		{[]string{"f5"}, int(exitDone), []string{"F5, a failure mode"}},
		{[]string{"pause"}, int(exitDone), []string{"pause, a fault:", "loadgen run, loadgen explore", "watchdog"}},
		{[]string{"expiry"}, int(exitDone), []string{"slow, a fault:", "other names ", " expiry\n"}},
		{[]string{"lease-exclusive"}, int(exitDone), []string{"lease-exclusive, a property:"}},
		{[]string{"setnx-getset-seconds"}, int(exitDone), []string{"a strategy:", "whole seconds", "F9"}},
		{[]string{"stuck"}, int(exitDone), []string{"stuck, a property:", "stuck, a verdict:", "stuck, a word of the tables and documents:"}},
		{[]string{"near", "misses"}, int(exitUsage), []string{`nothing is called "near"; did you mean`}},
		{[]string{"near misses", "F1"}, int(exitDone), []string{"near miss, a word", "F1, a failure mode"}},
		{[]string{"foreign", "other"}, int(exitDone), []string{"foreign, a word of the tables and documents: your own service", "other, a word"}},
		{[]string{"lba"}, int(exitUsage), []string{`nothing is called "lba"; did you mean lab?`}},
		{[]string{"lab"}, int(exitDone), []string{"lab, a command: "}},
		{[]string{"F99"}, int(exitUsage), []string{`nothing is called "F99"`}},
		{[]string{"watchdgo"}, int(exitUsage), []string{`did you mean watchdog?`}},
		{[]string{}, int(exitUsage), []string{"as in loadgen explain F11"}},
		{[]string{"-h"}, int(exitDone), []string{"Usage: loadgen explain", "F1, F2"}},
	} {
		var out, errs bytes.Buffer
		code := exitOf(t.Context(), append([]string{"explain"}, tt.args...), &out, &errs)
		if code != tt.code {
			t.Errorf("explain %v: exit %d, want %d", tt.args, code, tt.code)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String()+errs.String(), want) {
				t.Errorf("explain %v: no %q in\n%s%s", tt.args, want, out.String(), errs.String())
			}
		}
	}
}
