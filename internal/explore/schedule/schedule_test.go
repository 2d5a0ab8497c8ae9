package schedule_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"grablab/internal/explore/schedule"
)

const everything = `strategy redlock
guard naive
on-lost ignore
actors A@1 B@2/A C@1
nodes redlock-1 redlock-2 redlock-3
ttl 3s
work 1s
wait 10s
stock 2
property live-overlap
mode F18

A begins
A acquire 1 redlock-1
A acquire 1 redlock-2 reply lost
A acquire 1 redlock-3 request lost
A acquire 1 redlock-3 reply late
A acquire 2 redlock-3 sent twice
A hears acquire 1 redlock-3
A acquire 2 redlock-2 given up
A acquire 2 redlock-2 arrives late
A paused
A resumes
A claim 1 db message lost
A claim 2 db message twice
A claim 3 db message late
A hangs
A dies
B cancelled
instance 1 dies
instance 1 cut off from locks
instance 1 reaches locks
instance 2 clock -1.5s
time passes 10s
time to next timer
time to lease end
redlock-3 restarts
redlock-3 fails over
redlock-3 evicts
redlock-3 down
redlock-3 up
redlock-3 messages arrive
redlock-3 clock +10s
C claim 12 db
`

func TestRoundTrip(t *testing.T) {
	s, err := schedule.Parse(everything)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.String(); got != everything {
		t.Errorf("printed as\n%s", got)
	}
	kinds := map[schedule.Kind]bool{}
	for _, step := range s.Steps {
		kinds[step.Kind] = true
		if names := step.Phase != ""; step.Kind.IsCall() != names {
			t.Errorf("IsCall of %+v is %v, want %v, because the step has a phase only if it is a call", step, !names, names)
		}
	}
	if len(kinds) != int(schedule.NodeClock) {
		t.Errorf("%d kinds of steps, want all %d", len(kinds), schedule.NodeClock)
	}
}

