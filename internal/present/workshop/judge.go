package workshop

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// Any question's mark can have one of these reasons.
const (
	right = "right"
	other = "other" // the answer is wrong, but not because of a known misconception
)

// Measurements vary between machines, so answers may differ by these tolerances.
const (
	waitTolerance     = 0.15
	commandsTolerance = 0.20
	offsetTolerance   = 60 // in ms, in both directions
)

// bareNumber strips the word or unit around a number: "step 10" becomes "10", and "3.4x" becomes
// "3.4".
func bareNumber(word string) string {
	word = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(word)), "step")
	for _, unit := range []string{"ms", "x", "×"} {
		word = strings.TrimSuffix(word, unit)
	}
	return strings.TrimSpace(word)
}

// parseWhole parses a whole number of at least 0.
func parseWhole(word string) (int, error) {
	n, err := strconv.Atoi(bareNumber(word))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %q is not a whole number: enter one such as 12", ErrAnswer, word)
	}
	return n, nil
}

// decimal parses a number that is not negative.
func decimal(word string) (float64, error) {
	x, err := strconv.ParseFloat(bareNumber(word), 64)
	if err != nil || x < 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%w: %q is not a number: enter one such as 12 or 0.5", ErrAnswer, word)
	}
	return x, nil
}

// oneOf returns the answer in lower case, or an error if the answer is not one of words.
func oneOf(word string, words ...string) (string, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	if !slices.Contains(words, word) {
		return "", fmt.Errorf("%w: %q is not valid: enter one of %s", ErrAnswer, word, strings.Join(words, ", "))
	}
	return word, nil
}

// yesOrNo returns "yes" or "no" for an answer in any of the workshop's languages.
func yesOrNo(word string) (string, error) {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "y", "是", "はい":
		return "yes", nil
	case "n", "否", "不是", "いいえ":
		return "no", nil
	}
	return oneOf(word, yesNo...)
}

var yesNo = []string{"yes", "no"}

// answer contains the words in a user's answer, and the measured values for comparison. err is the
// first problem, such as a word that is not a number.
type answer struct {
	words  []string
	facts  Facts
	err    error
	points int // the points for a partly right answer
}

// Judge compares an answer with the measured facts. If the answer is malformed, the error wraps
// ErrAnswer.
func (q Question) Judge(words []string, f Facts) (Mark, error) {
	a := &answer{words: words, facts: f}
	m := Mark{Why: q.judge(a), Points: a.points}
	if m.Why == right {
		m.Points = q.Points
	}
	if a.err != nil {
		return Mark{}, a.err
	}
	return m, nil
}

func (a *answer) fail(err error) { a.err = cmp.Or(a.err, err) }

// read parses the answer's first word. If the word is invalid, it records an error in the answer.
func read[T any](a *answer, parse func(string) (T, error)) T {
	x, err := parse(a.words[0])
	a.fail(err)
	return x
}

func (a *answer) missing(fact string) {
	a.fail(fmt.Errorf("%w: %s: answer again, or run the commands of the exercise again", errMeasure, fact))
}

// fact returns a measured value by name. If the value is missing, it records an error in the
// answer.
func (a *answer) fact(name string) string {
	value, ok := a.facts[name]
	if !ok {
		a.missing(name)
	}
	return value
}

// number returns a measured number by name. If the number is missing, it records an error in the
// answer.
func (a *answer) number(name string) float64 {
	x, ok := a.facts.number(name)
	if !ok {
		a.missing(name)
	}
	return x
}

// reason explains why an answer is right or wrong. It applies if holds is true.
type reason struct {
	holds bool
	why   string // right, or the mistaken belief that leads to the answer
}

// first returns the first reason that applies, or other if none applies.
func first(reasons []reason) string {
	return cmp.Or(catalog.First(reasons, func(r reason) bool { return r.holds }).why, other)
}

// mistake is a wrong answer, with the false belief that leads to it. figure is a number or the name
// of a measured value.
type mistake struct{ figure, belief string }

// count returns a function that compares an answer with a measured number. If the answer is wrong,
// it looks for the mistake that led to it.
func count(fact string, mistakes ...mistake) func(*answer) string {
	return func(a *answer) string {
		n := read(a, parseWhole)
		reasons := []reason{{float64(n) == a.number(fact), right}}
		for _, m := range mistakes {
			reasons = append(reasons, reason{cmp.Or(a.facts[m.figure], m.figure) == strconv.Itoa(n), m.belief})
		}
		return first(reasons)
	}
}

