package workshop

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

const foundExpire = `strategy setnx-expire
guard naive
on-lost abort
actors A@1 B@2
nodes redis
ttl 3s
property stuck
mode F4

A begins
A acquire 1 redis
A dies
B begins
B acquire 1 redis
`

const foundHalf = `strategy setnx-fence-write
guard fence-write
on-lost abort
actors A@1 B@2
nodes redis
ttl 3s
property one-winner

A begins
A acquire 1 redis
B begins
A claim 1 db
B claim 1 db
`

// measured holds facts like those that the exercises measure.
var measured = Facts{
	"drivers": "14", "check.double": "13",
	"instances": "4", "check.grabs": "4", "one.verdict": "unknown",
	"ttl": "3", "check.waited": "2996",
	"expire.schedule": foundExpire, "half.schedule": foundHalf,
	"three.steps": "10", "three.released": "8",
	"getdel.asked": "4", "getdel.before": "5", "getdel.paused": "6", "getdel.released": "11",
	"paused.unsafe": "before claim 1; waiting: before claim 1", "check.rows": "1",
	"redis-restart.watchdog.verdict": "unsafe", "redis-restart.redlock.verdict": "safe", "redis-restart.redlock-miswired.verdict": "unsafe",
	"amnesia.watchdog.verdict": "n/a", "amnesia.redlock.verdict": "unsafe", "amnesia.redlock-miswired.verdict": "n/a",
	"fenced.overlaps": "24",
	"setnx.commands":  "3.63", "redlock.commands": "16.83", "cas.double": "0", "cas.near_misses": "53", "none.double": "83",
}

