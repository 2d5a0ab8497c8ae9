package lab_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/measure/stat"
	"grablab/internal/present/lab"
)

// TestListenersCost checks that ten clients of the event stream reduce the rate of the instances by less than
// 5 %. It measures the rate alternately with and without them, because other programs slow down the machine
// too.
func TestListenersCost(t *testing.T) {
	if os.Getenv("GRABLAB_PROVE") != "1" {
		t.Skip("this test takes long, so it runs only with GRABLAB_PROVE=1")
	}
	const pairs, slice, listeners = 80, 500 * time.Millisecond, 10
	url := start(t, lab.Config{})
	ticks := stream(t, url+"/api/events")
	ready := await(t, "ready", ticks, isIdle)
	tok := map[string]string{"X-Lab-Token": token(t, url)}
	if status, text := post(t, url+"/api/start", `{"strategy":"setnx","fault":"none","rate":100}`, tok); status != http.StatusOK {
		t.Fatalf("POST /api/start: status %d %s", status, text)
	}
	await(t, "a won order", ticks, func(tick lab.Tick) bool { return tick.Outcomes["grabbed"] > 0 })
	go func() { // read all ticks, so that the server does not close this stream after a slow write
		for range ticks {
		}
	}()

	// rate measures how many answers the instances give per second. Eight clients for each instance grab
	// orders that are already taken, without a pause.
	rate := func() float64 {
		var answered atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), slice)
		defer cancel()
		var asking sync.WaitGroup
		for i := range 16 {
			at := fmt.Sprintf("http://127.0.0.1:%s/orders/%d/grab", ready.Status.Instances[i%2], i/2+1)
			asking.Go(func() {
				for ctx.Err() == nil {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(`{"driver_id":77}`))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Content-Type", "application/json")
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						continue // the time is up
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if resp.StatusCode < http.StatusInternalServerError {
						answered.Add(1)
					}
				}
			})
		}
		asking.Wait()
		return float64(answered.Load()) / slice.Seconds()
	}
	heard := new(atomic.Int64)
	listening := func() float64 {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range listeners {
			all.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/events", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				n, _ := io.Copy(io.Discard, resp.Body)
				heard.Add(n)
			})
		}
		time.Sleep(100 * time.Millisecond) // now all clients listen
		defer all.Wait()
		defer cancel()
		return rate()
	}
	rate() // warm up the connections and caches
	var alone, with []float64
	for n := range pairs {
		if n%2 == 0 {
			alone, with = append(alone, rate()), append(with, listening())
		} else {
			with, alone = append(with, listening()), append(alone, rate())
		}
	}
	ratio := stat.Ratio(with, alone)
	t.Logf("answers a second alone %.3f, with %d listeners %.3f: %.3f of that, over %d pairs of %v; they heard %d kB", stat.Median(alone), listeners, stat.Median(with), ratio, pairs, slice, heard.Load()/1000)
	if heard.Load() == 0 {
		t.Error("the clients received nothing")
	}
	if ratio.Median < 0.95 {
		t.Errorf("ten clients reduce the rate by more than 5 %%: %.3f", ratio)
	}
}
