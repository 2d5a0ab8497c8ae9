package control_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
)

var errFault = errors.New("fault")

var beforeClaim = control.Point{Phase: tap.Claim, N: 1}

func waiting(order, driver int64) control.Held {
	return control.Held{Call: control.Call{Order: order, Driver: driver, Phase: tap.Claim, N: 1}, State: control.Waiting}
}

// drivers records the drivers whose calls were sent.
type drivers struct {
	mu  sync.Mutex
	ids []int64
}

func (d *drivers) add(driver int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids = append(d.ids, driver)
}

func (d *drivers) all() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ids)
}

// grabOf makes a call in a phase of a grab, in the background. The returned channel gets the result.
func grabOf(ctx context.Context, holds *control.Holds, order, driver int64, phase tap.Phase, sent *drivers) <-chan error {
	ended := make(chan error, 1)
	go func() {
		scope := &tap.Scope{Order: order, Driver: driver}
		ctx, end := scope.Enter(ctx, phase)
		defer end()
		ended <- holds.Do(ctx, tap.OpFrom(ctx, tap.Op{}), func(context.Context) error {
			sent.add(driver)
			return nil
		})
	}()
	return ended
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var noted []string
		holds := &control.Holds{Recorder: recorderFunc(func(e history.Event) {
			if e.Kind == history.Info {
				noted = append(noted, e.Note)
			}
		})}
		holds.Set("here", control.Hold{At: beforeClaim, First: 7, Count: 2, Drivers: []int64{1, 3, 4, 5}, Strike: true})
		var sent drivers

		// A call that is held at a point ignores its context.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		first := grabOf(gone, holds, 7, 1, tap.Claim, &sent)
		synctest.Wait()
		for _, other := range []struct {
			order, driver int64
			phase         tap.Phase
		}{{7, 2, tap.Claim}, {9, 3, tap.Claim}, {8, 4, tap.Read}} {
			if err := <-grabOf(t.Context(), holds, other.order, other.driver, other.phase, &sent); err != nil {
				t.Errorf("driver %d: %v", other.driver, err)
			}
		}
		second := grabOf(t.Context(), holds, 8, 5, tap.Claim, &sent)
		held, err := holds.Await(t.Context(), "here", 2)
		want := []control.Held{waiting(7, 1), waiting(8, 5)}
		want[0].Cancelled = true
		if err != nil || !slices.Equal(held, want) {
			t.Errorf("held %v, %v, want %v", held, err, want)
		}
		time.Sleep(time.Hour)
		if !slices.Equal(sent.all(), []int64{2, 3, 4}) {
			t.Fatalf("sent by %v, want none of those held", sent.all())
		}
		if err := holds.Remove("here"); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		if len(sent.all()) != 5 {
			t.Errorf("sent by %v, want all five", sent.all())
		}
		if want := []string{"before claim 1", "before claim 1"}; !slices.Equal(noted, want) {
			t.Errorf("noted %v, want %v", noted, want)
		}
	})
}

func TestCloseRefuses(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			holds := new(control.Holds)
			holds.Set("here", control.Hold{At: control.Point{Phase: tap.Claim, N: 1, After: after}, First: 7, Count: 1})
			var sent drivers
			ended := grabOf(t.Context(), holds, 7, 1, tap.Claim, &sent)
			synctest.Wait()
			holds.Close()
			if err := <-ended; !errors.Is(err, control.ErrRefused) {
				t.Errorf("%v, want it refused", err)
			}
			if was := len(sent.all()) == 1; was != after {
				t.Errorf("after %v: sent %v", after, was)
			}
		})
	}
}