// judgements lists the right answer to every question, and wrong answers with the mistaken belief behind
// each. The field more holds the facts that result from an answer.
var judgements = []struct {
	exercise, question int
	answer             string
	more               Facts
	why                string
	points             int
}{
	{1, 1, "13", nil, right, 2},
	{1, 1, "14", nil, "winners", 0},
	{1, 1, "0", nil, "checked", 0},
	{1, 1, "1", nil, "pair", 0},
	{1, 1, "12", nil, other, 0},

	{2, 1, "4", nil, right, 1},
	{2, 1, "1", nil, "lock", 0},
	{2, 1, "2", nil, "pair", 0},
	{2, 1, "20", nil, "useless", 0},
	{2, 1, "3", nil, other, 0},
	{2, 2, "no", nil, right, 1},
	{2, 2, "N", nil, right, 1},
	{2, 2, "いいえ", nil, right, 1},
	{2, 2, "是", nil, "passed", 0},
	{2, 2, "yes", nil, "passed", 0},

	{3, 1, "3000", nil, right, 2},
	{3, 1, "3000 ms", nil, right, 2},
	{3, 1, "2600", nil, right, 2},
	{3, 1, "2500", nil, other, 0},
	{3, 1, "0", nil, "freed", 0},
	{3, 1, "1500", nil, "half", 0},
	{3, 1, "1000", nil, "before", 0},
	{3, 1, "10000", nil, "patience", 0},

	{4, 1, "my.txt", Facts{"handed": strings.Replace(foundExpire, "A dies", "A acquire 2 redis\nA dies", 1), "handed.key": "true"}, right, 2},
	{4, 1, "my.txt", Facts{"handed": foundExpire, "handed.key": "true"}, "lines", 0},
	{4, 1, "my.txt", Facts{"handed": strings.Replace(foundExpire, "A dies\n", "", 1)}, "alive", 0},
	{4, 1, "my.txt", Facts{"handed": strings.Replace(foundExpire, "B begins", "A acquire 2 redis\nB begins", 1), "handed.key": "true", "handed.skipped": "A acquire 2 redis"}, "skipped", 0},
	{4, 1, "my.txt", Facts{"handed": strings.Replace(foundExpire, "A dies", "B begins\nA dies", 1), "handed.key": "true", "handed.breaks": "stuck"}, "breaks", 0},
	{4, 1, "my.txt", Facts{"handed": strings.Replace(foundExpire, "A acquire 1 redis", "A dies\nA acquire 1 redis", 1), "handed.key": "false"}, "key", 0},
	{4, 1, "my.txt", Facts{"handed": strings.Replace(foundExpire, "ttl 3s", "ttl 9s", 1)}, "header", 0},

	{5, 1, "10", nil, right, 2},
	{5, 1, "step 10", nil, right, 2},
	{5, 1, "8", nil, "deleted", 0},
	{5, 1, "5", nil, "second", 0},
	{5, 1, "9", nil, other, 0},

	{6, 1, "5", nil, right, 2},
	{6, 1, "6", nil, "itself", 0},
	{6, 1, "4", nil, "asked", 0},
	{6, 1, "11", nil, "deleted", 0},
	{6, 1, "2", nil, other, 0},

	{7, 1, "475", Facts{"below.verdict": "safe", "above.verdict": "unsafe"}, right, 2},
	{7, 1, "200", Facts{"below.verdict": "safe", "above.verdict": "safe"}, "small", 0},
	{7, 1, "1000ms", Facts{"below.verdict": "unsafe", "above.verdict": "unsafe"}, "large", 0},

	{8, 1, "before claim 1", nil, right, 1},
	{8, 1, "Waiting:  before claim 1", nil, right, 1},
	{8, 1, "after read 1", nil, "looks", 0},
	{8, 1, "before renew 1", nil, "renewal", 0},
	{8, 1, "after claim 1", nil, "written", 0},
	{8, 2, "1", nil, right, 1},
	{8, 2, "2", nil, "same", 0},
	{8, 2, "0", nil, "nobody", 0},

	{9, 1, "unsafe,safe,unsafe,n/a,unsafe,n/a", nil, right, 2},
	{9, 1, "unsafe,safe,safe,n/a,unsafe,n/a", nil, "listed", 0},
	{9, 1, "unsafe,unsafe,unsafe,n/a,unsafe,n/a", nil, "votes", 0},
	{9, 1, "unsafe,safe,unsafe,n/a,safe,n/a", nil, "memory", 0},
	{9, 1, "unsafe,safe,unsafe,unsafe,unsafe,n/a", nil, "touches", 0},
	{9, 1, "unsafe,safe,unsafe,n/a,unsafe,unsafe", nil, "touches", 0},
	{9, 1, "safe,safe,unsafe,n/a,unsafe,n/a", nil, other, 0},

	{10, 1, "my.txt", Facts{"handed": strings.Replace(foundHalf, "A claim 1 db\nB claim 1 db", "B claim 1 db\nA claim 1 db", 1), "handed.refused": "A"}, right, 1},
	{10, 1, "my.txt", Facts{"handed": foundHalf, "handed.breaks": "one-winner"}, "same", 0},
	{10, 1, "my.txt", Facts{"handed": foundHalf + "B release 1 redis\n"}, "lines", 0},
	{10, 1, "my.txt", Facts{"handed": strings.Replace(foundHalf, "A begins\nA acquire 1 redis\nB begins", "B begins\nA begins\nA acquire 1 redis", 1), "handed.breaks": "one-winner"}, "breaks", 0},
	{10, 1, "my.txt", Facts{"handed": strings.Replace(foundHalf, "B begins\nA claim 1 db\nB claim 1 db", "A claim 1 db\nB begins\nB claim 1 db", 1)}, "apart", 0},
	{10, 1, "my.txt", Facts{"handed": strings.Replace(foundHalf, "guard fence-write", "guard fenced", 1)}, "header", 0},
	{10, 2, "no", nil, right, 1},
	{10, 2, "yes", nil, "outside", 0},

	{11, 1, "4.6", nil, right, 1},
	{11, 1, "5.5", nil, right, 1},
	{11, 1, "6", nil, other, 0},
	{11, 1, "16.8", nil, "absolute", 0},
	{11, 1, "0.22", nil, "inverse", 0},
	{11, 1, "1", nil, "equal", 0},
	{11, 2, "0", nil, right, 1},
	{11, 2, "53", nil, "work", 0},
	{11, 2, "83", nil, "guard", 0},

	{12, 1, "my.go", owned("", ""), right, 3},
	{12, 1, "my.go", owned("", "write-after-expiry"), right, 3},
	{12, 1, "my.go", owned("", "one-winner"), "order", 2},
	{12, 1, "my.go", owned("", "one-winner lease-exclusive"), "order", 1},
	{12, 1, "my.go", owned("", "lease-exclusive"), "lock", 2},
	{12, 1, "my.go", owned("lease-exclusive", ""), "faultless", 1},
	{12, 1, "my.go", owned("one-winner lease-exclusive", "one-winner"), "faultless", 0},
	{12, 1, "my.go", Facts{"own.refused": "mine does not get its lock, although the lock is free"}, "refused", 0},
	{12, 1, "my.go", Facts{"own.excludes": "none", "own.complete": "true"}, "excludes", 0},
	{12, 1, "my.go", Facts{"own.excludes": "global", "own.complete": "false"}, "incomplete", 0},
}

