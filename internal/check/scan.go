package check

import (
	"maps"
	"slices"
	"time"

	"grablab/internal/history"
)

// Scan reads events one by one, so that the history need not fit in memory. Each instance's events
// must arrive in sequence order, but events of different instances may be interleaved.
//
// A new incarnation means that the process was restarted, and so does a sequence number that does
// not increase. The old process's holds end with its last event.
type Scan struct {
	// Since maps each instance to the sequence number of its last event before this record. Without
	// an entry, any first number is valid.
	Since map[string]uint64
	// UntilClaim means that the write that records the winner also releases the lock.
	UntilClaim bool

	record Record
	holds  pending[int] // indexes into record.Holds: holds whose release has not returned
	claims pending[Effect]
	grabs  pending[Op]    // unanswered grabs; their keys contain no token, because a grab begins before it has one
	taken  map[int64]Span // each order's first grab with the answer taken
	last   map[string]history.Event
	end    time.Duration
}

// attempt identifies a driver's attempt to grab an order. Calls with the same key are assumed to
// end in the order in which they began.
type attempt struct {
	Pair
	instance, token string
}

// pending holds each attempt's unfinished calls, oldest first.
type pending[T any] map[attempt][]T

// pop removes and returns an attempt's oldest call. ok is false if there is none.
func (p pending[T]) pop(a attempt) (oldest T, ok bool) {
	if len(p[a]) == 0 {
		return oldest, false
	}
	oldest = p[a][0]
	if p[a] = p[a][1:]; len(p[a]) == 0 {
		delete(p, a)
	}
	return oldest, true
}

// takeAll removes and returns all unfinished calls of an instance.
func (p pending[T]) takeAll(instance string) (all []T) {
	for a, ts := range p {
		if a.instance == instance {
			all = append(all, ts...)
			delete(p, a)
		}
	}
	return all
}

// Add processes one event.
func (s *Scan) Add(e history.Event) {
	if s.last == nil {
		s.holds, s.claims, s.grabs = pending[int]{}, pending[Effect]{}, pending[Op]{}
		s.taken, s.last = map[int64]Span{}, map[string]history.Event{}
		s.record.NearMisses = map[int64]int{}
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
	switch {
	case e.Kind == history.Fail && e.Code == "":
		s.record.MissingEvents++ // old records have no codes, so the reason of the failure is unknown
	case isNearMiss(e):
		s.record.NearMisses[e.Order]++
	}
}

// sequence counts how many of the instance's events are missing directly before e. If the instance was
// restarted before e, sequence also ends the old process's holds.
func (s *Scan) sequence(e history.Event) {
	before, known := s.last[e.Instance]
	anew := known && e.Incarnation != before.Incarnation
	if !known {
		before.Seq, known = s.Since[e.Instance]
	}
	switch {
	case anew, known && e.Seq <= before.Seq: // the instance has a new process
		s.record.MissingEvents += int(e.Seq - min(e.Seq, 1))
		s.abandon(e.Instance, before.T)
	case known:
		s.record.MissingEvents += int(e.Seq - before.Seq - 1)
	}
	s.last[e.Instance] = e
}

// hold records when a driver gets the lock, when it releases it, and when it learns that it has
// lost it.
func (s *Scan) hold(a attempt, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		if s.record.MissingEvents > 0 {
			delete(s.holds, a) // the lost events may contain the release of an older hold with the same token
		}
		s.holds[a] = append(s.holds[a], len(s.record.Holds))
		s.record.Holds = append(s.record.Holds, Hold{Span: spanOf(e, e.T, 0), AcquireCalled: s.acquireCalled(a)})
	case e.Op == history.Read && e.Kind == history.OK:
		if h := s.oldest(a); h != nil {
			h.ReadAt = e.T
		}
	case e.Op == history.Release && e.Kind == history.Invoke,
		s.UntilClaim && e.Op == history.Claim && e.Kind == history.Invoke:
		s.close(a, e.T)
	case tellsOfLoss(e):
		if h := s.oldest(a); h != nil && h.LossKnownAt == 0 {
			h.LossKnownAt = e.T
		}
	}
	if e.Op == history.Release && e.Kind != history.Invoke {
		s.holds.pop(a)
	}
}

// acquireCalled returns when the attempt first called acquire, or 0 if that is unknown.
func (s *Scan) acquireCalled(a attempt) time.Duration {
	a.token = ""
	if grabs := s.grabs[a]; len(grabs) > 0 {
		return grabs[0].From
	}
	return 0
}

