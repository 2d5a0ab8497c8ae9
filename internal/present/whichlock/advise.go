package whichlock

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/order"
	"grablab/internal/present/report"
)

// Facts are what the reference runs say of the choices, in short: they go with the program,
// which may run where no results are.
type Facts struct {
	Run         string   `json:"run"` // under all faults
	RunCommit   string   `json:"run_commit"`
	Bench       string   `json:"bench"` // each lock by itself
	BenchCommit string   `json:"bench_commit"`
	RoundTrip   string   `json:"round_trip"` // to Redis, there
	Options     []Option `json:"options"`
}

// Option is a lock with the guard that goes with it.
type Option struct {
	Strategy string      `json:"strategy"`
	Title    string      `json:"title"`
	Guard    order.Guard `json:"guard"`

	Twice  []catalog.Fault `json:"twice"`  // under which an order was grabbed twice
	Inside []catalog.Fault `json:"inside"` // under which two holders were inside, and no more
	Stuck  []catalog.Fault `json:"stuck"`  // under which an order was left that nobody can grab
	Modes  []string        `json:"modes"`  // that were seen

	Commands   *float64 `json:"commands"`   // of Redis, a request under plain load
	Statements *float64 `json:"statements"` // of the database, likewise
	Trips      *float64 `json:"trips"`      // acquire and release by one alone, in round trips; nil: not measured, or no lock
	Interval   string   `json:"interval"`   // Trips in words, with the interval
}

//go:embed facts.json
var factsText []byte

// KnownFacts are those that the program was built with.
func KnownFacts() (f Facts, err error) {
	err = json.Unmarshal(factsText, &f)
	return f, err
}

// FactsOf are those of the sources, as they are written down.
func FactsOf(s Sources) ([]byte, error) {
	p := &page{Sources: s}
	f := Facts{
		Run: "results/" + matrixFolder, RunCommit: s.Matrix.Environment.Commit,
		Bench: "results/" + benchFolder, BenchCommit: s.Bench.Environment.Commit, RoundTrip: p.roundTrip(), Options: []Option{},
	}
	for _, name := range Choices {
		st, cells, calm := p.strategy(name), p.cells(name), p.calm(name)
		o := Option{
			Strategy: name, Title: st.Title, Guard: st.GuardedBy(""),
			Twice: faultsOf(under(cells, grabbedTwice)), Stuck: faultsOf(under(cells, stuck)),
			Inside:   faultsOf(under(cells, func(c experiment.Cell) bool { return letIn(c) && !grabbedTwice(c) })),
			Modes:    append([]string{}, report.ModesSeen(s.Matrix, name)...),
			Commands: calm.RedisCommandsPerRequest, Statements: calm.DBStatementsPerRequest, Interval: p.trips(name, "uncontended"),
		}
		if row := p.row(name, "uncontended"); row != nil && row.Ratio != nil {
			trips := 2 * *row.Ratio // the floor is two
			o.Trips = &trips
		}
		f.Options = append(f.Options, o)
	}
	if err := errors.Join(p.wrong...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	err := e.Encode(f)
	return b.Bytes(), err
}

func faultsOf(cells []experiment.Cell) []catalog.Fault {
	all := []catalog.Fault{}
	for _, c := range cells {
		all = append(all, c.Fault)
	}
	return all
}

// Question is one of those that lead to a lock, and what may be answered.
type Question struct {
	Name    string   `json:"name"`
	Asks    string   `json:"asks"`
	Answers []Answer `json:"answers"`
}

// Answer is one of a question's.
type Answer struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Questions are those that Advise wants answered, in their order.
var Questions = []Question{
	{"rows", "May an order have two rows?", []Answer{
		{"update", "never, and one conditional UPDATE can write the winner"},
		{"never", "never, and the write is more than that"},
		{"may", "it may: the lock is there to save work"},
	}},
	{"runs", "What runs already, beside the database?", []Answer{
		{"database", "nothing"}, {"redis", "a Redis"}, {"redlock", "five Redis"}, {"zookeeper", "ZooKeeper"}, {"etcd", "etcd"},
	}},
	{"work", "How long is the work against the lease?", []Answer{
		{"shorter", "always shorter"}, {"longer", "now and then longer"}, {"endless", "it may never return"},
	}},
}

// runs says which servers are there by an answer to the second question.
var runs = map[string]lock.Backend{
	"database": lock.SQL | lock.SQLLocks, "redis": lock.SQL | lock.SQLLocks | lock.Redis, "redlock": lock.SQL | lock.SQLLocks | lock.Redis | lock.RedisQuorum,
	"zookeeper": lock.SQL | lock.SQLLocks | lock.ZooKeeper, "etcd": lock.SQL | lock.SQLLocks | lock.Etcd,
}

// mostAdvised is how many locks are advised at the most.
const mostAdvised = 3

// ErrAnswer says that a question has no such answer.
var ErrAnswer = errors.New("whichlock: no such answer")

// Advise is what fits the answers to Questions, the first the best: what keeps what was
// asked for, then what does so in the case of such work, then what costs least.
func (f Facts) Advise(answers []string) (fit []Option, err error) {
	if len(answers) != len(Questions) {
		return nil, fmt.Errorf("%w: %q for %d questions", ErrAnswer, answers, len(Questions))
	}
	for i, q := range Questions {
		if !slices.ContainsFunc(q.Answers, func(a Answer) bool { return a.Name == answers[i] }) {
			return nil, fmt.Errorf("%w: %.20q to %q", ErrAnswer, answers[i], q.Asks)
		}
	}
	rows, there, work := answers[0], runs[answers[1]], answers[2]
	for _, o := range f.Options {
		s, err := lock.Find(o.Strategy)
		if err != nil {
			return nil, err
		}
		lockless := s.Excludes == catalog.NoExclusion
		switch {
		case s.Needs&^there != 0, lockless && rows != "update", rows != "may" && len(o.Twice) > 0:
		default:
			fit = append(fit, o)
		}
	}
	slices.SortStableFunc(fit, func(a, b Option) int {
		return cmp.Or(cmp.Compare(a.fails(work), b.fails(work)), cmp.Compare(a.trips(), b.trips()))
	})
	return fit[:min(len(fit), mostAdvised)], nil
}

// fails is 1 where the lock does not do what it is for with such work, else 0.
func (o Option) fails(work string) int {
	switch {
	case work == "longer" && (slices.Contains(o.Inside, catalog.Slow) || slices.Contains(o.Twice, catalog.Slow)),
		work == "endless" && slices.Contains(o.Stuck, catalog.Hang):
		return 1
	}
	return 0
}

// But says what the lock does not do of what was asked for; "": it does.
func (o Option) But(answers []string) string {
	work := answers[len(answers)-1]
	switch {
	case o.fails(work) == 0:
		return ""
	case work == "longer" && len(o.Twice) == 0:
		return "When the work outlasts the lease, the next one is let in beside it; the late write is refused."
	case work == "longer":
		return "When the work outlasts the lease, the next one is let in beside it, and both may write."
	default:
		return "Work that never returns keeps the lock for ever: bound the work."
	}
}

// trips are 0 of what has no lock.
func (o Option) trips() float64 {
	if o.Trips == nil {
		return 0
	}
	return *o.Trips
}