func owned(faultless, faulted string) Facts {
	return Facts{"own.excludes": "global", "own.complete": "true", "own.faultless": faultless, "own.faulted": faulted}
}

// TestJudge checks how each answer in judgements is judged, and that judgements has right and wrong answers to
// every question. Every mistaken belief must have an explanation in every language.
func TestJudge(t *testing.T) {
	rights, wrongs := map[string]int{}, map[string]int{}
	for _, tt := range judgements {
		e, _ := Find(tt.exercise)
		f := maps.Clone(measured)
		maps.Copy(f, tt.more)
		words := []string{tt.answer}
		if e.Questions[tt.question-1].Words() > 1 {
			words = strings.Split(tt.answer, ",")
		}
		got, err := e.Questions[tt.question-1].Judge(words, f)
		if err != nil || got != (Mark{tt.points, tt.why}) {
			t.Errorf("%d.q%d %q %v: mark %v, %v; want %d, %s", tt.exercise, tt.question, tt.answer, tt.more, got, err, tt.points, tt.why)
		}
		name := key(e, question(tt.question-1))
		if tt.why == right {
			rights[name]++
		} else {
			wrongs[name]++
		}
		for _, lang := range Languages {
			if texts := loaded(t, lang); tt.why != other && !texts.Has(name+"."+tt.why) {
				t.Errorf("%s: no sentence %s.%s", lang, name, tt.why)
			}
		}
	}
	for _, e := range Exercises {
		for i := range e.Questions {
			if name := key(e, question(i)); rights[name] == 0 || wrongs[name] == 0 {
				t.Errorf("%s: judgements has %d right and %d wrong answers, want at least one of each", name, rights[name], wrongs[name])
			}
		}
	}
}

// TestJudgeRefuses checks that Judge returns ErrAnswer for an invalid answer instead of judging it as wrong,
// and errMeasure if a measurement is missing.
func TestJudgeRefuses(t *testing.T) {
	for _, tt := range []struct {
		exercise, question int
		answer             string
		facts              Facts
		want               error
	}{
		{1, 1, "many", measured, ErrAnswer},
		{1, 1, "-1", measured, ErrAnswer},
		{1, 1, "13", Facts{}, errMeasure},
		{2, 2, "perhaps", measured, ErrAnswer},
		{2, 2, "no", Facts{}, errMeasure},
		{3, 1, "NaN", measured, ErrAnswer},
		{3, 1, "3000", Facts{}, errMeasure},
		{4, 1, "my.txt", Facts{"expire.schedule": foundExpire, "file": "my.txt", "handed": "no schedule"}, ErrAnswer},
		{4, 1, "my.txt", Facts{}, errMeasure},
		{7, 1, "475", Facts{"below.verdict": "unknown", "above.verdict": "unsafe"}, errMeasure},
		{7, 1, "99999", measured, ErrAnswer},
		{8, 1, "somewhere", measured, ErrAnswer},
		{9, 1, "stuck,safe,unsafe,n/a,unsafe,n/a", measured, ErrAnswer},
		{10, 2, "no", Facts{}, errMeasure},
		{11, 1, "5", Facts{}, errMeasure},
	} {
		e, _ := Find(tt.exercise)
		words := []string{tt.answer}
		if e.Questions[tt.question-1].Words() > 1 {
			words = strings.Split(tt.answer, ",")
		}
		if m, err := e.Questions[tt.question-1].Judge(words, tt.facts); !errors.Is(err, tt.want) {
			t.Errorf("%d.q%d %q: mark %v, error %v; want %v", tt.exercise, tt.question, tt.answer, m, err, tt.want)
		}
	}
}

