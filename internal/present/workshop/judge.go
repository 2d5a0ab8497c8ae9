package workshop

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
)

// The whys that several questions have.
const (
	right = "right"
	other = "other" // wrong, and no belief is known that leads there
)

// Within which part of the run's own figure an answer is right that varies by machine.
const (
	waitTolerance     = 0.15
	commandsTolerance = 0.20
	offsetTolerance   = 60 // ms, to each side
)

func rightFor(points int) (Mark, error)   { return Mark{points, right}, nil }
func wrongBy(belief string) (Mark, error) { return Mark{0, belief}, nil }

// bare is a figure without what may be written beside it: 10 for "step 10", 4000 for
// "4000 ms", 3.4 for "3.4x".
func bare(word string) string {
	word = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(word)), "step")
	for _, unit := range []string{"ms", "x", "×"} {
		word = strings.TrimSuffix(word, unit)
	}
	return strings.TrimSpace(word)
}

// whole reads an answer that is a whole number.
func whole(word string) (int, error) {
	n, err := strconv.Atoi(bare(word))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %q is no whole number; want one such as 12", ErrAnswer, word)
	}
	return n, nil
}

// decimal reads an answer that is a number.
func decimal(word string) (float64, error) {
	x, err := strconv.ParseFloat(bare(word), 64)
	if err != nil || x < 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%w: %q is no number; want one such as 12 or 0.5", ErrAnswer, word)
	}
	return x, nil
}

// oneOf reads an answer that is a word.
func oneOf(word string, words ...string) (string, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	if !slices.Contains(words, word) {
		return "", fmt.Errorf("%w: %q; want one of %s", ErrAnswer, word, strings.Join(words, ", "))
	}
	return word, nil
}

// yesOrNo reads yes or no, in any of the languages.
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

// missing says that the run has not measured what the question is judged by.
func missing(fact string) (Mark, error) {
	return Mark{}, fmt.Errorf("%w: %s", errMeasure, fact)
}

// known is a figure of the facts that a belief leads to.
type known struct {
	figure float64
	belief string
}

// judgeFigure compares a figure with the measured one, and where it is wrong with those
// that beliefs lead to.
func judgeFigure(points int, answer float64, fact string, f Facts, beliefs ...known) (Mark, error) {
	want, ok := f.number(fact)
	if !ok {
		return missing(fact)
	}
	if answer == want {
		return rightFor(points)
	}
	for _, k := range beliefs {
		if answer == k.figure {
			return wrongBy(k.belief)
		}
	}
	return wrongBy(other)
}

// Exercise 1: grabs too many.
func doubles(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	drivers, _ := f.number("drivers")
	return judgeFigure(2, float64(n), "check.double", f, known{drivers, "winners"}, known{0, "checked"}, known{1, "pair"})
}

// Exercise 2: winners, and what the first run shows.
func winners(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	return judgeFigure(1, float64(n), "check.grabs", f, known{1, "lock"}, known{2, "pair"}, known{20, "useless"})
}

func provesNothing(words []string, f Facts) (Mark, error) {
	word, err := yesOrNo(words[0])
	switch {
	case err != nil:
		return Mark{}, err
	case f["one.verdict"] == "":
		return missing("one.verdict")
	case (word == "yes") == (f["one.verdict"] == string(catalog.Safe)):
		return rightFor(1)
	}
	return wrongBy("passed")
}

