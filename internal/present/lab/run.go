package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// run sends requests for new orders until the user calls stop, which waits for requests in flight.
// In each round, it injects the selected fault into an instance while a driver holds the lock.
func (l *Lab) run(s Settings) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	sending, endSending := context.WithCancel(ctx)
	rate := s.Rate
	if s.Slow {
		rate /= slowFactor
	}
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		for seed := uint64(1); sending.Err() == nil; seed++ {
			id, err := l.fleet.Create(ctx, ordersAtOnce, s.units())
			if err != nil {
				l.state.fail(ctx, "cannot open orders: "+err.Error())
				if !wait.For(ctx, time.Second) {
					return
				}
				continue
			}
			l.state.open(id, ordersAtOnce)
			plan := load.NewPlan(l.fleet.URLs(), id, ordersAtOnce, s.drivers(), seed)
			forget := context.AfterFunc(sending, plan.End)
			sent := make(chan struct{})
			var striking sync.WaitGroup
			striking.Go(func() {
				if err := l.strike(ctx, s, plan.Order(2*int(seed%3)), sent); err != nil {
					l.state.fail(ctx, fmt.Sprintf("the fault %s could not be injected: %v", s.Fault, err))
				}
			})
			err = load.Attack(ctx, plan, load.Config{
				Orders: ordersAtOnce, Drivers: s.drivers(), Rate: rate, Timeout: grabTimeout, MaxWorkers: maxConcurrent,
			}, l.state.recordAnswer)
			forget()
			close(sent)
			striking.Wait()
			if err != nil {
				l.state.fail(ctx, err.Error())
				continue
			}
			l.lookAtLedger(ctx)
		}
	})
	return func() {
		endSending()
		time.AfterFunc(2*(setupOf(s).Wait+setupOf(s).TTL), cancel) // until then, grabs in flight have time to end
		running.Wait()
	}
}

// beforeClaim is the point just before a driver writes to the database.
var beforeClaim = control.Point{Phase: tap.Claim, N: 1}

// strike waits until a driver at the first instance is about to write, and then injects the fault.
// The fault lasts long enough for another driver to get the lock. If no driver reaches its write,
// strike does nothing.
func (l *Lab) strike(ctx context.Context, s Settings, id int64, sent <-chan struct{}) (err error) {
	if s.Fault == catalog.NoFault {
		return nil
	}
	const name = "lab"
	in, lease := l.fleet.Instances[0], setupOf(s).TTL
	f, err := fault.Find(s.Fault)
	if err != nil {
		return err
	}
	strategy, err := lock.Find(s.Strategy)
	if err != nil {
		return err
	}
	prepared, err := f.Prepare(ctx, fault.Target{Stack: l.stack, Strategy: strategy, Affected: in, Contender: l.fleet.Instances[1]})
	if err != nil {
		return err
	}
	if prepared.Close != nil {
		defer func() { err = errors.Join(err, prepared.Close(context.WithoutCancel(ctx))) }()
	}
	if err := in.SetHold(ctx, name, control.Hold{First: id, Count: 1, At: beforeClaim, Strike: true}); err != nil {
		return err
	}
	defer func() {
		if f.Course == fault.Killed {
			return // the process was killed, and the pause ended with it
		}
		if gone := in.RemoveHold(context.WithoutCancel(ctx), name); gone != nil && err == nil && ctx.Err() == nil {
			err = gone
		}
	}()
	held, err := awaitHeld(ctx, in, name, sent)
	if err != nil || len(held) == 0 {
		return err
	}
	l.state.setStrike(fmt.Sprintf("%s strikes driver %d of order %d at instance %s, which is about to write", s.Fault, held[0].Driver, id, in.ID), id)
	defer l.state.endStrike()
	if do := prepared.Strikes[0].Do; do != nil {
		heal, failed := do(ctx, lease)
		if heal != nil {
			defer func() { err = errors.Join(err, heal()) }()
		}
		if failed != nil {
			return failed
		}
	}
	if f.Course != fault.Killed {
		wait.For(ctx, lease*3/2)
	}
	return nil
}

// awaitHeld waits until a driver reaches the hold, and returns its call. It returns none if all
// requests were sent and no driver has come, because the other instance has taken the order.
func awaitHeld(ctx context.Context, in *fleet.Instance, name string, sent <-chan struct{}) (held []control.Held, err error) {
	for over := false; !over && err == nil && len(held) == 0; {
		over = wait.IsOver(sent)
		held, err = in.Held(ctx, name, 1, time.Second)
	}
	return held, err
}

