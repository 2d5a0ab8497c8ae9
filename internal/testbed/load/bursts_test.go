package load

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestBursts checks that the requests of a burst can be taken and are due from its Send on, and that
// the load stops after End.
func TestBursts(t *testing.T) {
	w := NewBursts()
	pace := w.pacer(t.Context(), Config{}, nil)
	first, second := Request{"a", 1, 1}, Request{"b", 2, 2}
	w.Send([]Request{first})
	if wait, stop := pace.Pace(0, 0); wait != 0 || stop {
		t.Errorf("first: %v, %v", wait, stop)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if wait, stop := pace.Pace(0, 1); wait != 0 || stop {
			t.Errorf("second: %v, %v", wait, stop)
		}
	})
	if s, ok := w.take(); !ok || s != first {
		t.Errorf("request %+v, %v", s, ok)
	}
	if s, ok := w.take(); ok {
		t.Errorf("request %+v before it was sent", s)
	}
	w.Send([]Request{second})
	waiting.Wait()
	var sent vegeta.Target
	if err := targeter(w, target.Own)(&sent); err != nil || sent.URL != "b/orders/2/grab#2,2,1" {
		t.Errorf("the second request has the URL %q, %v", sent.URL, err)
	}
	if pace.due(1) < pace.due(0) || w.Requests() != 2 {
		t.Errorf("due %v and %v of %d", pace.due(0), pace.due(1), w.Requests())
	}
	w.End()
	if _, stop := pace.Pace(0, 2); !stop {
		t.Error("the load does not stop after End")
	}
}

// TestBurstsAreDueFromTheAttack checks that due times count from the start of the attack, not from
// NewBursts. Otherwise, a response could arrive before its request was due.
func TestBurstsAreDueFromTheAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewBursts()
		time.Sleep(time.Minute)
		pace := w.pacer(t.Context(), Config{}, nil)
		time.Sleep(time.Second)
		w.Send([]Request{{"a", 1, 1}})
		if due := pace.due(0); due != time.Second {
			t.Errorf("due after %v, want a second", due)
		}
	})
}

// TestBurstsEndWithTheAttack ends the attack while it waits for another burst, and before it waits. The load must then end,
// even if more requests are waiting.
func TestBurstsEndWithTheAttack(t *testing.T) {
	for _, waits := range []bool{false, true} {
		for sent := range 3 {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				w := NewBursts()
				w.Send(make([]Request, sent))
				pace := w.pacer(ctx, Config{}, nil)
				hits := uint64(0)
				if waits {
					hits = uint64(sent)
					time.AfterFunc(time.Second, end)
				} else {
					end()
				}
				if _, stop := pace.Pace(0, hits); !stop {
					t.Errorf("of %d requests, %d are sent, and the attack ends: the load goes on", sent, hits)
				}
			})
		}
	}
}

// TestBurstsEndAfterTheLastRequest calls End right after the last Send, while requests are pending.
// The load must still send all of them, because a test may end with the last drivers of an order.
func TestBurstsEndAfterTheLastRequest(t *testing.T) {
	for before := range 4 {
		for after := range 4 {
			w := NewBursts()
			pace := w.pacer(t.Context(), Config{}, nil)
			requests := []Request{{"a", 1, 1}, {"b", 1, 2}, {"a", 1, 3}}
			w.Send(requests[:before])
			for hits := range before / 2 {
				pace.Pace(0, uint64(hits))
			}
			w.Send(requests[:after])
			w.End()
			sent := 0
			for stop := false; !stop; {
				if _, stop = pace.Pace(0, uint64(sent)); !stop {
					if _, ok := w.take(); !ok {
						t.Fatalf("%d and %d requests: the load waits for request %d", before, after, sent)
					}
					sent++
				}
			}
			if sent != before+after {
				t.Errorf("%d and %d requests: sent %d", before, after, sent)
			}
		}
	}
}