// Exercise 3: the longest wait.
func longestWait(words []string, f Facts) (Mark, error) {
	ms, err := decimal(words[0])
	if err != nil {
		return Mark{}, err
	}
	want, ok := f.number("check.waited")
	if !ok {
		return missing("check.waited")
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

// Exercise 4: a schedule with one line more.
func oneLineMore(_ []string, f Facts) (Mark, error) {
	was, is, err := handedIn(f, "expire.schedule")
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

// Exercise 5: the step after which two hold.
func stepOfTwo(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	del, _ := f.number("three.released")
	return judgeFigure(2, float64(n), "three.steps", f, known{del, "deleted"}, known{5, "second"})
}

// Exercise 6: the step after which A is paused, and what another's token releases.
func pausedAfter(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	paused, ok := f.number("getdel.paused")
	if !ok {
		return missing("getdel.paused")
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

func releasedOther(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	return judgeFigure(1, float64(n), "check.released", f, known{1, "anyone"})
}

// Exercise 7: the smallest offset that breaks, in ms. It lies between two runs, one of
// which is safe and the other not.
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
	return missing("below.verdict " + below + ", above.verdict " + above)
}

func offset(words []string) (int, error) {
	n, err := whole(words[0])
	if err == nil && n > 10000 {
		err = fmt.Errorf("%w: %d ms; want at most 10000", ErrAnswer, n)
	}
	return n, err
}

// around sets the offsets between which an answer must lie.
func around(words []string, f Facts) error {
	n, err := offset(words)
	f["below"], f["above"] = strconv.Itoa(max(0, n-offsetTolerance)), strconv.Itoa(n+offsetTolerance)
	return err
}

// pointsOfGrab are the points at which the holder is stopped in exercise 8.
var pointsOfGrab = []string{"before read 1", "after read 1", "before renew 1", "before claim 1", "after claim 1"}

// Exercise 8: where the holder was stopped, and rows of a fenced order.
func whereStopped(words []string, f Facts) (Mark, error) {
	point := strings.ToLower(strings.Join(strings.Fields(words[0]), " "))
	unsafe, ok := f["paused.unsafe"]
	if !ok { // the system has no signals: it is known from the search
		unsafe = "before claim 1"
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
	return Mark{}, fmt.Errorf("%w: %q is no point of a grab; such as %q is", ErrAnswer, words[0], "after read 1")
}

func rowsFenced(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	return judgeFigure(1, float64(n), "check.rows", f, known{2, "same"}, known{0, "nobody"})
}

// The six cells of exercise 9, and what each may be.
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

// Exercise 9: six cells, redis-restart first.
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
			return missing(fault)
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

// Exercise 10: a schedule with lines moved, and what a fence does not do.
func linesMoved(_ []string, f Facts) (Mark, error) {
	was, is, err := handedIn(f, "half.schedule")
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

func overlapsRemain(words []string, f Facts) (Mark, error) {
	word, err := yesOrNo(words[0])
	if err != nil {
		return Mark{}, err
	}
	overlaps, ok := f.number("fenced.overlaps")
	if !ok {
		return missing("fenced.overlaps")
	}
	if (word == "no") == (overlaps > 0) {
		return rightFor(1)
	}
	return wrongBy("outside")
}

// Exercise 11: redlock's commands over setnx's, and what a lock has prevented.
func commandsOver(words []string, f Facts) (Mark, error) {
	x, err := decimal(words[0])
	if err != nil {
		return Mark{}, err
	}
	setnx, ok := f.number("setnx.commands")
	redlock, and := f.number("redlock.commands")
	if !ok || !and || setnx == 0 {
		return missing("commands")
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

func prevented(words []string, f Facts) (Mark, error) {
	n, err := whole(words[0])
	if err != nil {
		return Mark{}, err
	}
	near, _ := f.number("cas.near_misses")
	double, _ := f.number("none.double")
	return judgeFigure(1, float64(n), "cas.double", f, known{near, "work"}, known{double, "guard"})
}

// ownScored are the properties that a lock of one's own is scored by under faults,
// besides the one that the ledger decides.
var ownScored = []string{catalog.LeaseExclusive, catalog.StuckOrder, catalog.ReleaseEffective}

// notRefused forgets why an earlier lock was refused.
func notRefused(_ []string, f Facts) error {
	f["own.refused"] = ""
	return nil
}

// Exercise 12: a point for what holds without a fault, one for the lock, and one for the
// order.
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

// handed is a schedule as its lines.
type handed struct {
	schedule.Schedule
	lines []string
}

// Header is what stands above the steps.
func (h handed) Header() string {
	h.Steps, h.Mode = nil, ""
	return h.Schedule.String()
}

// handedIn is the schedule that was found, and the one that was handed in.
func handedIn(f Facts, fact string) (was, is handed, err error) {
	if f[fact] == "" {
		return was, is, fmt.Errorf("%w: %s", errMeasure, fact)
	}
	if was, err = readHanded(f[fact]); err == nil {
		is, err = readHanded(f["handed"])
	}
	return was, is, err
}

func readHanded(text string) (h handed, err error) {
	if h.Schedule, err = schedule.Parse(text); err != nil {
		return h, fmt.Errorf("%w: %s", ErrAnswer, strings.TrimPrefix(err.Error(), schedule.ErrSyntax.Error()+": "))
	}
	for _, s := range h.Steps {
		h.lines = append(h.lines, s.String())
	}
	return h, nil
}

// isSubsequence says whether all of short stands in long, in its order.
func isSubsequence(short, long []string) bool {
	i := 0
	for _, s := range long {
		if i < len(short) && s == short[i] {
			i++
		}
	}
	return i == len(short)
}
