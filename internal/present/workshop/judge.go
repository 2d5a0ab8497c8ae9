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

// Reasons that several questions share.
const (
	right = "right"
	other = "other" // the answer is wrong, but not because of a known misconception
)

// Tolerances for measurements that vary between machines.
const (
	waitTolerance     = 0.15
	commandsTolerance = 0.20
	offsetTolerance   = 60 // in ms, in both directions
)

func rightFor(points int) (Mark, error)   { return Mark{points, right}, nil }
func wrongBy(belief string) (Mark, error) { return Mark{0, belief}, nil }

// bareNumber removes words and units around a number: "step 10" becomes "10", and "3.4x" becomes
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

// decimal parses a number of at least 0.
func decimal(word string) (float64, error) {
	x, err := strconv.ParseFloat(bareNumber(word), 64)
	if err != nil || x < 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%w: %q is not a number: enter one such as 12 or 0.5", ErrAnswer, word)
	}
	return x, nil
}

// oneOf returns the answer in lower case, or an error if words does not contain it.
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

// missingFact returns an error about a fact that no command has measured.
func missingFact(fact string) (Mark, error) {
	return Mark{}, fmt.Errorf("%w: %s", errMeasure, fact)
}

// mistake is a wrong answer and the belief that leads to it. figure is a number or the name of a
// fact.
type mistake struct{ figure, belief string }

// count returns a function that compares an answer with a measured number. For a wrong answer, it
// looks for the misconception behind it.
func count(points int, fact string, mistakes ...mistake) func(words []string, f Facts) (Mark, error) {
	return func(words []string, f Facts) (Mark, error) {
		n, err := parseWhole(words[0])
		if err != nil {
			return Mark{}, err
		}
		want, ok := f.number(fact)
		switch {
		case !ok:
			return missingFact(fact)
		case float64(n) == want:
			return rightFor(points)
		}
		for _, m := range mistakes {
			if cmp.Or(f[m.figure], m.figure) == strconv.Itoa(n) {
				return wrongBy(m.belief)
			}
		}
		return wrongBy(other)
	}
}

// provesNothing judges the second question of exercise 2: is the first run safe?
func provesNothing(words []string, f Facts) (Mark, error) {
	word, err := yesOrNo(words[0])
	switch {
	case err != nil:
		return Mark{}, err
	case f["one.verdict"] == "":
		return missingFact("one.verdict")
	case (word == "yes") == (f["one.verdict"] == string(catalog.Safe)):
		return rightFor(1)
	}
	return wrongBy("passed")
}

// longestWait judges exercise 3: how long do drivers wait for the lock of a dead driver?
func longestWait(words []string, f Facts) (Mark, error) {
	ms, err := decimal(words[0])
	if err != nil {
		return Mark{}, err
	}
	want, ok := f.number("check.waited")
	if !ok {
		return missingFact("check.waited")
	}
	ttl, _ := f.number("ttl")
	near := func(x float64) bool { return math.Abs(ms-x) <= waitTolerance*x }
	switch {
	case near(want):
		return rightFor(2)
	case ms < 100:
		return wrongBy("freed")
	case near(1000):
		return wrongBy("before")
	case near(10000):
		return wrongBy("patience")
	case near(ttl * 500):
		return wrongBy("half")
	}
	return wrongBy(other)
}

// oneLineMore judges exercise 4, in which the user adds one step to a schedule.
func oneLineMore(_ []string, f Facts) (Mark, error) {
	was, is, err := bothSchedules(f, "expire.schedule")
	switch {
	case err != nil:
		return Mark{}, err
	case was.Header() != is.Header():
		return wrongBy("header")
	case !slices.ContainsFunc(is.lines, func(s string) bool { return s == "A dies" }):
		return wrongBy("alive")
	case len(is.lines) != len(was.lines)+1 || !isSubsequence(was.lines, is.lines):
		return wrongBy("lines")
	case f["handed.skipped"] != "":
		return wrongBy("skipped")
	case f["handed.key"] != "true":
		return wrongBy("key")
	case f["handed.breaks"] != "":
		return wrongBy("breaks")
	}
	return rightFor(2)
}

