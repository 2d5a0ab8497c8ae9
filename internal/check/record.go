package check

import (
	"strings"
	"time"

	"grablab/internal/history"
	"grablab/internal/order"
)

// Hold is one holder inside its critical section: from the return of its
// acquire to the call of its release, or of a claim that lets go. The lock is held for longer than that
// on either side, so that two holds which overlap surely did.
type Hold struct {
	Order, Driver int64
	Instance      string
	Token         string
	Fence         uint64
	From, To      time.Duration // CLOCK_MONOTONIC
	Closed        bool          // false: nobody saw it end; To is then the latest possible
	fromSeq       uint64
	toSeq         uint64
}

// Record is what the events of some orders come to.
type Record struct {
	Holds      []Hold
	NearMisses int // writes that a guard or a fence refused
	Lost       int // events that are known to be missing
}

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
	open   map[attempt][]int // into record.Holds
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
	s.sequence(e)
	s.end = max(s.end, e.T)
	a := attempt{Pair{e.Order, e.Driver}, e.Instance, e.Token}
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		if s.open == nil {
			s.open = map[attempt][]int{}
		}
		s.open[a] = append(s.open[a], len(s.record.Holds))
		s.record.Holds = append(s.record.Holds, Hold{
			Order: e.Order, Driver: e.Driver, Instance: e.Instance, Token: e.Token, Fence: e.Fence,
			From: e.T, fromSeq: e.Seq,
		})
	case e.Op == history.Release && e.Kind == history.Invoke,
		s.UntilClaim && e.Op == history.Claim && e.Kind == history.Invoke:
		s.close(a, e)
	case e.Kind == history.Fail && refused(e):
		s.record.NearMisses++
	}
}

// sequence counts the events that are missing before e.
func (s *Scan) sequence(e history.Event) {
	if s.last == nil {
		s.last = map[string]history.Event{}
	}
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

func (s *Scan) close(a attempt, e history.Event) {
	holds := s.open[a]
	if len(holds) == 0 {
		if !s.UntilClaim {
			s.record.Lost++ // its acquire
		}
		return
	}
	h := &s.record.Holds[holds[0]]
	h.To, h.toSeq, h.Closed = e.T, e.Seq, true
	if s.open[a] = holds[1:]; len(holds) == 1 {
		delete(s.open, a)
	}
}

// abandon closes what a process that is no more had open.
func (s *Scan) abandon(instance string, at time.Duration) {
	for a, holds := range s.open {
		if a.instance != instance {
			continue
		}
		for _, i := range holds {
			h := &s.record.Holds[i]
			h.To, h.Closed = max(at, h.From), true
		}
		delete(s.open, a)
	}
}

// Record is what was read so far. Holds that nobody saw end last until their
// process died, or until the end of the record.
func (s *Scan) Record() *Record {
	for _, holds := range s.open {
		for _, i := range holds {
			h := &s.record.Holds[i]
			h.To, h.Closed = s.end, false
			for _, t := range s.deaths[h.Instance] {
				if t >= h.From && t <= h.To {
					h.To, h.Closed = t, true
				}
			}
		}
	}
	return &s.record
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
