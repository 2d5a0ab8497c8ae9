package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/testbed/target"
)

// byHandler answers requests without a network connection, so that tests can use virtual time. If the
// status is 0, it never answers.
type byHandler func(*http.Request) int

func (h byHandler) RoundTrip(r *http.Request) (*http.Response, error) {
	status := h(r)
	if status == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
}

// TestStuckOrders checks that an order counts as stuck if its lock stays for two leases. It must not count
// earlier, because a lock can expire late. Answers for another order must not matter.
func TestStuckOrders(t *testing.T) {
	const lease = time.Second
	after := func(before int, since time.Duration, status int) func(time.Duration) int {
		return func(now time.Duration) int {
			if now < since {
				return before
			}
			return status
		}
	}
	answersFrom := func(since time.Duration, status int) func(time.Duration) int {
		return after(http.StatusLocked, since, status)
	}
	reservedUntil := func(since time.Duration) func(time.Duration) int {
		return after(http.StatusConflict, since, http.StatusOK)
	}
	for _, tt := range []struct {
		name     string
		answer   func(now time.Duration) int
		stuck    bool
		reserved bool
		last     grab.Outcome // the last outcome for order 7
	}{
		{"free at once", answersFrom(0, http.StatusOK), false, false, grab.Grabbed},
		{"taken at once", answersFrom(0, http.StatusConflict), false, false, grab.Taken},
		{"taken, but perhaps reserved", answersFrom(0, http.StatusConflict), false, true, grab.Taken},
		{"reserved for a lease", reservedUntil(lease), false, true, grab.Grabbed},
		{"reserved for 2.5 leases", reservedUntil(lease * 5 / 2), false, true, grab.Taken},
		{"frees itself after a lease", answersFrom(lease, http.StatusOK), false, false, grab.Grabbed},
		{"frees itself after 1.5 leases", answersFrom(lease*3/2, http.StatusOK), false, false, grab.Grabbed},
		{"frees itself after 1.9 leases", answersFrom(lease*19/10, http.StatusConflict), false, false, grab.Taken},
		{"frees itself after 2.5 leases", answersFrom(lease*5/2, http.StatusOK), true, false, grab.Busy},
		{"never", answersFrom(time.Hour, http.StatusOK), true, false, grab.Busy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := newFleet("")
				f.Ours = true
				f.client.Transport = byHandler(func(r *http.Request) int {
					if r.URL.Path == "/orders/8/grab" { // another order, which is free
						return http.StatusOK
					}
					return tt.answer(time.Since(began))
				})
				f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}, {ID: "b", URL: "http://b", fleet: f}}
				var probed atomic.Int32
				stuck, err := f.StuckOrders(t.Context(), 7, 2, lease, func(int64) bool { return tt.reserved }, func(id, _ int64, outcome grab.Outcome) {
					if probed.Add(1); id == 7 && outcome != tt.last {
						t.Errorf("the last answer is %q, want %q", outcome, tt.last)
					}
				})
				if n := probed.Load(); err != nil || n != 2 {
					t.Fatalf("StuckOrders probed %d orders, want 2 (%v)", n, err)
				}
				var want []int64
				if tt.stuck {
					want = []int64{7}
				}
				if !slices.Equal(stuck, want) {
					t.Errorf("stuck are %v, want %v", stuck, want)
				}
				if took := time.Since(began); tt.stuck && took > 2*lease+lease/10 {
					t.Errorf("StuckOrders took %v, want two leases", took)
				}
			})
		})
	}
}

// TestWaitingProbes checks that an order is not stuck if only the test requests extend its lock. In the
// user's service, each attempt of a waiting driver may extend the lock.
func TestWaitingProbes(t *testing.T) {
	const lease = 3 * time.Second
	for _, waits := range []time.Duration{0, lease / 2, 3 * lease} {
		for _, extends := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet("")
				began := time.Now()
				ends := began.Add(lease)
				f.client.Transport = byHandler(func(*http.Request) int {
					if extends && !time.Now().Before(ends) {
						return http.StatusConflict
					}
					time.Sleep(waits)
					ends = time.Now().Add(lease)
					return http.StatusLocked
				})
				f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}, {ID: "b", URL: "http://b", fleet: f}}
				stuck, err := f.StuckOrders(t.Context(), 7, 1, lease, nil, func(int64, int64, grab.Outcome) {})
				if err != nil || (len(stuck) > 0) == extends {
					t.Errorf("drivers wait %v, their attempts extend the lock: %v: stuck are %v, %v", waits, extends, stuck, err)
				}
				if took := time.Since(began); took > 4*lease+2*waits {
					t.Errorf("it took %v, want at most four leases and two requests", took)
				}
			})
		}
	}
}