// outcomeOf returns the kind of response, such as "grabbed" or "taken".
func outcomeOf(r *vegeta.Result) string {
	if r.Code == 0 {
		return string(grab.Failed)
	}
	return string(target.Own.Meaning(int(r.Code), nil, r.Body).Outcome)
}

// Hand is a user action in the "By hand" part of the page, such as opening an order.
type Hand struct {
	Do  string `json:"do"`  // "order", "grab" or "write"
	Who string `json:"who"` // "a" or "b"
}

// handDrivers maps each driver that the user controls to the index of its instance.
var handDrivers = map[string]int{"a": 0, "b": 1}

func handHold(who string) string { return "hand-" + who }

// ByHand performs a user action. A request for an order pauses before its write until the user lets
// it continue.
func (l *Lab) ByHand(ctx context.Context, h Hand) error {
	n, known := handDrivers[h.Who]
	l.op.Lock()
	defer l.op.Unlock()
	switch {
	case l.fleet == nil:
		return fmt.Errorf("%w: the servers are still starting: try again in a few seconds", errBad)
	case h.Do == "order":
		if err := l.releaseHand(ctx); err != nil {
			return err
		}
		id, err := l.fleet.Create(ctx, 1, 1)
		if err != nil {
			return err
		}
		l.hand = id
		l.state.openByHand(id)
		return nil
	case !known:
		return fmt.Errorf("%w: there is no such driver: use a or b", errBad)
	case l.hand == 0:
		return fmt.Errorf("%w: no order is open: open one first", errBad)
	}
	in, driver := l.fleet.Instances[n], int64(handDriver+n)
	switch h.Do {
	case "grab":
		if !l.state.startGrab(h.Who) {
			return fmt.Errorf("%w: driver %s is still waiting for the answer to its last grab", errBad, h.Who)
		}
		hold := control.Hold{First: l.hand, Count: 1, Drivers: []int64{driver}, At: beforeClaim}
		if err := in.SetHold(ctx, handHold(h.Who), hold); err != nil {
			l.state.setAnswer(l.hand, h.Who, err.Error())
			return err
		}
		order, url := l.hand, in.URL
		l.inHand.Go(func() { l.state.setAnswer(order, h.Who, grabByHand(url, order, driver)) })
		return nil
	case "write":
		return in.RemoveHold(ctx, handHold(h.Who))
	default:
		return fmt.Errorf("%w: there is no action %.20q: use order, grab or write", errBad, h.Do)
	}
}

// handAnswers contains the page's texts about the user's failed requests. All other answers are
// single words, which texts.json translates.
var handAnswers = map[string]string{
	"error stale":      "refused: the database has seen a newer fencing token",
	"error lease_lost": "gave up: it learned that its lease was lost",
	"error dependency": "failed: a server that the strategy needs failed or did not answer",
	"timeout unknown":  "not known: no answer to the write arrived",
	"timeout deadline": "gave up: its deadline passed",
}

var handClient = &http.Client{Timeout: grabTimeout}

// grabByHand requests an order for a driver that the user controls. It returns the response, or a
// text that explains why there is none.
func grabByHand(url string, id, driver int64) string {
	var a struct{ Outcome, Reason string }
	path, body, _ := target.Own.Request(id, driver)
	resp, err := handClient.Post(url+string(path), "application/json", bytes.NewReader(body))
	if err == nil {
		defer resp.Body.Close()
		err = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&a)
	}
	if err != nil {
		return "no answer: " + err.Error()
	}
	answer := strings.TrimSpace(a.Outcome + " " + a.Reason)
	return cmp.Or(handAnswers[answer], answer)
}

// releaseHand resumes the requests that the user has paused, and forgets their order.
func (l *Lab) releaseHand(ctx context.Context) error {
	for who, n := range handDrivers {
		if l.hand == 0 || n >= len(l.fleet.Instances) {
			continue
		}
		err := l.fleet.Instances[n].RemoveHold(ctx, handHold(who))
		if _, gone := errors.AsType[*fleet.StatusError](err); err != nil && !gone && ctx.Err() == nil {
			return err
		}
	}
	l.hand = 0
	return nil
}