// TestOutcomeOfAHold checks that a hold with an Outcome lists the calls that it matches and decides their
// outcome, but does not stop them. Another hold may stop the same calls.
func TestOutcomeOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds := new(control.Holds)
		holds.Set("listed", control.Hold{First: 7, Count: 1, Outcome: control.Delivered})
		holds.Set("refused", control.Hold{At: beforeClaim, First: 7, Count: 1, Drivers: []int64{1}, Outcome: control.Refused})
		holds.Set("held", control.Hold{At: beforeClaim, First: 7, Count: 1})
		var sent drivers
		first, second := grabOf(t.Context(), holds, 7, 1, tap.Claim, &sent), grabOf(t.Context(), holds, 7, 2, tap.Claim, &sent)
		synctest.Wait()
		if all := holds.All(); len(all["listed"]) != 2 || len(all["refused"]) != 1 || len(all["held"]) != 2 {
			t.Errorf("the holds list the calls %v", all)
		}
		if err := holds.Remove("held"); err != nil {
			t.Error(err)
		}
		if err := <-first; !errors.Is(err, control.ErrRefused) {
			t.Errorf("%v, want it refused", err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		if got := sent.all(); !slices.Equal(got, []int64{2}) {
			t.Errorf("sent by %v, want only driver 2", got)
		}
	})
}

// TestErrorsAreReplies checks that a hold after a call also stops a call that returns an error, because
// the error may be the reply. It must not stop a call whose context was cancelled.
func TestErrorsAreReplies(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			holds := new(control.Holds)
			holds.Set("here", control.Hold{At: control.Point{Phase: tap.Read, N: 1, After: true}, First: 7, Count: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- holds.Do(ctx, tap.Op{Order: 7, Driver: 1, Phase: tap.Read}, func(context.Context) error {
					if gone {
						cancel()
					}
					return errFault
				})
			}()
			synctest.Wait()
			if held, err := holds.Await(t.Context(), "here", 0); len(held) == 1 == gone || err != nil {
				t.Errorf("gone %v: held %v, %v", gone, held, err)
			}
			holds.Set("here", control.Hold{})
			if err := <-ended; !errors.Is(err, errFault) {
				t.Errorf("%v, want the error of the call", err)
			}
		})
	}
}