// TestBlockingProbes probes a service whose requests wait for the lock. An order must not count as stuck if
// its lock expires within the lease. This must also be true for leases longer than a request's timeout.
func TestBlockingProbes(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, callTimeout, 61 * time.Second, 5 * time.Minute} {
		for _, frees := range []time.Duration{lease / 2, lease, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				free := time.Now().Add(frees)
				f := newFleet("")
				f.client.Transport = byHandler(func(r *http.Request) int {
					if r.URL.Path == "/orders/7/grab" {
						select {
						case <-time.After(time.Until(free)):
						case <-r.Context().Done():
							return 0
						}
					}
					return http.StatusOK
				})
				f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}, {ID: "b", URL: "http://b", fleet: f}}
				stuck, err := f.StuckOrders(t.Context(), 7, 2, lease, nil, func(int64, int64, grab.Outcome) {})
				if err != nil || (len(stuck) > 0) != (frees > lease) {
					t.Errorf("lease %v, frees itself after %v: stuck %v, %v", lease, frees, stuck, err)
				}
			})
		}
	}
}

// TestProbesByDefinition answers the probes of a reserved order at random. It compares the result with
// the definition: the probes end with a grab, after two leases, or if no answer was clear for probeGivesUp.
func TestProbesByDefinition(t *testing.T) {
	const lease = 10 * time.Second
	r := rand.New(rand.NewPCG(7, 6))
	for range 300 {
		var answers []int // one for each probe
		for len(answers) < 50 {
			status := []int{http.StatusLocked, http.StatusConflict, http.StatusServiceUnavailable, http.StatusServiceUnavailable}[r.IntN(4)]
			if r.IntN(40) == 0 {
				status = http.StatusOK
			}
			answers = append(answers, slices.Repeat([]int{status}, 1+r.IntN(6))...)
		}
		reserved := r.IntN(2) == 0
		var want grab.Outcome // empty if the probes fail
		heard := time.Duration(0)
		for n, status := range answers {
			now := time.Duration(n) * lease / 20
			over := now >= 2*lease
			switch {
			case status == http.StatusOK:
				want = grab.Grabbed
			case status == http.StatusConflict && (over || !reserved):
				want = grab.Taken
			case status == http.StatusServiceUnavailable && now-heard <= probeGivesUp:
				continue
			case status == http.StatusServiceUnavailable:
			case over:
				want = grab.Busy
			default:
				heard = now
				continue
			}
			break
		}
		synctest.Test(t, func(t *testing.T) {
			f := newFleet("")
			f.Ours = true
			n := -1
			f.client.Transport = byHandler(func(*http.Request) int {
				n++
				return answers[n]
			})
			f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}}
			var got grab.Outcome
			stuck, err := f.StuckOrders(t.Context(), 7, 1, lease, func(int64) bool { return reserved }, func(_, _ int64, outcome grab.Outcome) { got = outcome })
			if (err != nil) != (want == "") || err == nil && got != want || (len(stuck) > 0) != (want == grab.Busy) {
				t.Fatalf("reserved %v, answers %v: %q, stuck %v, %v; want %q", reserved, answers[:n+1], got, stuck, err, want)
			}
		})
	}
}

// TestStuckOrdersUnknown checks that StuckOrders returns an error if every probe fails, because failures
// do not show whether the order is locked.
func TestStuckOrdersUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet("")
		f.client.Transport = byHandler(func(*http.Request) int { return http.StatusServiceUnavailable })
		f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}}
		if stuck, err := f.StuckOrders(t.Context(), 7, 1, time.Second, nil, func(int64, int64, grab.Outcome) {}); err == nil || len(stuck) > 0 {
			t.Errorf("got %v and %v, want an error", stuck, err)
		}
	})
}

// TestSilentOrders tries every combination of answers for three orders. An order without an answer must
// count as stuck, like an order that stays busy. If no order gets an answer, StuckOrders must fail.
func TestSilentOrders(t *testing.T) {
	const orders, lease = 3, time.Second
	const silent, busy, taken, kinds = 0, 1, 2, 3
	for n := range kinds * kinds * kinds {
		kindOf := func(i int) int { return n / []int{1, kinds, kinds * kinds}[i] % kinds }
		var want []int64
		quiet := 0
		for i := range orders {
			if kindOf(i) != taken {
				want = append(want, 7+int64(i))
			}
			if kindOf(i) == silent {
				quiet++
			}
		}
		synctest.Test(t, func(t *testing.T) {
			f := newFleet("")
			f.client.Transport = byHandler(func(r *http.Request) int {
				i, _ := strconv.Atoi(strings.Split(r.URL.Path, "/")[2])
				switch kindOf(i - 7) {
				case silent:
					return 0
				case busy:
					return http.StatusLocked
				default:
					return http.StatusConflict
				}
			})
			f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}, {ID: "b", URL: "http://b", fleet: f}}
			stuck, err := f.StuckOrders(t.Context(), 7, orders, lease, nil, func(int64, int64, grab.Outcome) {})
			slices.Sort(stuck)
			if quiet == orders && (!errors.Is(err, errSilent) || len(stuck) > 0) {
				t.Errorf("no order gets an answer: stuck are %v, %v", stuck, err)
			}
			if quiet < orders && (err != nil || !slices.Equal(stuck, want)) {
				t.Errorf("%d of %d orders get no answer: stuck are %v, %v, want %v", quiet, orders, stuck, err, want)
			}
		})
	}
}

