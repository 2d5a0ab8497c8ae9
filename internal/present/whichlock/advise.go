package whichlock

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Facts summarises the test results of the recommended locks. It is compiled into the program, so
// the program needs no result files.
type Facts struct {
	Run         string   `json:"run"` // the run under all faults
	RunCommit   string   `json:"run_commit"`
	Bench       string   `json:"bench"` // the benchmark that measured each lock by itself
	BenchCommit string   `json:"bench_commit"`
	RoundTrip   string   `json:"round_trip"` // duration of a round trip to Redis in the benchmark
	Options     []Option `json:"options"`
}

// Option is a lock that the program can recommend, with its test results.
type Option struct {
	Strategy string      `json:"strategy"`
	Title    string      `json:"title"`
	Guard    order.Guard `json:"guard"`

	Twice  []string `json:"twice"`  // faults under which an order was grabbed twice
	Inside []string `json:"inside"` // faults under which two drivers held the lock at once, but no order got a second row
	Stuck  []string `json:"stuck"`  // faults under which no driver can grab an order any more

	Commands   *float64 `json:"commands"`   // Redis commands for each request under plain load
	Statements *float64 `json:"statements"` // database statements for each request under plain load
	Trips      *float64 `json:"trips"`      // round trips of acquire and release by one worker; nil if not measured
	Interval   string   `json:"interval"`   // Trips as text, with its confidence interval
}

//go:embed facts.json
var factsText string

// KnownFacts returns the facts that are compiled into the program.
func KnownFacts() Facts { return catalog.Parse[Facts](factsText) }

// FactsOf computes the facts from the test results and encodes them for facts.json.
func FactsOf(s Sources) (string, error) {
	p := &page{Sources: s}
	f := Facts{
		Run: "results/" + matrixFolder + " and results/" + uniqueFolder, RunCommit: s.Matrix.Environment.Commit + " and " + s.Unique.Environment.Commit,
		Bench: "results/" + benchFolder, BenchCommit: s.Bench.Environment.Commit, RoundTrip: p.RoundTrip(), Options: []Option{},
	}
	for _, name := range Choices {
		st, plain := p.strategy(name), p.PlainLoad(name)
		o := Option{
			Strategy: name, Title: st.Title, Guard: st.GuardedBy(""),
			Twice: list(p.Twice(name)), Stuck: list(p.Stuck(name)), Inside: list(p.TwoInside(name)),
			Commands: plain.RedisCommandsPerRequest, Statements: plain.DBStatementsPerRequest, Interval: p.Trips(name, "uncontended"),
		}
		if ratio := p.Row(name, "uncontended").Ratio; ratio != nil {
			o.Trips = new(2 * *ratio) // the floor, two PINGs, makes two round trips
		}
		f.Options = append(f.Options, o)
	}
	text, err := json.MarshalIndent(f, "", " ")
	return string(text) + "\n", errors.Join(append(p.problems, err)...)
}

// Option returns the facts about a strategy's lock, or an empty Option if the guide never
// recommends it.
func (f Facts) Option(strategy string) Option {
	return catalog.First(f.Options, func(o Option) bool { return o.Strategy == strategy })
}

// list returns a copy of names that is never nil, because nil would become null in the JSON.
func list(names []string) []string { return append([]string{}, names...) }

// Question is a question that helps users choose a lock, with its possible answers.
type Question struct {
	Name    string   `json:"name"`
	Asks    string   `json:"asks"`
	Answers []Answer `json:"answers"`
}

// Answer is a possible answer to a Question.
type Answer struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Answers contains the user's answer to each of Questions, by its name.
type Answers struct{ Rows, Runs, Work, Stack string }

// ParseAnswers calls answer with the name of each question, and returns the answers. It returns an
// error if one of them is not among the possible answers.
func ParseAnswers(answer func(question string) string) (Answers, error) {
	for _, q := range Questions {
		name := answer(q.Name)
		if !slices.ContainsFunc(q.Answers, func(a Answer) bool { return a.Name == name }) {
			return Answers{}, fmt.Errorf("there is no answer %.20q to %q", name, q.Asks)
		}
	}
	return Answers{answer("rows"), answer("runs"), answer("work"), answer("stack")}, nil
}

// Questions lists the questions that determine which locks fit.
var Questions = append(Guide.Questions, Question{
	"stack", "Which language is the service written in?", catalog.Map(Guide.Stacks, func(s Stack) Answer { return Answer{s.Name, s.Text} }),
})

// Stack says which libraries implement the locks in a programming language. Locks has no entry for
// a strategy without a library.
type Stack struct {
	Name  string            `json:"name"`
	Text  string            `json:"text"`
	Locks map[string]string `json:"locks"`
}

