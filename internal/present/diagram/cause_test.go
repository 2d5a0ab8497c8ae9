package diagram_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/present/diagram"
)

// TestCause checks the sentence that explains the cause, for made-up histories.
func TestCause(t *testing.T) {
	without := func(lines []string, parts ...string) (kept []string) {
		for _, l := range lines {
			if !strings.Contains(l, parts[0]) {
				kept = append(kept, l)
			}
		}
		return append(kept, parts[1:]...)
	}
	for _, tt := range []struct {
		name     string
		fault    catalog.Fault
		locks    catalog.Exclusion
		property string
		events   []string
		units    int
		want     string
	}{
		{"a paused holder", catalog.Pause, catalog.Global, catalog.OneWinner, pausedHolder, 0,
			"Driver 1 was paused at 4.00 ms; its lease ran out at 1,002.0 ms; driver 2 got the lock at 1,003.0 ms; driver 2 won at 1,006.0 ms; driver 1 wrote at 1,502.0 ms without noticing."},
		{"without a fault, its own work takes too long", "", catalog.Global, catalog.OneWinner, without(pausedHolder, "strike"), 0,
			"The lease of driver 1 ran out at 1,002.0 ms; driver 2 got the lock at 1,003.0 ms; driver 2 won at 1,006.0 ms; driver 1 wrote at 1,502.0 ms without noticing."},
		{"the database refuses it", catalog.Pause, catalog.Global, "", append(without(pausedHolder, "8004 1 claim"), "8004 1 claim fail 1502 code=stale"), 0,
			"Driver 1 was paused at 4.00 ms; its lease ran out at 1,002.0 ms; driver 2 got the lock at 1,003.0 ms; driver 2 won at 1,006.0 ms; the database refused the write of driver 1 at 1,502.0 ms."},
		{"the database refuses an older token", catalog.Pause, catalog.Global, "", []string{
			"8004 1 acquire ok 0 lease=1s fence=6", "8004 1 claim invoke 3", "8004 1 strike info 4", "8005 2 acquire ok 1001 lease=1s fence=7", "8005 2 claim ok 1003", "8004 1 strike ok 1501", "8004 1 claim fail 1502 code=stale",
		}, 0, "Driver 1 was paused at 4.00 ms; its lease ran out at 1,000.0 ms; driver 2 got the lock with token 7 at 1,001.0 ms; driver 2 won at 1,003.0 ms; the database refused the write of driver 1 with token 6 at 1,502.0 ms."},
		{"it learns of the loss", catalog.Pause, catalog.Global, "", append(without(pausedHolder, "8004 1 claim"), "8004 1 lost info 1501"), 0,
			"Driver 1 was paused at 4.00 ms; its lease ran out at 1,002.0 ms; driver 2 got the lock at 1,003.0 ms; driver 2 won at 1,006.0 ms; driver 1 learned of the loss at 1,501.0 ms and did not write."},
		{"it learns of the loss too late", catalog.Pause, catalog.Global, catalog.OneWinner, []string{
			"8004 1 acquire ok 0 lease=1s", "8004 1 claim invoke 3", "8004 1 strike info 4", "8005 2 acquire ok 1001 lease=1s", "8005 2 claim ok 1003", "8004 1 lost info 1500", "8004 1 strike ok 1501", "8004 1 claim ok 1502",
		}, 0, "Driver 1 was paused at 4.00 ms; its lease ran out at 1,000.0 ms; driver 2 got the lock at 1,001.0 ms; driver 2 won at 1,003.0 ms; driver 1 wrote at 1,502.0 ms as well."},
		{"no lock", "", catalog.NoExclusion, catalog.OneWinner, []string{
			"8004 1 acquire ok 0", "8004 1 read ok 1", "8005 2 acquire ok 1", "8005 2 read ok 2", "8004 1 claim ok 12", "8005 2 claim ok 14",
		}, 0, "Driver 1 read at 1.00 ms that the order was open; driver 2 also read at 2.00 ms that it was open, because neither had written; driver 1 won at 12.0 ms; driver 2 wrote at 14.0 ms as well."},
		{"no lock, and the second reads after the first has won", "", catalog.NoExclusion, catalog.OneWinner, []string{
			"8004 1 acquire ok 0", "8004 1 read ok 1", "8004 1 claim ok 12", "8005 2 acquire ok 12", "8005 2 read ok 13", "8005 2 claim ok 14",
		}, 0, "Driver 1 won at 12.0 ms; driver 2 wrote at 14.0 ms as well."},
		{"a mutex for each process", "", catalog.PerProcess, catalog.OneWinner, []string{
			"8004 1 acquire ok 0 endless", "8005 2 acquire ok 1 endless", "8004 1 read ok 2", "8005 2 read ok 2", "8004 1 claim ok 12", "8004 1 release invoke 13", "8004 1 release ok 14", "8005 2 claim ok 14",
		}, 0, "Driver 2 got a lock of its own at 1.00 ms, while driver 1 was inside with another; driver 1 won at 12.0 ms; driver 2 wrote at 14.0 ms as well."},
		{"a release frees the lock of another", "", catalog.Global, catalog.OneWinner, []string{
			"8004 1 acquire ok 0 lease=100ms", "8005 2 acquire ok 110 lease=100ms", "8005 2 read ok 111", "8004 1 release invoke 120", "8004 1 release ok 121",
			"8004 3 acquire ok 125 lease=100ms", "8004 3 read ok 126", "8004 3 claim ok 130", "8005 2 claim ok 140",
		}, 0, "Driver 1, whose lease had run out, released the lock of driver 2 at 121.0 ms; driver 3 got the lock at 125.0 ms, while driver 2 was still inside; driver 3 won at 130.0 ms; driver 2 wrote at 140.0 ms without noticing."},
		{"a server forgets", catalog.RedisRestart, catalog.Global, catalog.OneWinner, []string{
			"8004 1 acquire ok 0 lease=1s", "8004 1 read ok 1", "8004 1 strike info 2", "8005 2 acquire ok 50 lease=1s", "8005 2 read ok 51", "8005 2 claim ok 55", "8004 1 strike ok 60", "8004 1 claim ok 61",
		}, 0, "The fault redis-restart struck driver 1 at 2.00 ms; driver 2 got the lock at 50.0 ms, while driver 1 was still inside; driver 2 won at 55.0 ms; driver 1 wrote at 61.0 ms without noticing."},
		{"the second came in after the first had left", "", catalog.Global, catalog.OneWinner, []string{
			"8004 1 acquire ok 0 lease=1s", "8004 1 claim ok 2", "8004 1 release invoke 3", "8004 1 release ok 4", "8005 2 acquire ok 5 lease=1s", "8005 2 claim ok 9",
		}, 0, "Driver 1 won at 2.00 ms; driver 2 wrote at 9.00 ms as well."},
		{"one driver twice", "", catalog.Global, catalog.OneWinner, []string{"8004 1 acquire ok 0 lease=1s", "8004 1 claim ok 2", "8004 1 claim ok 5"}, 0,
			"Driver 1 won at 2.00 ms; driver 1 wrote again at 5.00 ms."},
		{"several units", "", catalog.NoExclusion, catalog.OneWinner, []string{
			"8004 1 acquire ok 0", "8004 1 read ok 1", "8005 2 acquire ok 1", "8005 2 read ok 2", "8004 3 acquire ok 3", "8004 3 read ok 4", "8004 1 claim ok 12", "8005 2 claim ok 14", "8004 3 claim ok 16",
		}, 2, "Driver 2 won at 14.0 ms; driver 3 wrote at 16.0 ms as well, although all units were sold."},
		{"a dead driver keeps the lock", catalog.Crash, catalog.Global, catalog.StuckOrder, []string{
			"8004 1 grab invoke 0", "8004 1 acquire invoke 1", "8004 1 acquire ok 2 endless", "8004 1 strike info 3", "8005 2 grab invoke 800", "8005 2 acquire invoke 801", "8005 2 acquire fail 900 code=busy", "8004 5 grab invoke 901 restarted",
		}, 0, "The process of driver 1 died at 3.00 ms; its lock stays, so no other driver can get the order; driver 2 came later and was refused at 900.0 ms."},
		{"a driver hangs, and renews its lock", catalog.Hang, catalog.Global, catalog.StuckOrder, []string{
			"8004 1 acquire ok 0 lease=100ms", "8004 1 strike info 2", "8004 1 renew ok 50 lease=100ms", "8005 2 acquire invoke 60", "8005 2 acquire fail 90 code=busy", "8004 1 renew ok 100 lease=100ms",
		}, 0, "Driver 1 hung at 2.00 ms; its lock stays, so no other driver can get the order; driver 2 came later and was refused at 90.0 ms."},
		{"one driver at two instances", "", catalog.NoExclusion, catalog.OneWinner, []string{
			"8004 1 acquire ok 0", "8004 1 read ok 1", "8005 1 acquire ok 1", "8005 1 read ok 2", "8004 1 claim ok 12", "8005 1 claim ok 14",
		}, 0, "Driver 1 (8004) read at 1.00 ms that the order was open; driver 1 (8005) also read at 2.00 ms that it was open, because neither had written; driver 1 (8004) won at 12.0 ms; driver 1 (8005) wrote at 14.0 ms as well."},
		{"nothing went wrong", "", catalog.Global, "", []string{"8004 1 acquire ok 0 lease=1s", "8004 1 claim ok 2", "8004 1 release invoke 3", "8004 1 release ok 4", "8005 2 acquire ok 5 lease=1s", "8005 2 read fail 6 code=taken"}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := diagram.OfRun(diagram.Run{Fault: tt.fault, Excludes: tt.locks, Outlives: true, Timeline: check.Timeline{Property: tt.property, Events: record(t, tt.events...), Units: tt.units}})
			if d.Cause["en"] != tt.want {
				t.Errorf("cause is %q\nwant %q", d.Cause["en"], tt.want)
			}
			for _, lang := range []string{"zh", "ja"} {
				if text := d.Cause[lang]; tt.want != "" && (text == "" || strings.ContainsAny(text, "{}")) {
					t.Errorf("cause in the language %s: %q", lang, text)
				}
			}
		})
	}
}