// TestCallsOutsideGrabs checks that a call that belongs to no grab reaches no hold.
func TestCallsOutsideGrabs(t *testing.T) {
	holds := new(control.Holds)
	holds.Set("here", control.Hold{First: 7, Count: 1})
	if err := holds.Do(t.Context(), tap.Op{Phase: tap.Renew}, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if all := holds.All(); len(all["here"]) != 0 {
		t.Errorf("a hold lists a call that belongs to no grab: %v", all)
	}
}

// TestPointGrammar parses every text of up to four words, and compares the result with a regular expression.
func TestPointGrammar(t *testing.T) {
	const phases = "acquire|read|claim|release|renew"
	valid := regexp.MustCompile("^(after (" + phases + ")|(before|after) (" + phases + "|(redis|redlock|mysql|postgres) .+) [1-9])$")
	words := []string{"before", "after", "acquire", "renew", "redis", "postgres", "etcd", "0", "3", ""}
	var parsed int
	var extend func(text string, left int)
	extend = func(text string, left int) {
		p, err := control.ParsePoint(text)
		if (err == nil) != valid.MatchString(text) || err == nil && p.String() != text || err != nil && p != (control.Point{}) {
			t.Errorf("ParsePoint(%q): %+v, %v", text, p, err)
		}
		if err == nil {
			parsed++
		}
		for _, w := range words {
			if left > 0 {
				extend(text+" "+w, left-1)
			}
		}
	}
	for _, w := range words {
		extend(w, 3)
	}
	if parsed < 40 {
		t.Errorf("only %d texts are points", parsed)
	}
}

func TestParsePoint(t *testing.T) {
	for text, want := range map[string]control.Point{
		"before claim 1":               {Phase: tap.Claim, N: 1},
		"after read":                   {Phase: tap.Read, After: true},
		"after acquire 12":             {Phase: tap.Acquire, N: 12, After: true},
		"after acquire 1 at redlock-1": {},
		"":                             {},
		"before claim":                 {}, // the number of the call is missing
		"before claim 0":               {},
		"before lunch 1":               {},
		"after read at db":             {},
		"during read 1":                {},
		"before read 1 of":             {},
		"before read one":              {},
	} {
		got, err := control.ParsePoint(text)
		if got != want || (err == nil) != (want != control.Point{}) {
			t.Errorf("ParsePoint(%q): %+v, %v, want %+v", text, got, err, want)
		}
		if err == nil && got.String() != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
}

func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds := new(control.Holds)
		if _, err := holds.Await(t.Context(), "nowhere", 1); !errors.Is(err, control.ErrNoHold) {
			t.Errorf("%v, want no such hold", err)
		}
		if err := holds.Remove("nowhere"); !errors.Is(err, control.ErrNoHold) {
			t.Errorf("%v, want no such hold", err)
		}
		holds.Set("here", control.Hold{At: beforeClaim, First: 7, Count: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if held, err := holds.Await(ctx, "here", 1); len(held) > 0 || err != nil {
			t.Errorf("%v, %v, want none", held, err)
		}
		removed := make(chan struct{})
		go func() {
			defer close(removed)
			holds.Await(t.Context(), "here", 1)
		}()
		synctest.Wait()
		holds.Close()
		<-removed
	})
}

func TestHoldAfterAPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds := new(control.Holds)
		point := control.Point{Phase: tap.Read, After: true}
		if point.String() != "after read" {
			t.Errorf("String of the point is %q", point)
		}
		holds.Set("here", control.Hold{At: point, First: 7, Count: 1})
		var sent drivers
		if err := <-grabOf(t.Context(), holds, 7, 1, tap.Read, &sent); err != nil {
			t.Error(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			holds.PhaseEnded(tap.Read, 7, 1)
		}()
		if held, err := holds.Await(t.Context(), "here", 1); err != nil || len(held) != 1 {
			t.Errorf("Await returned %v, %v", held, err)
		}
		holds.Close()
		<-ended
	})
}

// errNoScript is the reply of a Redis server that does not know a script. A client then sends the whole
// script.
var errNoScript = errors.New("NOSCRIPT No matching script")

// sends makes a call in the background, and repeats it as long as the answer is errNoScript. The
// returned channel gets the result, and applied counts how many times the call was sent.
func sends(ctx context.Context, h *control.Holds, op tap.Op, answers []error, applied *int) <-chan error {
	ended := make(chan error, 1)
	go func() {
		var err error
		for _, answer := range answers {
			err = h.Do(ctx, op, func(ctx context.Context) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				*applied++
				return answer
			})
			if !errors.Is(err, errNoScript) {
				break
			}
		}
		ended <- err
	}()
	return ended
}

func acquiring(driver int64) tap.Op {
	return tap.Op{Order: 7, Driver: driver, Phase: tap.Acquire, Target: "redis"}
}

func callOf(op tap.Op, n int) control.Call {
	return control.Call{Order: 7, Driver: op.Driver, Phase: op.Phase, N: n, Target: op.Target}
}

var once = []error{nil}

func TestReleaseByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h control.Holds
		h.Set("replay", control.Hold{First: 7, Count: 1, Drivers: []int64{2, 1}})
		var applied int
		for _, op := range []tap.Op{acquiring(3), {Order: 8, Driver: 1, Phase: tap.Acquire, Target: "redis"}, {Target: "redis"}} {
			if err := <-sends(t.Context(), &h, op, once, &applied); err != nil {
				t.Errorf("%+v: %v, want it to pass", op, err)
			}
		}
		first := sends(t.Context(), &h, acquiring(1), once, &applied)
		synctest.Wait()
		second := sends(t.Context(), &h, acquiring(1), once, &applied)
		synctest.Wait()
		third := sends(t.Context(), &h, tap.Op{Order: 7, Driver: 2, Phase: tap.Renew, Target: "redis"}, once, &applied)
		synctest.Wait()
		names := heldOf(t, &h, control.Waiting)
		renewal := control.Call{Order: 7, Driver: 2, Phase: tap.Renew, N: 1, Target: "redis"}
		if want := []control.Call{callOf(acquiring(1), 1), callOf(acquiring(1), 2), renewal}; !slices.Equal(names, want) || applied != 3 {
			t.Errorf("held %v, %d sent; want %v, 3", names, applied, want)
		}
		if _, err := h.Release(t.Context(), "replay", callOf(acquiring(1), 3), control.Delivered); !errors.Is(err, control.ErrNotHeld) {
			t.Errorf("a call that is not there: %v", err)
		}
		for _, c := range []control.Call{callOf(acquiring(1), 2), renewal} {
			if answer, err := h.Release(t.Context(), "replay", c, control.Delivered); answer != nil || err != nil {
				t.Errorf("Release(%v): %v, %v", c, answer, err)
			}
		}
		<-second
		<-third
		if err := h.Remove("replay"); err != nil {
			t.Error(err)
		}
		if err := <-first; err != nil || applied != 6 {
			t.Errorf("%v and %d sent after it was removed, want all 6", err, applied)
		}
	})
}

func TestOutcomes(t *testing.T) {
	refused := errors.New("refused by the server")
	for _, tt := range []struct {
		name    string
		as      control.Outcome
		answers []error
		applied int
		answer  error // the answer that Release returns
		told    error // the error that the client gets
	}{
		{"it is delivered", control.Delivered, []error{refused}, 1, refused, refused},
		{"a script that the server does not know is one call", control.Delivered, []error{errNoScript, nil}, 2, nil, nil},
		{"its reply is lost", control.ReplyLost, once, 1, nil, control.ErrReplyLost},
		{"it is refused", control.Refused, once, 0, control.ErrRefused, control.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h control.Holds
				h.Set("replay", control.Hold{First: 7, Count: 1, Drivers: []int64{1}})
				var applied int
				ended := sends(t.Context(), &h, acquiring(1), tt.answers, &applied)
				synctest.Wait()
				answer, err := h.Release(t.Context(), "replay", callOf(acquiring(1), 1), tt.as)
				if err != nil || answer != tt.answer {
					t.Errorf("answered %v, %v, want %v", answer, err, tt.answer)
				}
				if err := <-ended; !errors.Is(err, tt.told) || applied != tt.applied {
					t.Errorf("told %v with %d sent, want %v with %d", err, applied, tt.told, tt.applied)
				}
			})
		})
	}
}

func TestDelayAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h control.Holds
		h.Set("replay", control.Hold{First: 7, Count: 1, Drivers: []int64{1}})
		var applied int
		ended := sends(t.Context(), &h, acquiring(1), once, &applied)
		synctest.Wait()
		if _, err := h.Release(t.Context(), "replay", callOf(acquiring(1), 1), control.ReplyDelayed); err != nil || applied != 1 {
			t.Fatalf("%v with %d sent", err, applied)
		}
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("told %v before its release", err)
		default:
		}
		if _, err := h.Release(t.Context(), "replay", callOf(acquiring(1), 1), control.Delivered); !errors.Is(err, control.ErrNotHeld) {
			t.Errorf("a call that was sent: %v", err)
		}
		if _, err := h.Release(t.Context(), "replay", callOf(acquiring(1), 1), control.ReplyDelivered); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the released call returned %v", err)
		}
	})
}