// pausedAfter judges the first question of exercise 6: after which step is driver A paused?
func pausedAfter(words []string, f Facts) (Mark, error) {
	n, err := parseWhole(words[0])
	if err != nil {
		return Mark{}, err
	}
	paused, ok := f.number("getdel.paused")
	if !ok {
		return missingFact("getdel.paused")
	}
	del, _ := f.number("getdel.released")
	switch float64(n) {
	case paused - 1:
		return rightFor(1)
	case paused:
		return wrongBy("itself")
	case paused - 2:
		return wrongBy("asked")
	case del:
		return wrongBy("deleted")
	}
	return wrongBy(other)
}

// smallestOffset judges exercise 7: what is the smallest clock offset that breaks the lock? A run
// just below the answer must be safe, and a run just above it must be unsafe.
func smallestOffset(words []string, f Facts) (Mark, error) {
	if _, err := offset(words); err != nil {
		return Mark{}, err
	}
	below, above := f["below.verdict"], f["above.verdict"]
	switch {
	case below == string(catalog.Safe) && above == string(catalog.Unsafe):
		return rightFor(2)
	case below == string(catalog.Safe) && above == string(catalog.Safe):
		return wrongBy("small")
	case below == string(catalog.Unsafe) && above == string(catalog.Unsafe):
		return wrongBy("large")
	}
	return missingFact("below.verdict " + below + ", above.verdict " + above)
}

func offset(words []string) (int, error) {
	n, err := parseWhole(words[0])
	if err == nil && n > 10000 {
		err = fmt.Errorf("%w: %d ms is too large: enter at most 10000", ErrAnswer, n)
	}
	return n, err
}

// around prepares two runs of the load test: one with a clock offset just below the answer, and one
// with an offset just above it.
func around(words []string, f Facts) error {
	n, err := offset(words)
	f["below"], f["above"] = strconv.Itoa(max(0, n-offsetTolerance)), strconv.Itoa(n+offsetTolerance)
	return err
}

// pointsOfGrab lists the steps that the user can choose in exercise 8.
var pointsOfGrab = []string{"before read 1", "after read 1", "before renew 1", "before claim 1", "after claim 1"}

// whereStopped judges the first question of exercise 8: at which step was the holder of the lock
// stopped?
func whereStopped(words []string, f Facts) (Mark, error) {
	point := strings.ToLower(strings.Join(strings.Fields(words[0]), " "))
	unsafe, ok := f["paused.unsafe"]
	if !ok {
		return missingFact("paused.unsafe")
	}
	_, phase, _ := strings.Cut(strings.TrimPrefix(point, "waiting: "), " ")
	switch {
	case slices.Contains(strings.Split(unsafe, "; "), point):
		return rightFor(1)
	case strings.HasPrefix(phase, "read") || strings.HasPrefix(phase, "acquire"):
		return wrongBy("looks")
	case strings.HasPrefix(phase, "renew"):
		return wrongBy("renewal")
	case strings.HasPrefix(phase, "claim") || strings.HasPrefix(phase, "release"):
		return wrongBy("written")
	}
	return Mark{}, fmt.Errorf("%w: %q is not a point of a grab: enter one such as %q", ErrAnswer, words[0], "after read 1")
}

// The faults in the questions of exercise 9, and the verdicts that the user can choose.
var (
	nineFaults   = []string{"redis-restart", "amnesia"}
	nineVerdicts = []string{string(catalog.Safe), string(catalog.Unsafe), string(catalog.NA)}
	nineFields   = cellsOfNine()
)

func cellsOfNine() (all []string) {
	for _, fault := range nineFaults {
		for _, strategy := range nineStrategies {
			all = append(all, fault+" "+strategy)
		}
	}
	return all
}

// sixCells judges exercise 9, in which the user predicts six verdicts.
func sixCells(words []string, f Facts) (Mark, error) {
	var cells [2][3]string
	wrong := ""
	for i := range words {
		fault := nineFaults[i/3]
		want := f[fault+"."+nineStrategies[i%3]+".verdict"]
		word := words[i]
		if strings.EqualFold(strings.TrimSpace(word), "na") {
			word = string(catalog.NA)
		}
		got, err := oneOf(word, nineVerdicts...)
		switch {
		case err != nil:
			return Mark{}, err
		case want == "":
			return missingFact(fault)
		}
		cells[i/3][i%3] = got
		if got != want && wrong == "" {
			wrong = fault + " " + nineStrategies[i%3] + " " + got
		}
	}
	switch wrong {
	case "":
		return rightFor(2)
	case "redis-restart redlock-miswired safe":
		return wrongBy("listed")
	case "redis-restart redlock unsafe":
		return wrongBy("votes")
	case "amnesia redlock safe":
		return wrongBy("memory")
	}
	if strings.HasPrefix(wrong, "amnesia") && f["amnesia."+strings.Fields(wrong)[1]+".verdict"] == string(catalog.NA) {
		return wrongBy("touches")
	}
	return wrongBy(other)
}

