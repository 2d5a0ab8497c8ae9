package tap_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/tap"
)

// errNoScript is what go-redis answers a script with that it then sends whole.
var errNoScript = errors.New("NOSCRIPT No matching script")

// sends makes a call through the gate, and says on the channel what it came to.
// applied counts those that were sent.
func sends(ctx context.Context, g *tap.Gate, op tap.Op, answers []error, applied *int) <-chan error {
	ended := make(chan error, 1)
	go func() {
		var err error
		for _, answer := range answers { // as a client sends again
			err = g.Send(ctx, op, func(ctx context.Context) error {
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
	return tap.Op{Order: 7, Driver: driver, Phase: tap.Acquire, Target: "redis", Keys: []string{"grab:{7}"}}
}

func callOf(op tap.Op, n int) tap.Call {
	return tap.Call{Driver: op.Driver, Phase: op.Phase, N: n, Target: op.Target}
}

var once = []error{nil}

func TestGateLetsCallsGoByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g tap.Gate
		g.Shut(tap.Hold{Order: 7, Drivers: []int64{1, 2}, Background: 2})
		var applied int
		for _, op := range []tap.Op{acquiring(3), {Order: 8, Driver: 1, Phase: tap.Acquire, Target: "redis"}, {Keys: []string{"grab:{70}"}}} {
			if err := <-sends(t.Context(), &g, op, once, &applied); err != nil {
				t.Errorf("%+v: %v, want it to pass", op, err)
			}
		}
		first := sends(t.Context(), &g, acquiring(1), once, &applied)
		synctest.Wait()
		second := sends(t.Context(), &g, acquiring(1), once, &applied)
		synctest.Wait()
		batch := sends(t.Context(), &g, tap.Op{Target: "redis", Keys: []string{"grab:{7}"}}, once, &applied)
		synctest.Wait()
		var names []tap.Call
		line, _ := g.Stand()
		for _, s := range line {
			names = append(names, s.Call)
		}
		renewal := tap.Call{Driver: 2, Phase: tap.Renew, N: 1, Target: "redis"}
		if want := []tap.Call{callOf(acquiring(1), 1), callOf(acquiring(1), 2), renewal}; !slices.Equal(names, want) || applied != 3 {
			t.Errorf("at the gate %v, %d sent; want %v, 3", names, applied, want)
		}
		if _, err := g.Let(t.Context(), callOf(acquiring(1), 3), tap.Goes); !errors.Is(err, tap.ErrNotStanding) {
			t.Errorf("a call that is not there: %v", err)
		}
		for _, c := range []tap.Call{callOf(acquiring(1), 2), renewal} {
			if answer, err := g.Let(t.Context(), c, tap.Goes); answer != nil || err != nil {
				t.Errorf("%v: %v, %v", c, answer, err)
			}
		}
		<-second
		<-batch
		g.Open()
		if err := <-first; err != nil || applied != 6 {
			t.Errorf("%v and %d sent after it was opened, want all 6", err, applied)
		}
	})
}

func TestGateFates(t *testing.T) {
	refused := errors.New("refused by the server")
	for _, tt := range []struct {
		name    string
		fate    tap.Fate
		answers []error
		applied int
		answer  error // that the server gave
		told    error
	}{
		{"goes", tap.Goes, []error{refused}, 1, refused, refused},
		{"a script that the server does not know is one call", tap.Goes, []error{errNoScript, nil}, 2, nil, nil},
		{"its reply is lost", tap.Loses, once, 1, nil, tap.ErrLostReply},
		{"it is given up", tap.GivenUp, once, 0, tap.ErrRefused, tap.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g tap.Gate
				g.Shut(tap.Hold{Order: 7, Drivers: []int64{1}})
				var applied int
				ended := sends(t.Context(), &g, acquiring(1), tt.answers, &applied)
				synctest.Wait()
				answer, err := g.Let(t.Context(), callOf(acquiring(1), 1), tt.fate)
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

func TestGateLetsAReplyLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g tap.Gate
		g.Shut(tap.Hold{Order: 7, Drivers: []int64{1}})
		var applied int
		ended := sends(t.Context(), &g, acquiring(1), once, &applied)
		synctest.Wait()
		if _, err := g.Let(t.Context(), callOf(acquiring(1), 1), tap.Lingers); err != nil || applied != 1 {
			t.Fatalf("%v with %d sent", err, applied)
		}
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("told %v before the word", err)
		default:
		}
		if err := g.LetReply(callOf(acquiring(1), 1)); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("told %v", err)
		}
	})
}

// A deadline takes a call away. A client that hangs up takes back only what goes
// to the database: a command to another server is on its way.
func TestGateAndContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g tap.Gate
		g.Shut(tap.Hold{Order: 7, Drivers: []int64{1}})
		var applied int
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-sends(short, &g, acquiring(1), once, &applied); !errors.Is(err, tap.ErrTooLate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("past its deadline: %v", err)
		}
		if _, late := g.Stand(); !slices.Equal(late, []tap.Call{callOf(acquiring(1), 1)}) {
			t.Errorf("late %v", late)
		}
		gone, hangUp := context.WithCancel(t.Context())
		reading := tap.Op{Order: 7, Driver: 1, Phase: tap.Read, Target: tap.DB}
		read := sends(gone, &g, reading, once, &applied)
		acquire := sends(gone, &g, acquiring(1), once, &applied)
		synctest.Wait()
		hangUp()
		if err := <-read; !errors.Is(err, context.Canceled) {
			t.Errorf("a read whose client has hung up: %v", err)
		}
		synctest.Wait()
		if line, _ := g.Stand(); len(line) != 1 || !line[0].Cancelled {
			t.Errorf("at the gate %+v, want the acquire, cancelled", line)
		}
		if _, err := g.Let(t.Context(), callOf(acquiring(1), 2), tap.Goes); err != nil {
			t.Error(err)
		}
		if err := <-acquire; err != nil || applied != 1 {
			t.Errorf("%v with %d sent, want it sent", err, applied)
		}
	})
}