// TestHeldCallsAndContexts checks that a held call ends at its deadline. If the client disconnects, only
// a call to the database must end. A command to another server must stay, as if it were already sent.
func TestHeldCallsAndContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h control.Holds
		h.Set("replay", control.Hold{First: 7, Count: 1, Drivers: []int64{1}})
		var applied int
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-sends(short, &h, acquiring(1), once, &applied); !errors.Is(err, control.ErrExpired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("past its deadline: %v", err)
		}
		if expired := heldOf(t, &h, control.Expired); !slices.Equal(expired, []control.Call{callOf(acquiring(1), 1)}) {
			t.Errorf("the expired calls are %v", expired)
		}
		gone, hangUp := context.WithCancel(t.Context())
		reading := tap.Op{Order: 7, Driver: 1, Phase: tap.Read, Target: tap.DB}
		read := sends(gone, &h, reading, once, &applied)
		acquire := sends(gone, &h, acquiring(1), once, &applied)
		synctest.Wait()
		hangUp()
		if err := <-read; !errors.Is(err, context.Canceled) {
			t.Errorf("a read whose client has hung up: %v", err)
		}
		synctest.Wait()
		if left := heldOf(t, &h, control.Waiting); !slices.Equal(left, []control.Call{callOf(acquiring(1), 2)}) {
			t.Errorf("held %+v, want the acquire", left)
		}
		if all, err := h.Await(t.Context(), "replay", 0); err != nil || !all[1].Cancelled || !all[2].Cancelled {
			t.Errorf("%+v, %v, want the last two cancelled", all, err)
		}
		if _, err := h.Release(t.Context(), "replay", callOf(acquiring(1), 2), control.Delivered); err != nil {
			t.Error(err)
		}
		if err := <-acquire; err != nil || applied != 1 {
			t.Errorf("%v with %d sent, want it sent", err, applied)
		}
	})
}

// heldOf returns the calls of the hold named replay that are in a state.
func heldOf(t *testing.T, h *control.Holds, state control.State) (calls []control.Call) {
	t.Helper()
	held, err := h.Await(t.Context(), "replay", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range held {
		if c.State == state {
			calls = append(calls, c.Call)
		}
	}
	return calls
}

// TestDriversAtDifferentPoints stops one driver after its reply, although its script was sent twice, and
// another driver before its second call. A third hold must list the calls of both, but stop none.
func TestDriversAtDifferentPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h control.Holds
		h.Set("replay", control.Hold{First: 7, Count: 1, Drivers: []int64{1, 2}, Outcome: control.Delivered})
		h.Set("first", control.Hold{First: 7, Count: 1, Drivers: []int64{1}, At: control.Point{Phase: tap.Acquire, N: 1, After: true}})
		h.Set("second", control.Hold{First: 7, Count: 1, Drivers: []int64{2}, At: control.Point{Phase: tap.Acquire, N: 2}})
		var applied int
		first := sends(t.Context(), &h, acquiring(1), []error{errNoScript, nil}, &applied)
		synctest.Wait()
		if err := <-sends(t.Context(), &h, acquiring(2), once, &applied); err != nil {
			t.Error(err)
		}
		second := sends(t.Context(), &h, acquiring(2), once, &applied)
		for name, want := range map[string]control.Held{
			"first":  {Call: callOf(acquiring(1), 1), State: control.Replied},
			"second": {Call: callOf(acquiring(2), 2), State: control.Waiting},
		} {
			if held, err := h.Await(t.Context(), name, 1); err != nil || !slices.Equal(held, []control.Held{want}) {
				t.Errorf("%s: held %v, %v, want %v", name, held, err, want)
			}
		}
		if listed, err := h.Await(t.Context(), "replay", 3); err != nil || len(listed) != 3 || applied != 3 {
			t.Errorf("listed %v, %v with %d sent, want 3 calls", listed, err, applied)
		}
		h.Close()
		if err := <-first; !errors.Is(err, control.ErrRefused) {
			t.Errorf("first: %v", err)
		}
		if err := <-second; !errors.Is(err, control.ErrRefused) || applied != 3 {
			t.Errorf("second: %v with %d sent", err, applied)
		}
	})
}
