package stack

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A ruleChange sets the rule of a flow at a certain time.
type ruleChange struct {
	at   time.Duration
	rule rule
}

// passesAt calculates when data must pass a flow. The parameter came is the time when the data arrives,
// and free is the time when the data before it has passed or was dropped. Each rule applies until the
// next change. ok is false if the data is dropped.
func passesAt(changes []ruleChange, came, free time.Duration) (at time.Duration, ok bool) {
	at = max(came, free)
	for i, c := range changes {
		end := time.Duration(1 << 62)
		if i+1 < len(changes) {
			end = changes[i+1].at
		}
		if end <= at {
			continue
		}
		due := max(at, c.at)
		switch {
		case c.rule.drop:
			return due, false
		case c.rule.hold:
			due = end
		default:
			due = max(due, came+c.rule.latency)
		}
		if due < end {
			return due, true
		}
		at = end
	}
	panic("the last rule must let data pass")
}

// TestFlowByDefinition compares a flow with passesAt. It sends data at random times, while the rule
// changes at random times. The data must pass in order, followed by the end of the connection.
func TestFlowByDefinition(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 10))
			ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
			changes := []ruleChange{{}}
			for len(changes) < 5 {
				next := []rule{{}, {drop: true}, {hold: true}, {latency: ms(10)}, {latency: ms(50)}, {latency: ms(400)}}[r.IntN(6)]
				changes = append(changes, ruleChange{changes[len(changes)-1].at + ms(2*(1+r.IntN(40))), next})
			}
			changes = append(changes, ruleChange{ms(1000), rule{}})
			var came []time.Duration // at odd times, because rules change and delays end at even times
			for range 1 + r.IntN(12) {
				came = append(came, ms(1+2*r.IntN(150)))
			}
			slices.Sort(came)
			closes := came[len(came)-1] + ms(2*r.IntN(60))

			var want []string
			free := time.Duration(0)
			for i, at := range came {
				passed, ok := passesAt(changes, at, free)
				if free = passed; ok {
					want = append(want, fmt.Sprintf("%c after %v", 'a'+i, passed))
				}
			}
			ends, _ := passesAt(withoutDrops(changes), closes, free)
			want = append(want, fmt.Sprintf("end after %v", ends))

			began := time.Now()
			var f flow
			var changing sync.WaitGroup
			defer changing.Wait()
			changing.Go(func() {
				for _, c := range changes {
					time.Sleep(time.Until(began.Add(c.at)))
					f.set(c.rule)
				}
			})
			client, from := net.Pipe()
			to, server := net.Pipe()
			go func() {
				for i, at := range came {
					time.Sleep(time.Until(began.Add(at)))
					_, _ = client.Write([]byte{byte('a' + i)})
				}
				time.Sleep(time.Until(began.Add(closes)))
				_ = client.Close()
			}()
			go f.carry(t.Context(), from, to, func(rule, []byte) bool { return false })
			var got []string
			for buf := make([]byte, 1); ; {
				if _, err := io.ReadFull(server, buf); err != nil {
					got = append(got, fmt.Sprintf("end after %v", time.Since(began)))
					break
				}
				got = append(got, fmt.Sprintf("%s after %v", buf, time.Since(began)))
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: the data came after %v, and the rules are %+v:\n%q\nwant\n%q", seed, came, changes, got, want)
			}
		})
	}
}

// withoutDrops returns the changes without the drop rules, because a flow never drops the end of a
// connection.
func withoutDrops(changes []ruleChange) []ruleChange {
	all := slices.Clone(changes)
	for i := range all {
		all[i].rule.drop = false
	}
	return all
}