// Duty is something that a lock's users must do to be safe, with a code example.
type Duty struct {
	Do   string   `json:"do"`
	For  []string `json:"for,omitempty"` // conditions of Option.Duties, at least one of which must hold; if empty, the duty applies to every lock
	Lang string   `json:"lang"`
	Code []string `json:"code"`
	SQL  []string `json:"sql,omitempty"`  // code for users of other languages if Code is in Go
	Java []string `json:"java,omitempty"` // code for users of Java; nil if Code suits them too
}

// Guide contains questions for a user, the libraries for each programming language, and the users'
// duties. The question about the language is not one of them: Questions adds it.
var Guide = catalog.Parse[struct {
	Questions []Question `json:"questions"`
	Stacks    []Stack    `json:"stacks"`
	Duties    []Duty     `json:"duties"`
}](guideText)

//go:embed guide.json
var guideText string

// FindStack returns the Stack of a programming language, or an empty one if the language is
// unknown.
func FindStack(name string) Stack {
	return catalog.First(Guide.Stacks, func(s Stack) bool { return s.Name == name })
}

// serversOf lists the available servers for each answer to the server question.
var serversOf = map[string]lock.Backend{
	"database": lock.SQL | lock.SQLLocks, "redis": lock.SQL | lock.SQLLocks | lock.Redis, "redlock": lock.SQL | lock.SQLLocks | lock.Redis | lock.RedisQuorum,
	"zookeeper": lock.SQL | lock.SQLLocks | lock.ZooKeeper, "etcd": lock.SQL | lock.SQLLocks | lock.Etcd,
}

// maxAdvised limits how many locks Advise recommends.
const maxAdvised = 3

// Advise returns the locks that fit the answers, cheapest first. Locks that cannot handle work as
// long as the user's come last.
func (f Facts) Advise(a Answers) (fit []Option, err error) {
	servers, stack := serversOf[a.Runs], FindStack(a.Stack)
	for _, o := range f.Options {
		s, err := lock.Find(o.Strategy)
		if err != nil {
			return nil, err
		}
		lockless := s.Excludes == catalog.NoExclusion
		_, exists := stack.Locks[o.Strategy]
		if exists && s.Needs&^servers == 0 && (!lockless || a.Rows == "update") && (len(o.Twice) == 0 || a.Rows == "may") {
			fit = append(fit, o)
		}
	}
	slices.SortStableFunc(fit, func(x, y Option) int {
		return cmp.Or(cmp.Compare(x.fails(a.Work), y.fails(a.Work)), cmp.Compare(x.trips(), y.trips()))
	})
	return fit[:min(len(fit), maxAdvised)], nil
}

// fails returns 1 if the lock cannot handle work of this length, and 0 otherwise. Advise sorts by
// this number.
func (o Option) fails(work string) int {
	switch {
	case work == "longer" && (slices.Contains(o.Inside, string(catalog.Slow)) || slices.Contains(o.Twice, string(catalog.Slow))),
		work == "endless" && slices.Contains(o.Stuck, string(catalog.Hang)):
		return 1
	}
	return 0
}

// Unmet describes the user's requirement that this lock does not meet, or returns "" if it meets all
// of them.
func (o Option) Unmet(a Answers) string {
	switch {
	case o.fails(a.Work) == 0:
		return ""
	case a.Work == "longer" && len(o.Twice) == 0:
		return "If the work outlasts the lease, the lock lets a second driver in, but the late write is refused."
	case a.Work == "longer":
		return "If the work outlasts the lease, the lock lets a second driver in, and both may write."
	default:
		return "Work that never returns holds the lock permanently, so set a timeout on the work."
	}
}

// Duties returns what users of this lock must do. The examples are in Go or Java for users of those
// languages, and in SQL otherwise.
func (o Option) Duties(a Answers) (all []Duty) {
	s, err := lock.Find(o.Strategy)
	hangs := slices.Contains(o.Stuck, string(catalog.Hang))
	onServer := err == nil && s.Needs&^(lock.SQL|lock.SQLLocks) != 0
	conditions := map[string]bool{
		string(o.Guard): true,
		"hang":          hangs,
		"lease":         onServer && !hangs && a.Work != "longer",
		"resent":        onServer && !hangs,
		"once":          a.Rows != "may",
		"counter":       o.Guard == order.Fenced && err == nil && s.Needs&lock.Redis != 0,
	}
	for _, d := range Guide.Duties {
		if len(d.For) > 0 && !slices.ContainsFunc(d.For, func(c string) bool { return conditions[c] }) {
			continue
		}
		switch {
		case a.Stack == "java" && d.Java != nil:
			d.Lang, d.Code = "java", d.Java
		case d.Lang == "go" && a.Stack != "go":
			d.Lang, d.Code = "sql", list(d.SQL)
		}
		all = append(all, d)
	}
	return all
}

// trips returns the number of round trips, or 0 if it was not measured.
func (o Option) trips() float64 { return *cmp.Or(o.Trips, new(float64)) }