// TestManyStuckOrders checks that StuckOrders returns every locked order, even if there are more orders
// than it probes at once.
func TestManyStuckOrders(t *testing.T) {
	for _, orders := range []int{probesAtOnce, probesAtOnce + 1, 2*probesAtOnce + 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet("")
			f.client.Transport = byHandler(func(*http.Request) int { return http.StatusLocked })
			f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}}
			stuck, err := f.StuckOrders(t.Context(), 7, orders, target.DefaultLease, nil, func(int64, int64, grab.Outcome) {})
			if err != nil || len(stuck) != orders {
				t.Errorf("%d of %d orders are stuck, %v", len(stuck), orders, err)
			}
		})
	}
}

// TestOneSilentInstance tries every combination of answers from two instances, with short and long leases.
// If at least one instance answers, its answers must count. StuckOrders must return an error only if both
// stay silent.
func TestOneSilentInstance(t *testing.T) {
	const silent, busy, taken, grabbed = 0, http.StatusLocked, http.StatusConflict, http.StatusOK
	kinds := []int{silent, busy, taken, grabbed}
	for _, lease := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 30 * time.Second, 2 * time.Minute} {
		for _, a := range kinds {
			for _, b := range kinds {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet("")
					f.client.Transport = byHandler(func(r *http.Request) int { return map[string]int{"a": a, "b": b}[r.URL.Host] })
					f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}, {ID: "b", URL: "http://b", fleet: f}}
					stuck, err := f.StuckOrders(t.Context(), 7, 1, lease, nil, func(int64, int64, grab.Outcome) {})
					answers := []int{a, b}
					wantSilent := a == silent && b == silent
					wantStuck := !wantSilent && !slices.Contains(answers, taken) && !slices.Contains(answers, grabbed)
					if errors.Is(err, errSilent) != wantSilent || (err != nil) != wantSilent || len(stuck) > 0 != wantStuck {
						t.Errorf("lease %v, answers %v: stuck are %v, %v; want it stuck: %v, silent: %v", lease, answers, stuck, err, wantStuck, wantSilent)
					}
				})
			}
		}
	}
}

// TestNoResponse checks that the error of a request names the timeout only if the timeout caused the
// error.
func TestNoResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet("")
		f.client.Transport = byHandler(func(*http.Request) int { return 0 })
		in := &Instance{ID: "a", URL: "http://a", fleet: f}
		if _, _, err := in.Ask(t.Context(), 7, 1); err == nil || !strings.Contains(err.Error(), "no response within 30s") {
			t.Errorf("a request that is never answered: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := in.Ask(ctx, 7, 1); err == nil || strings.Contains(err.Error(), "no response within") {
			t.Errorf("the caller gave up after a second: %v", err)
		}
	})
}

// TestProbeDrivers checks that no probe driver is used twice, because a service may record the driver of a
// failed request. The drivers must come from the range that the user chose. If all probes fail, the error
// must name a driver and the flags that can help.
func TestProbeDrivers(t *testing.T) {
	for _, chosen := range []int64{0, 501} {
		for _, fails := range []int{0, 1, 5, math.MaxInt} {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet("")
				f.Shape, f.probes, f.Foreign = target.Plain, cmp.Or(chosen, f.probes), true
				var mu sync.Mutex
				tries := map[string]int{}
				seen := map[string]bool{}
				f.client.Transport = byHandler(func(r *http.Request) int {
					body, _ := io.ReadAll(r.Body)
					var ask struct {
						Driver int64 `json:"driver_id"`
					}
					if err := json.Unmarshal(body, &ask); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, key := range []string{fmt.Sprint("driver ", ask.Driver), r.URL.Path + string(body)} {
						if seen[key] {
							t.Errorf("%s came twice", key)
						}
						seen[key] = true
					}
					if !f.IsProbe(ask.Driver) || ask.Driver < cmp.Or(chosen, history.ProbeDriver) {
						t.Errorf("driver %d is not a probe", ask.Driver)
					}
					if tries[r.URL.Path]++; tries[r.URL.Path] <= fails {
						return http.StatusInternalServerError
					}
					return http.StatusConflict
				})
				f.Instances = []*Instance{{ID: "a", URL: "http://a", fleet: f}, {ID: "b", URL: "http://b", fleet: f}}
				_, err := f.StuckOrders(t.Context(), 7, 3, time.Second, nil, func(int64, int64, grab.Outcome) {})
				if fails < math.MaxInt && err != nil {
					t.Error(err)
				}
				if fails == math.MaxInt && (err == nil || !strings.Contains(err.Error(), "by driver ") || !strings.Contains(err.Error(), "-busy") || !strings.Contains(err.Error(), "-probe-drivers")) {
					t.Errorf("%v; want the driver and the flags", err)
				}
			})
		}
	}
}
