package experiment

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
)

// A slowLedger is a ledger whose reads take some time. A read returns the rows that exist halfway
// through it.
type slowLedger struct {
	takes   time.Duration
	written map[int64]time.Time // when each driver's row appears
}

func (l slowLedger) Create(context.Context, int, int) (int64, error) { panic("not used") }

func (l slowLedger) Ledger(_ context.Context, first int64, _ int) (rows []order.Grab, _ error) {
	time.Sleep(l.takes / 2)
	for driver, at := range l.written {
		if !at.After(time.Now()) {
			rows = append(rows, order.Grab{Order: first, Driver: driver})
		}
	}
	time.Sleep(l.takes / 2)
	slices.SortFunc(rows, func(a, b order.Grab) int { return int(a.Driver - b.Driver) })
	return rows, nil
}

// TestOpenUntilIsCertain makes the affected driver and a contender write at various times around slow
// reads of the ledger. The strike's conclusions about these writes must be true. Until openUntil, the
// affected driver must not have written. If endedInTime is set, this driver must have written before
// its lease ended. If othersPassed is set, the contender must have written.
func TestOpenUntilIsCertain(t *testing.T) {
	const takes, reads, lease = 100 * time.Millisecond, 5, 340 * time.Millisecond
	for affected := 5 * time.Millisecond; affected < reads*takes+takes; affected += 10 * time.Millisecond {
		for _, contender := range []time.Duration{5 * time.Millisecond, 265 * time.Millisecond, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ledger := slowLedger{takes, map[int64]time.Time{1: began.Add(affected), 2: began.Add(contender)}}
				in := &injection{
					traits: traits{liveLedger: true}, cell: &Cell{}, responses: newResponses(),
					ttl: lease, w: &worker{fleet: &fleet.Fleet{Ours: true}, orders: ledger, ledger: true},
				}
				c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{{Order: 7, Driver: 2}}, heldSince: began}
				s := &strike{in: in, contests: []*contest{c}}
				for range reads {
					before := time.Now()
					claimed := s.in.claimed(t.Context(), s.contests)
					s.contention().noteEarly(claimed)
					wrote := ledger.written[1]
					if claimed(c.affected) && wrote.After(time.Now()) || !claimed(c.affected) && wrote.Before(before) {
						t.Errorf("written after %v: for a read that began after %v, claimed is %v", affected, before.Sub(began), claimed(c.affected))
					}
					if c.openUntil.After(wrote) || wrote.After(time.Now()) && c.openUntil.Before(before) {
						t.Errorf("written after %v: for a read that began after %v, open until %v", affected, before.Sub(began), c.openUntil.Sub(began))
					}
					if c.endedInTime && affected >= lease || c.othersPassed && ledger.written[2].After(time.Now()) {
						t.Errorf("written after %v and %v: in time %v, others passed %v", affected, contender, c.endedInTime, c.othersPassed)
					}
				}
				if wantEarly := affected < 2*takes; wantEarly && !c.endedInTime || c.othersPassed != (contender < time.Hour) {
					t.Errorf("written after %v and %v: in time %v, others passed %v", affected, contender, c.endedInTime, c.othersPassed)
				}
			})
		}
	}
}

// A lockedLedger is a ledger that cannot be read, because a stopped driver has locked its table.
type lockedLedger struct{}

func (lockedLedger) Create(context.Context, int, int) (int64, error) { panic("not used") }

func (lockedLedger) Ledger(ctx context.Context, _ int64, _ int) ([]order.Grab, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLockedLedger checks that a ledger read gives up if the affected driver has locked the table, for
// example with LOCK TABLES. Otherwise, the fault would never end, and so the driver would stay stopped.
func TestLockedLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &injection{traits: traits{liveLedger: true}, cell: &Cell{}, responses: newResponses(), w: &worker{fleet: &fleet.Fleet{Ours: true}, orders: lockedLedger{}, ledger: true}}
		c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		claimed := in.claimed(ctx, []*contest{c})
		if took := time.Since(began); took > readTimeout || claimed(c.affected) || !c.openUntil.IsZero() {
			t.Errorf("the read took %v, want at most %v; written %v, not written until %v", took, readTimeout, claimed(c.affected), c.openUntil)
		}
	})
}