// TestCauseIsInTheHistory checks that every double grab in a random history has a cause.
func TestCauseIsInTheHistory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var events []history.Event
		ops := []string{history.Acquire, history.Read, history.Claim, history.Release, history.Strike, history.Lost}
		kinds := []history.Kind{history.Invoke, history.OK, history.OK, history.Fail, history.Info}
		rows := 0
		for i := range 4 + rnd.IntN(20) {
			driver := int64(1 + rnd.IntN(3))
			e := history.Event{Seq: uint64(i), Order: 7, Instance: []string{"8004", "8005"}[driver%2], Driver: driver, Incarnation: 1,
				T: time.Duration(100+i) * time.Millisecond, Op: ops[rnd.IntN(len(ops))], Kind: kinds[rnd.IntN(len(kinds))]}
			if e.Op == history.Acquire && e.Kind == history.OK {
				e.Lease = time.Duration(rnd.IntN(10)) * time.Millisecond
			}
			if e.Op == history.Claim && e.Kind == history.OK {
				rows++
			}
			events = append(events, e)
		}
		d := diagram.OfRun(diagram.Run{Excludes: catalog.Global, Timeline: check.Timeline{Property: catalog.OneWinner, Events: events, Rows: []check.Row{}}})
		if rows > 1 && d.Cause == nil {
			t.Fatalf("%d rows, but no cause: %+v", rows, events)
		}
	}
}