func (s *Scan) oldest(a attempt) *Hold {
	if len(s.holds[a]) == 0 {
		return nil
	}
	return &s.record.Holds[s.holds[a][0]]
}

func (s *Scan) close(a attempt, t time.Duration) {
	for _, i := range s.holds[a] {
		if h := &s.record.Holds[i]; !h.Closed {
			h.To, h.Closed = t, true
			return
		}
	}
	if !s.UntilClaim {
		s.record.MissingEvents++ // this lease's acquire is missing from the record
	}
}

// claim records a winner's write. If the outcome is unknown, it records a possible write.
func (s *Scan) claim(a attempt, e history.Event) {
	if e.Kind == history.Invoke {
		if s.record.MissingEvents > 0 { // the lost events may contain the reply to an older write with the same token
			s.record.Effects = append(s.record.Effects, s.claims[a]...)
			delete(s.claims, a)
		}
		s.claims[a] = append(s.claims[a], Effect{Span: spanOf(e, e.T, endUnseen)})
		return
	}
	effect, ok := s.claims.pop(a)
	if !ok {
		effect.Span = spanOf(e, 0, endUnseen)
	}
	if e.Kind != history.Fail {
		effect.To, effect.Sure = e.T, e.Kind == history.OK
		s.record.Effects = append(s.record.Effects, effect)
	}
}

// grab records the result of a grab. It ignores failures other than "taken", which show nothing
// about the order.
func (s *Scan) grab(a attempt, e history.Event) {
	a.token = ""
	if e.Kind == history.Invoke {
		s.grabs[a] = append(s.grabs[a], Op{spanOf(e, e.T, endUnseen), MayHave})
		return
	}
	op, ok := s.grabs.pop(a)
	if !ok {
		op = Op{spanOf(e, 0, endUnseen), MayHave}
	}
	switch {
	case e.Kind == history.OK:
		op.To, op.Outcome = e.T, Won
		s.record.Ops = append(s.record.Ops, op)
	case e.Kind == history.Info: // this attempt's write may still take effect
		s.record.Ops = append(s.record.Ops, op)
	case e.Code == history.Taken:
		op.To = e.T
		if first, ok := s.taken[op.Order]; !ok || op.To < first.To {
			s.taken[op.Order] = op.Span
		}
	}
}

// abandon ends a dead process's holds. Its unfinished writes and grabs stay open, because they may
// take effect later.
func (s *Scan) abandon(instance string, at time.Duration) {
	for _, i := range s.holds.takeAll(instance) {
		if h := &s.record.Holds[i]; !h.Closed {
			h.To, h.Closed = at, true
		}
	}
	s.record.Effects = append(s.record.Effects, s.claims.takeAll(instance)...)
	s.record.Ops = append(s.record.Ops, s.grabs.takeAll(instance)...)
}

// Record summarizes all events so far. A hold without a recorded end lasts until its process
// restarted, or until the end of the record.
func (s *Scan) Record() *Record {
	r := s.record
	r.Holds, r.Effects, r.Ops, r.NearMisses = slices.Clone(r.Holds), slices.Clone(r.Effects), slices.Clone(r.Ops), maps.Clone(r.NearMisses)
	for i := range r.Holds {
		if h := &r.Holds[i]; !h.Closed {
			h.To = s.end
		}
	}
	for _, effects := range s.claims {
		r.Effects = append(r.Effects, effects...)
	}
	for _, ops := range s.grabs {
		r.Ops = append(r.Ops, ops...)
	}
	for _, span := range s.taken {
		r.Ops = append(r.Ops, Op{span, Taken})
	}
	slices.SortFunc(r.Effects, func(a, b Effect) int { return a.compare(b.Span) })
	slices.SortFunc(r.Ops, func(a, b Op) int { return a.compare(b.Span) })
	return &r
}

// isNearMiss reports whether the database prevented a wrong write, because of an old fencing token
// or a taken order.
func isNearMiss(e history.Event) bool {
	claim := e.Op == history.Claim && (e.Code == history.Stale || e.Code == history.Taken)
	read := e.Op == history.Read && e.Code == history.Stale // the guard records the fencing token before the read
	return e.Kind == history.Fail && (claim || read)
}

func tellsOfLoss(e history.Event) bool {
	return e.Op == history.Lost || isNearMiss(e) ||
		e.Op == history.Release && e.Kind == history.Fail && e.Code == history.LeaseLost
}
