package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
)

// stage follows one order through its events: who is inside, who has won, and
// what each player can know of it.
type stage struct {
	t       *teller
	writes  []history.Event // that stand in the ledger
	inside  []entered
	winners []player
	beliefs map[player]string
}

// entered is one holder inside its critical section.
type entered struct {
	player
	at          time.Duration
	incarnation int // of its process
	died        bool
}

func newStage(t *teller) *stage {
	return &stage{t: t, writes: t.writes(), beliefs: map[player]string{}}
}

// play moves on by one event.
func (s *stage) play(e history.Event) {
	p := of(e)
	for i, x := range s.inside {
		s.inside[i].died = x.died || x.instance == e.Instance && x.incarnation < e.Incarnation
	}
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		s.inside = append(s.inside, entered{player: p, at: e.T, incarnation: e.Incarnation})
	case e.Op == history.Release && e.Kind == history.Invoke:
		s.inside = slices.DeleteFunc(s.inside, func(x entered) bool { return x.player == p })
	case slices.Contains(s.writes, e):
		s.winners = append(s.winners, p)
	}
	if belief, ok := s.belief(e); ok {
		s.beliefs[p] = belief
	}
}

// belief is what e tells its player.
func (s *stage) belief(e history.Event) (string, bool) {
	locks := s.t.Strategy.Excludes != lock.Nobody
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK && locks:
		return "has the lock", true
	case e.Op == history.Acquire && e.Kind == history.Fail:
		return "somebody else has the lock", true
	case e.Op == history.Read && e.Kind == history.OK && len(s.winners) > 0:
		return "the order is taken", true
	case e.Op == history.Read && e.Kind == history.OK && locks:
		return "has the lock, the order is open", true
	case e.Op == history.Read && e.Kind == history.OK:
		return "the order is open", true
	case e.Op == history.Claim && e.Kind == history.OK:
		return "has won the order", true
	case tellsOfLoss(e):
		return "the lock is lost", true
	case e.Op == history.Release && e.Kind == history.OK && !slices.Contains(s.winners, of(e)):
		return "has let go of the lock", true
	default:
		return "", false
	}
}

func (s *stage) believed(p player) string {
	if b, ok := s.beliefs[p]; ok {
		return b
	}
	return "nothing yet"
}

// truth is who is inside, and who stands in the ledger.
func (s *stage) truth(now time.Duration) string {
	var facts []string
	if s.t.Strategy.Excludes != lock.Nobody {
		facts = append(facts, s.holders(now)...)
	}
	switch len(s.winners) {
	case 0:
		facts = append(facts, "order open")
	case 1:
		facts = append(facts, "order grabbed by "+names(s.winners))
	default:
		facts = append(facts, fmt.Sprintf("order grabbed %d times: by %s", len(s.winners), names(s.winners)))
	}
	return strings.Join(facts, "; ")
}

// holders tells who is inside, who for longer than a lease, and who died there.
func (s *stage) holders(now time.Duration) []string {
	var inside, long, dead []player
	for _, x := range s.inside {
		if x.died {
			dead = append(dead, x.player)
			continue
		}
		inside = append(inside, x.player)
		if s.t.Lease > 0 && now-x.at > s.t.Lease {
			long = append(long, x.player)
		}
	}
	var facts []string
	for _, f := range []struct {
		who  []player
		what string
	}{
		{inside, " inside"}, {long, fmt.Sprintf(" for longer than a lease of %v", s.t.Lease)}, {dead, " died inside"},
	} {
		if len(f.who) > 0 {
			facts = append(facts, names(f.who)+f.what)
		}
	}
	return facts
}

// names of players as a sentence has them.
func names(players []player) string {
	text := make([]string, len(players))
	for i, p := range players {
		text[i] = fmt.Sprintf("driver %d", p.driver)
	}
	return strings.Join(text, " and ")
}