// linesMoved judges the first question of exercise 10, in which the user reorders a schedule.
func linesMoved(_ []string, f Facts) (Mark, error) {
	was, is, err := bothSchedules(f, "half.schedule")
	if err != nil {
		return Mark{}, err
	}
	before, after := slices.Sorted(slices.Values(was.lines)), slices.Sorted(slices.Values(is.lines))
	switch {
	case was.Header() != is.Header():
		return wrongBy("header")
	case !slices.Equal(before, after):
		return wrongBy("lines")
	case slices.Equal(was.lines, is.lines):
		return wrongBy("same")
	case f["handed.breaks"] != "":
		return wrongBy("breaks")
	case f["handed.refused"] == "":
		return wrongBy("apart")
	}
	return rightFor(1)
}

// overlapsRemain judges a question of exercise 10: can two drivers still hold the lock at once if
// the database checks fencing tokens?
func overlapsRemain(words []string, f Facts) (Mark, error) {
	word, err := yesOrNo(words[0])
	if err != nil {
		return Mark{}, err
	}
	overlaps, ok := f.number("fenced.overlaps")
	if !ok {
		return missingFact("fenced.overlaps")
	}
	if (word == "no") == (overlaps > 0) {
		return rightFor(1)
	}
	return wrongBy("outside")
}

// commandsOver judges the first question of exercise 11: how many times as many commands does
// redlock need as setnx?
func commandsOver(words []string, f Facts) (Mark, error) {
	x, err := decimal(words[0])
	if err != nil {
		return Mark{}, err
	}
	setnx, ok := f.number("setnx.commands")
	redlock, and := f.number("redlock.commands")
	if !ok || !and || setnx == 0 {
		return missingFact("commands")
	}
	near := func(want float64) bool { return math.Abs(x-want) <= commandsTolerance*want }
	switch {
	case near(redlock / setnx):
		return rightFor(1)
	case near(redlock), near(redlock - setnx):
		return wrongBy("absolute")
	case near(setnx / redlock):
		return wrongBy("inverse")
	case near(1):
		return wrongBy("equal")
	}
	return wrongBy(other)
}

// ownScored lists properties of the user's lock. Exercise 12 gives one point if the lock keeps all
// of them under faults.
var ownScored = []string{catalog.LeaseExclusive, catalog.StuckOrder, catalog.ReleaseEffective}

// notRefused clears the error about an earlier version of the user's lock.
func notRefused(_ []string, f Facts) error {
	f["own.refused"] = ""
	return nil
}

// ownLock judges exercise 12. There is one point if nothing fails without faults. There is one if
// the lock keeps the properties in ownScored, and another if only one driver wins each order.
func ownLock(_ []string, f Facts) (Mark, error) {
	faultless, faulted := strings.Fields(f["own.faultless"]), strings.Fields(f["own.faulted"])
	broken := slices.Concat(faultless, faulted)
	switch {
	case f["own.refused"] != "":
		return wrongBy("refused")
	case f["own.excludes"] != string(catalog.Global):
		return wrongBy("excludes")
	case f["own.complete"] != "true":
		return wrongBy("incomplete")
	}
	points := 0
	if len(faultless) == 0 {
		points++
	}
	if !slices.ContainsFunc(ownScored, func(p string) bool { return slices.Contains(broken, p) }) {
		points++
	}
	if !slices.Contains(broken, catalog.OneWinner) {
		points++
	}
	switch {
	case points == 3:
		return rightFor(3)
	case len(faultless) > 0:
		return Mark{points, "faultless"}, nil
	case slices.Contains(broken, catalog.OneWinner):
		return Mark{points, "order"}, nil
	}
	return Mark{points, "lock"}, nil
}

// scheduleLines is a schedule with its steps as lines of text.
type scheduleLines struct {
	schedule.Schedule
	lines []string
}

// Header returns the text of the schedule above its steps.
func (h scheduleLines) Header() string {
	h.Steps, h.Mode = nil, ""
	return h.Schedule.String()
}

// bothSchedules returns the schedule that the search found, and the user's version of it.
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
	for _, s := range h.Steps {
		h.lines = append(h.lines, s.String())
	}
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
