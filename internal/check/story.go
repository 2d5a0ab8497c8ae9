package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

// Case is what a story is to be told of: one order of a cell, and the property
// that was not kept on it.
type Case struct {
	Order    int64
	Property string // name of the checker that says so
	Strategy lock.Strategy
	Guard    order.Guard
	Fault    lock.Fault
	Lease    time.Duration // for how long a lease lives without renewal; 0: unknown
}

// Story is the shortest stretch of history that shows what went wrong on one
// order.
type Story struct {
	Order    int64  `json:"order"`
	Property string `json:"property"`               // that was not kept
	Mode     string `json:"failure_mode,omitempty"` // F1 …; "": none is known to explain it
	Name     string `json:"name,omitempty"`         // of the failure mode
	Cure     string `json:"cure,omitempty"`
	Steps    []Step `json:"steps"`
	Picture  string `json:"picture,omitempty"` // file beside run.json
}

// Step is one fact of a story.
type Step struct {
	TMS      float64 `json:"t_ms"` // since the first step
	Instance string  `json:"instance"`
	Driver   int64   `json:"driver"`
	Event    string  `json:"event"`
	Believed string  `json:"believed"` // by the driver, from then on
	True     string  `json:"true"`     // from then on, by the record and the ledger
}

// Tell finds the story of a case in the events of its order, and in the ledger.
// ok is false where too little was recorded to tell it.
func Tell(events []history.Event, ledger []order.Grab, c Case) (s Story, ok bool) {
	t := newTeller(events, ledger, c)
	var told []history.Event
	verdict := lock.Unsafe
	switch c.Property {
	case oneWinner.Name:
		told = t.twoWinners()
	case holdersApart.Name:
		told = t.twoHolders()
	case nothingStuck.Name:
		told, verdict = t.stuck(), lock.Stuck
	}
	if len(told) == 0 {
		return Story{}, false
	}
	s = Story{Order: c.Order, Property: c.Property, Steps: t.steps(told)}
	if m, ok := t.mode(told, verdict); ok {
		s.Mode, s.Name, s.Cure = m.ID, m.Name, m.Cure
	}
	return s, true
}

// mode is that of a release which freed another's lock, if the story has one,
// else what follows from the verdict.
func (t *teller) mode(told []history.Event, v lock.Verdict) (Mode, bool) {
	for _, e := range told {
		if t.freesAnother(e, of(told[0]), of(told[len(told)-1])) {
			if m, ok := modeByID(strayRelease.follow(t.Strategy, t.Guard)); ok {
				return m, true
			}
		}
	}
	return ModeOf(t.Strategy, t.Guard, t.Fault, v)
}

// teller has what is known of one order.
type teller struct {
	Case
	events []history.Event // in the order of time
	rows   []order.Grab
	holds  []Hold
}