func TestParse(t *testing.T) {
	got, err := schedule.Parse(`
# The lease of A runs out while A works.
strategy setnx
actors   A@1 B@2
nodes redis   # one
ttl 3s

A acquire 1 redis	# granted
time to lease end
`)
	want := schedule.Schedule{
		Strategy: "setnx", Nodes: []string{"redis"}, TTL: 3 * time.Second,
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
		Steps: []schedule.Step{
			{Kind: schedule.Call, Actor: "A", Phase: "acquire", N: 1, Target: "redis"},
			{Kind: schedule.LeaseEnd},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse: got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestErrors(t *testing.T) {
	const top = "strategy setnx\nactors A@1\nnodes redis\nttl 3s\n"
	for text, want := range map[string]string{
		"":                                     `the line "strategy" is missing`,
		"strategy setnx\nttl 3s":               `the line "actors" is missing at the top of the file: add a line such as "actors A@1 B@2"`,
		top + "A acquires":                     `line 5: "A acquires": there is no such step: use one of "A begins"`,
		top + "redis restart":                  `line 5: "redis restart": there is no such step: use one of "redis messages arrive", "redis restarts"`,
		top + "A acquire redis":                `there is no such step`,
		top + strings.Repeat("x", 999):         `line 5: "` + strings.Repeat("x", 80) + `…": there is no such step: begin it with an actor`,
		top + strings.Repeat("x", 80):          `line 5: "` + strings.Repeat("x", 80) + `": there is no such step`,
		top + "time":                           `"time passes 10s"`,
		top + "A aquire 1 redis":               `"aquire": the phase of a grab must be one of acquire, read`,
		top + "A acquire 0 redis":              `"0": this must be a whole number of 1 or more`,
		top + "A read 99999999999999999999 db": `this must be a whole number of 1 or more`,
		top + "B acquire 1 redis":              `there is no actor B: the line that begins with "actors" names A@1`,
		top + "A acquire 1 redlock-1":          `there is no server redlock-1: use one of redis, db`,
		top + "instance 2 dies":                `no actor is on instance 2`,
		top + "time passes 10":                 `"10": this must be a duration such as "10s"`,
		top + "time passes 0s":                 `this must be a duration`,
		top + "time passes -10s":               `this must be a duration`,
		top + "redis clock 10s":                `with a sign`,
		top + "redis clock +0s":                `with a sign`,
		top + "redis clock +10":                `with a sign`,
		top + "A acquire 1 locks":              `there is no server locks: use one of redis, db`,
		top + "A begins\nguard naive":          `line 6: "guard naive": this line must come before the first step`,
		top + "ttl 4s":                         `the line "ttl" occurs twice`,
		"strategy a b":                         `line 1: "strategy a b": the line must have exactly one value: write a line such as "strategy setnx"`,
		"actors A":                             `"A" must be an actor and its instance, such as A@1: write a line such as "actors A@1 B@2"`,
		"actors":                               `the line must name at least one actor, such as A@1`,
		"nodes":                                `the line must name at least one server, such as redis`,
		top + "A acquire 1 Redis":              `"Redis": this must be the name of a server`,
		top + "A acquire 1 time":               `"time": this must be the name of a server`,
		"actors a@1":                           `"a@1" must be an actor and its instance`,
		"actors [@1":                           `"[@1" must be an actor and its instance`,
		"actors 1@1":                           `"1@1" must be an actor and its instance`,
		"actors AB@1":                          `"AB@1" must be an actor and its instance`,
		"nodes time":                           `"time" must be the name of a lock server`,
		"nodes instance":                       `"instance" must be the name of a lock server`,
		"nodes Redis":                          `"Redis" must be the name of a lock server`,
		"nodes 1redis":                         `"1redis" must be the name of a lock server`,
		"nodes {":                              `"{" must be the name of a lock server`,
		"nodes redis_1":                        `"redis_1" must be the name of a lock server`,
		"actors A@1 A@2":                       `actor A is listed twice`,
		"actors A@1 B@2/C":                     `actor B repeats the driver of actor "C": list that actor first`,
		"nodes redis redis":                    `"redis" must be the name of a lock server, such as redis, and must occur only once`,
		"nodes db":                             `"db" must be the name of a lock server`,
		"ttl 0s":                               `line 1: "ttl 0s": this must be a duration such as "10s": write a line such as "ttl 3s"`,
		top + "alice begins":                   `an actor must be a capital letter`,
		top + "A acquire 1 redis lost":         `there is no such step`,
	} {
		_, err := schedule.Parse(text)
		if !errors.Is(err, schedule.ErrSyntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v\nwant %s", text, err, want)
		}
	}
}

// TestSuggestions misspells the end of each kind of step, for several names of its subject. The error must
// suggest the right spelling, and only steps of the same subject.
func TestSuggestions(t *testing.T) {
	const top = "strategy setnx\nactors A@1 B@2\nnodes redis redis-2\nttl 3s\n"
	for subject, right := range map[string][]string{
		"A": {"A begins", "A paused", "A dies"}, "B": {"A begins", "A resumes"}, "redis": {"redis restarts", "redis down"}, "redis-2": {"redis restarts", "redis up"},
		"instance": {"instance 1 dies"}, "time": {"time passes 10s", "time to next timer"},
	} {
		_, err := schedule.Parse(top + subject + " is misspelt here and there")
		_, list, _ := strings.Cut(fmt.Sprint(err), "use one of ")
		suggested := strings.Split(list, ", ")
		for _, want := range right {
			if !slices.Contains(suggested, strconv.Quote(want)) {
				t.Errorf("%s: %v; want a list with %q", subject, err, want)
			}
		}
		for _, got := range suggested {
			first, _, _ := strings.Cut(right[0], " ")
			if !strings.HasPrefix(got, `"`+first+" ") {
				t.Errorf("%s: suggests %s", subject, got)
			}
		}
	}
}

// TestMissingHeaders leaves out each header line. Only three of them are required.
func TestMissingHeaders(t *testing.T) {
	top, _, _ := strings.Cut(everything, "\n\n")
	lines := strings.Split(top, "\n")
	for i, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		_, err := schedule.Parse(strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "\n"))
		if needed := slices.Contains([]string{"strategy", "actors", "ttl"}, name); errors.Is(err, schedule.ErrSyntax) != needed || !needed && err != nil {
			t.Errorf("without %q: %v", line, err)
		}
	}
}

// TestNames checks that names of actors and servers can use the first and the last letter of the alphabet.
func TestNames(t *testing.T) {
	s, err := schedule.Parse("strategy setnx\nactors A@1 Z@2\nnodes a z\nttl 3s\nZ begins\nz restarts")
	if err != nil || len(s.Actors) != 2 || len(s.Nodes) != 2 || len(s.Steps) != 2 {
		t.Errorf("Parse: got %+v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(everything)
	for line := range strings.Lines(everything) {
		f.Add("strategy s\nactors A@1 B@2 C@1\nnodes redlock-1 redlock-2 redlock-3\nttl 1ns\n" + line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schedule.Parse(text)
		if err != nil {
			return
		}
		again, err := schedule.Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%q is printed as\n%s\nwhich is parsed as %+v, %v", text, s, again, err)
		}
	})
}

func TestStepLines(t *testing.T) {
	text := "strategy setnx\n# A begins\nactors A@1\nttl 3s\n\nA begins # here\n\n  A read 1 db\n"
	if got := schedule.StepLines(text); !slices.Equal(got, []int{6, 8}) {
		t.Errorf("%v, want 6 and 8", got)
	}
	if got := schedule.StepLines(everything); len(got) != strings.Count(everything, "\n")-12 {
		t.Errorf("%d lines with steps, want every line below the headers", len(got))
	}
}
