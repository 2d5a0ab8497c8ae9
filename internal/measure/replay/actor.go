package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
)

// actor is a driver of the schedule. It sends its request to a real instance.
type actor struct {
	schedule.Actor
	in            *fleet.Instance
	driver        int64
	begun         bool
	dead, stopped bool
	asked         time.Duration // when its last call to get or renew a lease was released (CLOCK_MONOTONIC)
	hangUp        context.CancelFunc
	ended         chan struct{} // closed when the request has ended, with or without an answer
	answer        string        // valid once ended is closed
}

func (p *actor) hasEnded() bool { return p.dead || wait.IsOver(p.ended) }

// actors lists the actors of an attempt, in the order of the schedule.
type actors []*actor

// assign returns the schedule's actors, with their instances and driver IDs. Actors for the same
// driver share an ID.
func (r *replayer) assign() (all actors) {
	for i, a := range r.Schedule.Actors {
		p := &actor{Actor: a, in: r.fleet.Instances[a.Instance-1], driver: int64(i) + 1, ended: make(chan struct{})}
		if same := all.named(a.As); same != nil {
			p.driver = same.driver
		}
		all = append(all, p)
	}
	return all
}

// named returns the actor with this name, or nil if there is none.
func (as actors) named(name string) *actor {
	return catalog.First(as, func(p *actor) bool { return p.Actor.Name == name })
}

// on returns the actors at instance n.
func (as actors) on(n int) actors {
	return catalog.Filter(as, func(p *actor) bool { return p.Instance == n })
}

// who returns the actor for this driver at this instance, or nil if there is none.
func (as actors) who(driver int64, instance string) *actor {
	return catalog.First(as, func(p *actor) bool { return p.driver == driver && p.in.ID == instance })
}

// winners returns the names of the actors with a ledger row, in row order.
func (as actors) winners(rows []order.Grab) string {
	return catalog.Join(rows, " and ", func(g order.Grab) string {
		if p := as.who(g.Driver, g.Instance); p != nil {
			return p.Actor.Name
		}
		return fmt.Sprintf("driver %d", g.Driver)
	})
}

// ask sends the request and returns a text that describes the answer.
func ask(req *http.Request) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "no answer: " + fleet.OneLine(err.Error())
	}
	defer resp.Body.Close()
	var answer grab.Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "no whole answer: " + fleet.OneLine(err.Error())
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, answer.Outcome)
}