func newTeller(events []history.Event, ledger []order.Grab, c Case) *teller {
	t := &teller{Case: c}
	for _, e := range events {
		if e.Order == c.Order {
			t.events = append(t.events, e)
		}
	}
	slices.SortStableFunc(t.events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	for _, g := range ledger {
		if g.Order == c.Order {
			t.rows = append(t.rows, g)
		}
	}
	t.holds = holdsOf(t.events, c.Strategy.UntilClaim)
	return t
}

// holdsOf finds the holds in the events of one order, whose sequence numbers
// have gaps where other orders' events are.
func holdsOf(events []history.Event, untilClaim bool) []Hold {
	type process struct {
		instance    string
		incarnation int
	}
	seq := map[process]uint64{}
	scan := Scan{UntilClaim: untilClaim}
	for _, e := range events {
		p := process{e.Instance, e.Incarnation}
		seq[p]++
		e.Seq = seq[p]
		scan.Add(e)
	}
	return scan.Record().Holds
}

// player is who acts in a story: one driver at one instance.
type player struct {
	driver   int64
	instance string
}

func of(e history.Event) player { return player{e.Driver, e.Instance} }

func (h Hold) player() player { return player{h.Driver, h.Instance} }

// twoWinners is the stretch from where the first of two neighbouring winners
// begins to the write of the second, of those the shortest.
func (t *teller) twoWinners() (shortest []history.Event) {
	writes := t.writes()
	for i := 1; i < len(writes); i++ {
		a, b := writes[i-1], writes[i]
		told := t.between(min(t.begin(a), t.begin(b)), b, of(a), of(b))
		if shortest == nil || len(told) < len(shortest) {
			shortest = told
		}
	}
	return shortest
}

// writes are the claims that stand in the ledger. One whose answer nobody saw
// is known by its call.
func (t *teller) writes() []history.Event {
	var writes []history.Event
	for _, g := range t.rows {
		var write history.Event
		for _, e := range t.events {
			if e.Op == history.Claim && e.Driver == g.Driver && e.Token == g.Token && e.Kind != history.Fail {
				write = e // the answer comes last
			}
		}
		if write.Op != "" {
			writes = append(writes, write)
		}
	}
	slices.SortStableFunc(writes, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	return writes
}

// begin is when the attempt that e belongs to got the lock, or read the order
// where there is no lock.
func (t *teller) begin(e history.Event) time.Duration {
	opens := history.Acquire
	if t.Strategy.Excludes == lock.Nobody {
		opens = history.Read
	}
	begin := e.T
	for _, x := range t.events {
		if x.T <= e.T && of(x) == of(e) && x.Token == e.Token && x.Op == opens && x.Kind == history.OK {
			begin = x.T
		}
	}
	return begin
}

// between tells what two players did from the given instant to the last event,
// and who freed their lock meanwhile. What they did once they had written
// changed nothing.
func (t *teller) between(from time.Duration, last history.Event, a, b player) []history.Event {
	var told []history.Event
	wrote := map[player]bool{}
	for _, e := range t.events {
		p := of(e)
		ours := p == a || p == b
		if e.T >= from && t.tells(e) && !wrote[p] && (ours || t.freesAnother(e, a, b)) {
			told = append(told, e)
		}
		if e == last {
			break
		}
		wrote[p] = wrote[p] || e.Op == history.Claim && e.Kind == history.OK
	}
	return withoutEmptyCalls(told)
}

// freesAnother says whether e is a release while a or b is inside who came in later.
func (t *teller) freesAnother(e history.Event, a, b player) bool {
	if e.Op != history.Release || e.Kind != history.OK {
		return false
	}
	return slices.ContainsFunc(t.holds, func(h Hold) bool {
		return h.player() == of(e) && h.Token == e.Token && slices.ContainsFunc(t.holds, func(v Hold) bool {
			later := h.From < v.From && v.From < e.T && e.T < v.To
			return later && (v.player() == a || v.player() == b) && compare(t.Strategy.Excludes, h, v) == 0
		})
	})
}

// tells says whether e belongs in a story at all.
func (t *teller) tells(e history.Event) bool {
	switch e.Op {
	case history.Acquire, history.Release:
		return t.Strategy.Excludes != lock.Nobody && e.Kind != history.Invoke
	case history.Grab:
		return false
	default:
		return true
	}
}

// withoutEmptyCalls leaves out the call of what returned before anything else happened.
func withoutEmptyCalls(events []history.Event) []history.Event {
	var kept []history.Event
	for i, e := range events {
		returns := i+1 < len(events) && of(events[i+1]) == of(e) && events[i+1].Op == e.Op
		if e.Kind != history.Invoke || !returns {
			kept = append(kept, e)
		}
	}
	return kept
}

// twoHolders is the stretch from the first holder's acquire to that of the one
// who came to him.
func (t *teller) twoHolders() []history.Event {
	overlaps := Overlaps(t.holds, t.Strategy.Excludes)
	if len(overlaps) == 0 {
		return nil
	}
	a, b := overlaps[0].First, overlaps[0].Second
	last := slices.IndexFunc(t.events, func(e history.Event) bool {
		return e.T == b.From && of(e) == b.player() && e.Op == history.Acquire
	})
	return t.between(a.From, t.events[last], a.player(), b.player())
}

// stuck is all of the last attempt that may still hold the lock, and the first
// and the last of those who did not get it.
func (t *teller) stuck() []history.Event {
	holder, ok := t.keeper()
	if !ok {
		return nil
	}
	var told, refused []history.Event
	for _, e := range t.events {
		switch {
		case e.T < holder.T:
		case e == holder, of(e) == of(holder) && t.tells(e):
			told = append(told, e)
		case e.Op == history.Acquire && e.Kind == history.Fail:
			refused = append(refused, e)
		}
	}
	if len(refused) > 1 {
		refused = []history.Event{refused[0], refused[len(refused)-1]}
	}
	told = append(told, refused...)
	slices.SortStableFunc(told, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	return withoutEmptyCalls(told)
}

// keeper is where the last attempt begins that got the lock and was not seen to
// give it back; if there is none, one that was never seen to end.
func (t *teller) keeper() (begins history.Event, ok bool) {
	open := map[player]history.Event{}
	asking := map[player]history.Event{}
	for _, e := range t.events {
		switch {
		case e.Op == history.Grab && e.Kind == history.Invoke:
			asking[of(e)] = e
		case e.Op == history.Grab:
			delete(asking, of(e))
		case e.Op == history.Acquire && e.Kind == history.OK:
			open[of(e)] = e
		case e.Op == history.Release && e.Kind == history.OK:
			delete(open, of(e))
		}
	}
	for _, among := range []map[player]history.Event{open, asking} {
		for _, e := range among {
			if !ok || e.T > begins.T {
				begins, ok = e, true
			}
		}
		if ok {
			return begins, true
		}
	}
	return history.Event{}, false
}

// steps puts beside each event what its driver believed and what was true. All
// events of the order are gone through, as what was true does not begin with
// the story.
func (t *teller) steps(told []history.Event) []Step {
	var steps []Step
	stage := newStage(t)
	for _, e := range t.events {
		stage.play(e)
		if !slices.Contains(told, e) {
			continue
		}
		steps = append(steps, Step{
			TMS:      float64((e.T - told[0].T).Microseconds()) / 1000,
			Instance: e.Instance, Driver: e.Driver,
			Event: t.describe(e), Believed: stage.believed(of(e)), True: stage.truth(e.T),
		})
	}
	return steps
}

func (t *teller) describe(e history.Event) string {
	text := t.plain(e)
	if e.Op == history.Acquire && e.Kind == history.OK && e.Fence > 0 {
		text += fmt.Sprintf(", token %d", e.Fence)
	}
	if e.Note != "" {
		text += ": " + e.Note
	}
	return text
}

// plain says in a few words what happened.
func (t *teller) plain(e history.Event) string {
	switch e.Op + " " + string(e.Kind) {
	case "grab invoke":
		return "asks for the order"
	case "acquire ok":
		return "gets the lock"
	case "acquire fail":
		return "does not get the lock"
	case "read ok":
		return "reads the order"
	case "read fail":
		return "is refused the order"
	case "claim invoke":
		return "sends its write"
	case "claim ok":
		return "writes itself as the winner"
	case "claim fail":
		return "is refused its write"
	case "claim info":
		return "gets no answer to its write"
	case "release ok":
		return "lets go of the lock"
	case "release fail", "release info":
		return "lets go of the lock, in vain"
	case "lost info":
		return "learns that its lease is lost"
	case "strike info":
		return "the fault strikes"
	default:
		return strings.TrimSpace(e.Op + " " + string(e.Kind))
	}
}
