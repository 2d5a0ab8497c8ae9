package check

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

// Scan reads events one at a time, so that nobody needs to keep them. Those of
// one instance must come in the order of their sequence numbers; how
// instances are interleaved does not matter.
//
// A sequence that begins again at 1 is a process that was started anew: what
// its predecessor held ended with that one's last event.
type Scan struct {
	// Since holds the last sequence number of each instance before the first
	// that is added. An instance that is not in it may begin anywhere.
	Since map[string]uint64
	// UntilClaim: a hold ends with the call of its claim, which lets go of the lock.
	UntilClaim bool

	record Record
	live   map[attempt][]int    // into record.Holds, until their release has returned
	claims map[attempt][]Effect // in flight
	grabs  map[attempt][]Op     // in flight; attempts without a token
	taken  map[int64]Op         // the first of each order
	last   map[string]history.Event
	deaths map[string][]time.Duration
	end    time.Duration
}

// attempt is how the two ends of a hold find each other. Tokens need not be
// unique; then the first to begin is the first to end.
type attempt struct {
	Pair
	instance, token string
}

// Died tells that the process of an instance ended at t, CLOCK_MONOTONIC.
func (s *Scan) Died(instance string, t time.Duration) {
	if s.deaths == nil {
		s.deaths = map[string][]time.Duration{}
	}
	s.deaths[instance] = append(s.deaths[instance], t)
}

// Add reads the next event.
func (s *Scan) Add(e history.Event) {
	if s.last == nil {
		s.live, s.claims, s.grabs = map[attempt][]int{}, map[attempt][]Effect{}, map[attempt][]Op{}
		s.taken, s.last = map[int64]Op{}, map[string]history.Event{}
	}
	s.sequence(e)
	s.end = max(s.end, e.T)
	a := attempt{Pair{e.Order, e.Driver}, e.Instance, e.Token}
	switch e.Op {
	case history.Grab:
		s.grab(a, e)
	case history.Claim:
		s.claim(a, e)
	}
	s.hold(a, e)
	if e.Kind == history.Fail && refused(e) {
		s.record.NearMisses++
	}
}

// sequence counts the events that are missing before e.
func (s *Scan) sequence(e history.Event) {
	before, known := s.last[e.Instance]
	if !known {
		before.Seq, known = s.Since[e.Instance]
	}
	switch {
	case known && e.Seq > before.Seq+1:
		s.record.Lost += int(e.Seq - before.Seq - 1)
	case known && e.Seq <= before.Seq: // a new process
		s.record.Lost += int(e.Seq - min(e.Seq, 1))
		s.abandon(e.Instance, before.T)
	}
	s.last[e.Instance] = e
}

// hold follows an attempt through its critical section.
func (s *Scan) hold(a attempt, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		s.live[a] = append(s.live[a], len(s.record.Holds))
		s.record.Holds = append(s.record.Holds, Hold{
			Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token, Fence: e.Fence,
			Asked: s.asked(a), From: e.T, fromSeq: e.Seq,
		})
	case e.Op == history.Read && e.Kind == history.OK:
		for _, i := range s.first(a) {
			s.record.Holds[i].Read = e.T
		}
	case e.Op == history.Release && e.Kind == history.Invoke,
		s.UntilClaim && e.Op == history.Claim && e.Kind == history.Invoke:
		s.close(a, e)
	case tellsOfLoss(e):
		for _, i := range s.first(a) {
			if h := &s.record.Holds[i]; h.Knew == 0 {
				h.Knew = e.T
			}
		}
	}
	if e.Op == history.Release && e.Kind != history.Invoke {
		s.forget(a)
	}
}

// asked is no later than the call of the attempt's acquire.
func (s *Scan) asked(a attempt) time.Duration {
	a.token = ""
	if grabs := s.grabs[a]; len(grabs) > 0 {
		return grabs[0].From
	}
	return 0
}

// first of the attempt's holds, if there is any.
func (s *Scan) first(a attempt) []int { return s.live[a][:min(1, len(s.live[a]))] }

func (s *Scan) forget(a attempt) {
	if s.live[a] = s.live[a][len(s.first(a)):]; len(s.live[a]) == 0 {
		delete(s.live, a)
	}
}

func (s *Scan) close(a attempt, e history.Event) {
	for _, i := range s.live[a] {
		if h := &s.record.Holds[i]; !h.Closed {
			h.To, h.toSeq, h.Closed = e.T, e.Seq, true
			return
		}
	}
	if !s.UntilClaim {
		s.record.Lost++ // its acquire
	}
}