// provesNothing judges the answer to the question: does the first run prove that the lock is safe?
func provesNothing(a *answer) string {
	isYes := read(a, yesOrNo) == "yes"
	return first([]reason{{isYes == (a.fact("one.verdict") == string(catalog.Safe)), right}, {true, "passed"}})
}

// longestWait judges the answer to the question: how long do clients wait for a dead client's lock?
func longestWait(a *answer) string {
	ms, want := read(a, decimal), a.number("check.waited")
	ttl, _ := a.facts.number("ttl")
	near := func(x float64) bool { return math.Abs(ms-x) <= waitTolerance*x }
	return first([]reason{
		{near(want), right},
		{ms < 100, "freed"},
		{near(1000), "before"},
		{near(10000), "patience"},
		{near(ttl * 500), "half"},
	})
}

// oneLineMore judges a schedule to which the user has added one step (exercise 4).
func oneLineMore(a *answer) string {
	was, is, err := bothSchedules(a.facts, "expire.schedule")
	a.fail(err)
	return first([]reason{
		{was.Header() != is.Header(), "header"},
		{!slices.Contains(is.lines, "A dies"), "alive"},
		{len(is.lines) != len(was.lines)+1 || !isSubsequence(was.lines, is.lines), "lines"},
		{a.facts["handed.skipped"] != "", "skipped"},
		{a.facts["handed.key"] != "true", "key"},
		{a.facts["handed.breaks"] != "", "breaks"},
		{true, right},
	})
}

// smallestOffset judges the user's value for the smallest clock offset that breaks the lock. The value is right if a
// run just below it is safe and a run just above it is unsafe.
func smallestOffset(a *answer) string {
	read(a, offset)
	below, above := a.facts["below.verdict"], a.facts["above.verdict"]
	why := map[string]string{"safe unsafe": right, "safe safe": "small", "unsafe unsafe": "large"}[below+" "+above]
	if why == "" {
		a.missing("below.verdict " + below + ", above.verdict " + above)
	}
	return why
}

func offset(word string) (int, error) {
	n, err := parseWhole(word)
	if err == nil && n > 10000 {
		err = fmt.Errorf("%w: %d ms is too large: enter at most 10000", ErrAnswer, n)
	}
	return n, err
}

// around stores two clock offsets, just below and just above the answer, for the two runs that
// check the answer.
func around(words []string, f Facts) error {
	n, err := offset(words[0])
	f["below"], f["above"] = strconv.Itoa(max(0, n-offsetTolerance)), strconv.Itoa(n+offsetTolerance)
	return err
}

// pointsOfGrab lists the request steps that the user can choose in exercise 8.
var pointsOfGrab = []string{"before read 1", "after read 1", "before renew 1", "before claim 1", "after claim 1"}

// whereStopped judges the answer to the question: at which step was the lock holder stopped?
func whereStopped(a *answer) string {
	point := strings.ToLower(strings.Join(strings.Fields(a.words[0]), " "))
	_, step, _ := strings.Cut(strings.TrimPrefix(point, "waiting: "), " ")
	is := func(phase string) bool { return strings.HasPrefix(step, phase) }
	why := first([]reason{
		{slices.Contains(strings.Split(a.fact("paused.unsafe"), "; "), point), right},
		{is("read") || is("acquire"), "looks"},
		{is("renew"), "renewal"},
		{is("claim") || is("release"), "written"},
	})
	if why == other {
		a.fail(fmt.Errorf("%w: %q is not a point of a grab: enter one such as %q", ErrAnswer, a.words[0], "after read 1"))
	}
	return why
}

// These are the faults and strategies in exercise 9, and the verdicts that users can predict.
var (
	nineFields = []string{
		"redis-restart watchdog", "redis-restart redlock", "redis-restart redlock-miswired",
		"amnesia watchdog", "amnesia redlock", "amnesia redlock-miswired",
	}
	nineVerdicts = []string{string(catalog.Safe), string(catalog.Unsafe), string(catalog.NA)}
)

// sixCells judges a user's predictions of six test results, and explains the first wrong one.
func sixCells(a *answer) string {
	wrong, struck := "", true
	for i, field := range nineFields {
		word := a.words[i]
		if strings.EqualFold(strings.TrimSpace(word), "na") {
			word = string(catalog.NA)
		}
		got, err := oneOf(word, nineVerdicts...)
		a.fail(err)
		want := a.fact(strings.Replace(field, " ", ".", 1) + ".verdict")
		if got != want && wrong == "" {
			wrong, struck = field+" "+got, want != string(catalog.NA)
		}
	}
	return first([]reason{
		{wrong == "", right},
		{wrong == "redis-restart redlock-miswired safe", "listed"},
		{wrong == "redis-restart redlock unsafe", "votes"},
		{wrong == "amnesia redlock safe", "memory"},
		{strings.HasPrefix(wrong, "amnesia") && !struck, "touches"},
	})
}