// TestRefusalsAreClear checks the errors for wrong answers. The error for an invalid file must name the
// file, and the error for a wrong number of values must state the right number.
func TestRefusalsAreClear(t *testing.T) {
	e, _ := Find(10)
	_, err := e.Questions[0].Judge([]string{"my.txt"}, Facts{"half.schedule": foundHalf, "file": "my.txt", "handed": "no schedule"})
	if err == nil || !strings.Contains(err.Error(), `my.txt: line 1: "no schedule"`) || len(err.Error()) > 200 {
		t.Errorf("a wrong file: %v", err)
	}
	e, _ = Find(9)
	s := &Session{Progress: &Progress{Exercises: map[int]*State{}}}
	state := s.Progress.stateOf(e)
	state.Predicted, state.Ran = e.Right, true
	err = s.Answer(t.Context(), e, [][]string{{"safe"}})
	if want := `"safe": must have 6 values, separated by commas`; !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestPoints(t *testing.T) {
	p := &Progress{Exercises: map[int]*State{}}
	if points, of := p.Points(); points != 0 || of != 37 || p.Next() != 1 {
		t.Errorf("%d of %d points, next %d", points, of, p.Next())
	}
	one, _ := Find(1)
	two, _ := Find(2)
	own, _ := Find(12)
	for _, tt := range []struct {
		e     Exercise
		state State
		want  int
	}{
		{one, State{Predicted: "d", Ran: true, Answers: []Answer{{Right: true, Best: 2, Wrong: 0}}}, 3},
		{one, State{Predicted: "a", Ran: true, Answers: []Answer{{Right: true, Best: 2, Wrong: 0}}}, 2},
		{one, State{Predicted: "d", Ran: true, Answers: []Answer{{Right: true, Best: 2, Wrong: 1}}}, 2},
		{one, State{Predicted: "d", Ran: true, Answers: []Answer{{Right: true, Best: 2, Wrong: 5}}}, 1},
		{one, State{Predicted: "d", Ran: true, Answers: []Answer{{Right: true, Best: 2, Wrong: 0}}, Hints: 1}, 2},
		{two, State{Predicted: "b", Ran: true, Answers: []Answer{{Right: true, Best: 1, Wrong: 1}, {Right: true, Best: 1, Wrong: 0}}}, 2},
		{own, State{Predicted: "b", Ran: true, Answers: []Answer{{Right: true, Best: 3, Wrong: 0}}, Hints: 3}, 1},
		{one, State{Predicted: "d", Answers: []Answer{{}}}, 0},
		{own, State{Predicted: "b", Ran: true, Answers: []Answer{{Right: false, Best: 2, Wrong: 0}}}, 3},
	} {
		if got := tt.state.points(tt.e); got != tt.want {
			t.Errorf("%d %+v: %d points, want %d", tt.e.Number, tt.state, got, tt.want)
		}
	}
}

// TestDrawn checks that the seed determines the order of the options and the random facts, and that different
// seeds give different ones.
func TestDrawn(t *testing.T) {
	orders, drivers := map[string]bool{}, map[string]bool{}
	for seed := range uint64(40) {
		one, f := Exercises[0].randomParts(seed)
		again, g := Exercises[0].randomParts(seed)
		if strings.Join(one, "") != strings.Join(again, "") || f["drivers"] != g["drivers"] {
			t.Fatalf("seed %d: %v %v, then %v %v", seed, one, f, again, g)
		}
		if n, err := strconv.Atoi(f["drivers"]); err != nil || n < 8 || n > 18 {
			t.Errorf("seed %d: %s drivers", seed, f["drivers"])
		}
		orders[strings.Join(one, "")], drivers[f["drivers"]] = true, true
	}
	if len(orders) < 10 || len(drivers) < 5 {
		t.Errorf("%d orders of four options and %d numbers of drivers in 40 seeds", len(orders), len(drivers))
	}
}

func loaded(t *testing.T, lang string) *Texts {
	t.Helper()
	texts, err := Load(lang)
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestOwnLockFacts records failures of a user's lock, with and without faults, in various orders. Each
// property must be listed once, and on the side of the faults only if a fault has caused it.
func TestOwnLockFacts(t *testing.T) {
	one := explore.Failure{Property: "one-winner"}
	exclusive := explore.Failure{Property: "lease-exclusive"}
	paused := func(f explore.Failure) explore.Failure { f.Kind = string(catalog.Pause); return f }
	for _, tt := range []struct {
		failures           []explore.Failure
		faultless, faulted string
	}{
		{nil, "", ""},
		{[]explore.Failure{one}, "one-winner", ""},
		{[]explore.Failure{paused(one)}, "", "one-winner"},
		{[]explore.Failure{paused(one), exclusive}, "lease-exclusive", "one-winner"},
		{[]explore.Failure{one, paused(one), exclusive, one}, "one-winner lease-exclusive", "one-winner"},
	} {
		f := Facts{}
		if err := judgeOwnLock(Outcome{Explored: []explore.Result{{Failures: tt.failures}}}, f); err != nil {
			t.Fatal(err)
		}
		if f["own.faultless"] != tt.faultless || f["own.faulted"] != tt.faulted {
			t.Errorf("%+v: %q without a fault and %q with one, want %q and %q", tt.failures, f["own.faultless"], f["own.faulted"], tt.faultless, tt.faulted)
		}
	}
}
