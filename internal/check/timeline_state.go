package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
)

// orderState tracks who has the lock on an order, who has won it, and what each driver knows.
// builder.steps applies the order's events to it one by one. After each event that the timeline shows, it
// adds the driver's belief and the truth to the timeline.
type orderState struct {
	*builder
	inside  []insider
	winners []actor
	beliefs map[actor]string
}

// insider is a driver that has acquired the lock and has not released it yet.
type insider struct {
	actor
	until       time.Duration // when its lease ends; 0 if unknown
	incarnation int           // how many times its process had started
	lost        bool          // whether another driver has acquired the lock in the meantime
	leaves      bool          // whether it has called release, but the call has not returned
	died        bool
}

// apply updates the state with the next event.
func (s *orderState) apply(e history.Event) {
	a := actorOf(e)
	for i, x := range s.inside {
		s.inside[i].died = x.died || x.instance == e.Instance && x.incarnation < e.Incarnation
	}
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		for i, x := range s.inside {
			s.inside[i].lost = x.lost || s.Excludes != catalog.PerProcess || x.instance == e.Instance
		}
		s.inside = append(s.inside, insider{actor: a, until: s.leaseEnd(e), incarnation: e.Incarnation})
	case e.Op == history.Renew || e.Op == history.Release && e.Kind == history.Invoke:
		for i, x := range s.inside {
			switch {
			case x.actor != a:
			case e.Op == history.Release:
				s.inside[i].leaves = true
			case e.Kind == history.OK:
				s.inside[i].until = s.leaseEnd(e)
			}
		}
	case e.Op == history.Release:
		s.inside = slices.DeleteFunc(s.inside, func(x insider) bool { return x.actor == a })
	case slices.Contains(s.writes, e):
		s.winners = append(s.winners, a)
	}
	if belief := s.belief(e); belief != "" {
		s.beliefs[a] = belief
	}
}

// belief returns what a driver believes after event e, or "" if e tells it nothing new.
func (s *orderState) belief(e history.Event) string {
	won, open, taken := "has won the order", "the order is open", "the order is taken"
	if s.units() > 1 {
		won, open, taken = "has a unit", "a unit is left", "no unit is left"
	}
	locks, ok := s.Excludes != catalog.NoExclusion, e.Kind == history.OK
	switch {
	case e.Op == history.Acquire && ok && locks:
		return "has the lock"
	case e.Op == history.Acquire && e.Code == history.Busy:
		return "another driver has the lock"
	case e.Op == history.Read && ok && e.Code == history.Open && locks:
		return "has the lock, " + open
	case e.Op == history.Read && ok && e.Code == history.Open:
		return open
	case e.Op == history.Read && ok, e.Op == history.Claim && e.Code == history.Taken:
		return taken
	case e.Op == history.Claim && ok:
		return won
	case !locks: // the remaining cases need a lock
		return ""
	case tellsOfLoss(e):
		return "the lock is lost"
	case e.Op == history.Release && ok && !slices.Contains(s.winners, actorOf(e)):
		return "has released the lock"
	default:
		return ""
	}
}

// truth describes who really has the lock, and who has won by the ledger.
func (s *orderState) truth(now time.Duration) string {
	var facts []string
	if s.Excludes != catalog.NoExclusion {
		facts = s.holders(now)
	}
	switch {
	case s.units() > 1 && len(s.winners) == 0:
		facts = append(facts, fmt.Sprintf("none of %d units sold", s.units()))
	case s.units() > 1:
		facts = append(facts, fmt.Sprintf("%d of %d units sold: to %s", len(s.winners), s.units(), names(s.winners)))
	case len(s.winners) == 0:
		facts = append(facts, "order open")
	case len(s.winners) == 1:
		facts = append(facts, "order grabbed by "+names(s.winners))
	default:
		facts = append(facts, fmt.Sprintf("order grabbed %d times: by %s", len(s.winners), names(s.winners)))
	}
	return strings.Join(facts, "; ")
}

// leaseEnd returns the end of the lease that e grants or renews, or 0 if it is unknown.
func (s *orderState) leaseEnd(e history.Event) time.Duration {
	switch {
	case e.Lease > 0:
		return e.T + e.Lease
	case e.Lease == 0 && s.Lease > 0:
		return e.T + s.Lease
	default:
		return 0
	}
}

// holders describes which drivers have the lock, continue without it, or died with it.
func (s *orderState) holders(now time.Duration) []string {
	var holding, without, dead []actor
	for _, x := range s.inside {
		lost := x.lost || x.until > 0 && now > x.until
		switch {
		case x.died:
			dead = append(dead, x.actor)
		case lost && !x.leaves:
			without = append(without, x.actor)
		case !lost:
			holding = append(holding, x.actor)
		}
	}
	var facts []string
	add := func(who []actor, what string) {
		if len(who) > 0 {
			facts = append(facts, names(who)+what)
		}
	}
	add(holding, map[bool]string{true: " each hold a lock", false: " holds the lock"}[len(holding) > 1])
	add(without, " inside without the lock")
	add(dead, " died inside")
	return facts
}

func names(actors []actor) string {
	return catalog.Join(actors, " and ", func(a actor) string { return fmt.Sprintf("driver %d", a.driver) })
}