// linesMoved judges a schedule that the user has made by reordering another schedule's steps.
func linesMoved(a *answer) string {
	was, is, err := bothSchedules(a.facts, "half.schedule")
	a.fail(err)
	before, after := slices.Sorted(slices.Values(was.lines)), slices.Sorted(slices.Values(is.lines))
	return first([]reason{
		{was.Header() != is.Header(), "header"},
		{!slices.Equal(before, after), "lines"},
		{slices.Equal(was.lines, is.lines), "same"},
		{a.facts["handed.breaks"] != "", "breaks"},
		{a.facts["handed.refused"] == "", "apart"},
		{true, right},
	})
}

// overlapsRemain judges the answer to the question: can two clients still hold the lock at once if
// the database checks fencing tokens?
func overlapsRemain(a *answer) string {
	isNo := read(a, yesOrNo) == "no"
	return first([]reason{{isNo == (a.number("fenced.overlaps") > 0), right}, {true, "outside"}})
}

// commandsOver judges the answer to the question: how many times as many commands as setnx does
// redlock need?
func commandsOver(a *answer) string {
	x, setnx, redlock := read(a, decimal), a.number("setnx.commands"), a.number("redlock.commands")
	if setnx == 0 {
		a.missing("setnx.commands")
	}
	near := func(want float64) bool { return math.Abs(x-want) <= commandsTolerance*want }
	return first([]reason{
		{near(redlock / setnx), right},
		{near(redlock) || near(redlock-setnx), "absolute"},
		{near(setnx / redlock), "inverse"},
		{near(1), "equal"},
	})
}

// ownScored lists properties that the user's own lock should keep. The user earns one point if the
// lock keeps all of them under faults.
var ownScored = []string{catalog.LeaseExclusive, catalog.StuckOrder, catalog.ReleaseEffective}

// ownLock judges a lock that the user has written. It gives up to three points: for no failure
// without faults, for the properties in ownScored, and for one winner per order.
func ownLock(a *answer) string {
	f := a.facts
	faultless, faulted := strings.Fields(f["own.faultless"]), strings.Fields(f["own.faulted"])
	breaks := func(property string) bool {
		return slices.Contains(faultless, property) || slices.Contains(faulted, property)
	}
	refused := first([]reason{
		{f["own.refused"] != "", "refused"},
		{f["own.excludes"] != string(catalog.Global), "excludes"},
		{f["own.complete"] != "true", "incomplete"},
	})
	if refused != other {
		return refused
	}
	for _, earned := range []bool{len(faultless) == 0, !slices.ContainsFunc(ownScored, breaks), !breaks(catalog.OneWinner)} {
		if earned {
			a.points++
		}
	}
	return first([]reason{
		{a.points == 3, right},
		{len(faultless) > 0, "faultless"},
		{breaks(catalog.OneWinner), "order"},
		{true, "lock"},
	})
}

// scheduleLines is a schedule with its steps as lines of text, for easy comparison.
type scheduleLines struct {
	schedule.Schedule
	lines []string
}

// Header returns the schedule's text without its steps.
func (h scheduleLines) Header() string {
	h.Steps, h.Mode = nil, ""
	return h.Schedule.String()
}

// bothSchedules returns the schedule that a search has found, and the user's edited version.
func bothSchedules(f Facts, fact string) (was, is scheduleLines, err error) {
	if f[fact] == "" {
		return was, is, fmt.Errorf("%w: %s", errMeasure, fact)
	}
	if was, err = readHanded(fact, f[fact]); err == nil {
		is, err = readHanded(f["file"], f["handed"])
	}
	return was, is, err
}

func readHanded(file, text string) (h scheduleLines, err error) {
	if h.Schedule, err = schedule.Parse(text); err != nil {
		return h, fmt.Errorf("%w: %s: %s", ErrAnswer, file, strings.TrimPrefix(err.Error(), schedule.ErrSyntax.Error()+": "))
	}
	h.lines = catalog.Map(h.Steps, schedule.Step.String)
	return h, nil
}

// isSubsequence reports whether long contains all lines of short in the same order.
func isSubsequence(short, long []string) bool {
	i := 0
	for _, s := range long {
		if i < len(short) && s == short[i] {
			i++
		}
	}
	return i == len(short)
}