// claim keeps those that wrote, or may have.
func (s *Scan) claim(a attempt, e history.Event) {
	if e.Kind == history.Invoke {
		s.claims[a] = append(s.claims[a], Effect{
			Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token, Fence: e.Fence, From: e.T, To: never,
		})
		return
	}
	effect := Effect{Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token, Fence: e.Fence}
	if open := s.claims[a]; len(open) > 0 {
		effect = open[0]
		if s.claims[a] = open[1:]; len(open) == 1 {
			delete(s.claims, a)
		}
	}
	if e.Kind != history.Fail {
		effect.To, effect.Sure = e.T, e.Kind == history.OK
		s.record.Effects = append(s.record.Effects, effect)
	}
}

// grab keeps what an order has to agree with.
func (s *Scan) grab(a attempt, e history.Event) {
	a.token = ""
	if e.Kind == history.Invoke {
		s.grabs[a] = append(s.grabs[a], Op{Order: e.Order, Driver: e.Driver, Instance: e.Instance, From: e.T, To: never, Outcome: MayHave})
		return
	}
	op := Op{Order: e.Order, Driver: e.Driver, Instance: e.Instance}
	if open := s.grabs[a]; len(open) > 0 {
		op = open[0]
		if s.grabs[a] = open[1:]; len(open) == 1 {
			delete(s.grabs, a)
		}
	}
	switch op.To = e.T; {
	case e.Kind == history.OK:
		op.Outcome = Won
		s.record.Ops = append(s.record.Ops, op)
	case e.Kind == history.Info:
		op.Outcome, op.To = MayHave, never // its write may still arrive
		s.record.Ops = append(s.record.Ops, op)
	case strings.Contains(e.Note, order.ErrTaken.Error()):
		op.Outcome = Taken
		if first, ok := s.taken[op.Order]; !ok || op.To < first.To {
			s.taken[op.Order] = op
		}
	}
}

// abandon closes what a process that is no more had open. What it had sent may
// still arrive.
func (s *Scan) abandon(instance string, at time.Duration) {
	for a, holds := range s.live {
		if a.instance != instance {
			continue
		}
		for _, i := range holds {
			if h := &s.record.Holds[i]; !h.Closed {
				h.To, h.Closed = max(at, h.From), true
			}
		}
		delete(s.live, a)
	}
	for a, effects := range s.claims {
		if a.instance == instance {
			s.record.Effects = append(s.record.Effects, effects...)
			delete(s.claims, a)
		}
	}
	for a, ops := range s.grabs {
		if a.instance == instance {
			s.record.Ops = append(s.record.Ops, ops...)
			delete(s.grabs, a)
		}
	}
}

// Record is what was read so far. Holds that nobody saw end last until their
// process died, or until the end of the record.
func (s *Scan) Record() *Record {
	for _, holds := range s.live {
		for _, i := range holds {
			if h := &s.record.Holds[i]; h.toSeq == 0 {
				h.To, h.Closed = s.lastSeen(h)
			}
		}
	}
	r := s.record
	r.Effects, r.Ops = slices.Clone(r.Effects), slices.Clone(r.Ops)
	for _, effects := range s.claims {
		r.Effects = append(r.Effects, effects...)
	}
	for _, ops := range s.grabs {
		r.Ops = append(r.Ops, ops...)
	}
	for _, op := range s.taken {
		r.Ops = append(r.Ops, op)
	}
	slices.SortFunc(r.Effects, func(a, b Effect) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.From, b.From), cmp.Compare(a.Driver, b.Driver))
	})
	slices.SortFunc(r.Ops, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.From, b.From), cmp.Compare(a.Driver, b.Driver))
	})
	return &r
}

// lastSeen is when an open hold ended at the latest, and whether it surely did.
func (s *Scan) lastSeen(h *Hold) (to time.Duration, died bool) {
	to = s.end
	for _, t := range s.deaths[h.Instance] {
		if t >= h.From && t <= to {
			to, died = t, true
		}
	}
	return to, died
}

// refused says whether a guard or a fence kept e from being written. An event
// has crossed from another process, so that its error is left as text alone.
func refused(e history.Event) bool {
	stale := strings.Contains(e.Note, order.ErrStale.Error())
	switch e.Op {
	case history.Claim:
		return stale || strings.Contains(e.Note, order.ErrTaken.Error())
	case history.Read: // where a fence is raised first
		return stale
	default:
		return false
	}
}

// tellsOfLoss says whether e lets a holder know that the lock is not his any
// more: his lease says so, or somebody else has been at his order.
func tellsOfLoss(e history.Event) bool {
	return e.Op == history.Lost || e.Kind == history.Fail &&
		(refused(e) || e.Op == history.Release && strings.Contains(e.Note, lock.ErrLost.Error()))
}
