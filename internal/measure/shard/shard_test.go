package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack/stacktest"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestMergeIsTheWholeLoad splits random plans over shards whose clocks differ. The merge must
// return every response of the whole plan, with its times converted to the database's clock.
func TestMergeIsTheWholeLoad(t *testing.T) {
	began := time.Date(2026, 11, 20, 21, 30, 0, 0, time.UTC)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		orders, drivers, count := 1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(4)
		cfg := load.Config{Rate: 100, Together: seed%2 == 0}
		newPlan := func() *load.Plan {
			return load.NewPlan([]string{"http://a", "http://b"}, 7, orders, drivers, seed)
		}
		want := map[string]int{}
		name := func(sent, due time.Time) string { return fmt.Sprint(sent.Sub(began), due.Sub(began)) }
		var parts []Part
		for i := range count {
			ahead := time.Duration(r.IntN(2000)-1000) * time.Millisecond
			delay := time.Duration(r.IntN(3)) * time.Second // how much later the shard begins
			p := Part{Record{i, count, began.Add(delay + ahead), float64(ahead.Milliseconds())}, filepath.Join(t.TempDir(), "answers")}
			plan := newPlan()
			plan.Split(load.Share{Index: i, Count: count})
			var file bytes.Buffer
			encode := vegeta.NewEncoder(&file)
			for n := range plan.Requests() {
				due := plan.Due(cfg, uint64(n))
				sent := began.Add(delay + due + time.Millisecond)
				want[name(sent, began.Add(delay+due))]++
				if err := encode(&vegeta.Result{Seq: uint64(n), Timestamp: sent.Add(ahead)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(p.Answers, file.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
		}
		m := New(count, parts, nil)
		got := map[string]int{}
		first := began.Add(time.Hour)
		for _, p := range parts {
			if at := p.BeganAt.Add(-time.Duration(p.ClockMS) * time.Millisecond); at.Before(first) {
				first = at
			}
		}
		collect := func(r *vegeta.Result, due time.Time) error {
			got[name(r.Timestamp, due)]++
			return nil
		}
		opened := stacktest.OpenFiles(t)
		if err := m.Replay(cfg, newPlan, collect); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, %d shards: %v, %v, want %v", seed, count, err, got, want)
		}
		if len(m.Lost) > 0 || !m.Began().Equal(first) {
			t.Errorf("seed %d: lost %v, began %s, want %s", seed, m.Lost, m.Began(), first)
		}

		// Replay must return an error for a part that ends early, a missing file, and a callback
		// that fails.
		whole, err := os.ReadFile(parts[0].Answers)
		if err != nil {
			t.Fatal(err)
		}
		failed := errors.New("failed")
		if err := m.Replay(cfg, newPlan, func(*vegeta.Result, time.Time) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("seed %d: got error %v, want the callback's error", seed, err)
		}
		if len(whole) > 0 {
			err := errors.Join(os.WriteFile(parts[0].Answers, nil, 0o600), m.Replay(cfg, newPlan, collect))
			if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "the file contains only 0 of") {
				t.Errorf("seed %d: an empty file: %v", seed, err)
			}
		}
		os.Remove(parts[count-1].Answers)
		if err := m.Replay(cfg, newPlan, collect); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("seed %d: a missing file: %v", seed, err)
		}
		if now := stacktest.OpenFiles(t); now != opened {
			t.Fatalf("seed %d: %d files are open before Replay, and %d after it has returned", seed, opened, now)
		}
	}
}

// TestLostShares merges every subset of three shards. The merge must list each missing shard, with
// its reason if one is known.
func TestLostShares(t *testing.T) {
	const count = 3
	for set := range 1 << count {
		var parts []Part
		var want []string
		lost := map[int]string{}
		for i := range count {
			switch {
			case set>>i&1 == 0:
				parts = append(parts, Part{Record: Record{Index: i, Count: count}})
			case i%2 == 0:
				lost[i] = "its machine has died"
				want = append(want, fmt.Sprintf("shard %d of 3: its machine has died", i))
			default:
				want = append(want, fmt.Sprintf("shard %d of 3: none of the folders contains the result of this shard", i))
			}
		}
		if m := New(count, parts, lost); !slices.Equal(m.Lost, want) || m.Count != count {
			t.Errorf("of %d: lost %q, want %q", m.Count, m.Lost, want)
		}
	}
}

func TestClocksApart(t *testing.T) {
	for _, tt := range []struct {
		clocks []float64
		apart  float64
		known  bool
	}{
		{[]float64{5}, 0, true}, {[]float64{0, 1000}, 1000, true}, {[]float64{1000.5, 0}, 1000.5, false},
		{[]float64{-600, 0, 600}, 1200, false}, {[]float64{600, -600, 0}, 1200, false},
	} {
		var parts []Part
		for i, ms := range tt.clocks {
			parts = append(parts, Part{Record: Record{Index: i, ClockMS: ms}})
		}
		m := New(len(parts), parts, nil)
		if m.ClocksApartMS != tt.apart || (m.Apart() == "") != tt.known {
			t.Errorf("%v: %v apart, %q", tt.clocks, m.ClocksApartMS, m.Apart())
		}
	}
}

// TestParse checks that Parse accepts a share if and only if its index is smaller than its count
// and the count is allowed. It must also reject malformed text.
func TestParse(t *testing.T) {
	for i := -1; i <= maxCount+1; i++ {
		for _, n := range []int{-1, 0, 1, 2, maxCount, maxCount + 1} {
			got, err := Parse(fmt.Sprintf("%d/%d", i, n))
			valid := 0 <= i && i < n && n <= maxCount
			if want := (load.Share{Index: i, Count: n}); (err == nil) != valid || valid && got != want {
				t.Errorf("Parse(%d/%d): %+v, %v", i, n, got, err)
			}
		}
	}
	for _, text := range []string{"", "/", "1", "0/", "/2", "a/2", "0/b", "0/2/3"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q): %+v", text, got)
		}
	}
}

func TestFromEnv(t *testing.T) {
	for _, tt := range []struct{ index, shards, want string }{{"0", "2", "0/2"}, {"", "2", ""}, {"0", "", ""}, {"", "", ""}} {
		env := map[string]string{"JOB_COMPLETION_INDEX": tt.index, "GRABLAB_SHARDS": tt.shards}
		if got := FromEnv(func(name string) string { return env[name] }); got != tt.want {
			t.Errorf("%q of %q: %q, want %q", tt.index, tt.shards, got, tt.want)
		}
	}
}

func TestParseStart(t *testing.T) {
	if at, err := ParseStart("2026-11-20T21:30:00Z"); err != nil || at.Unix() != time.Date(2026, 11, 20, 21, 30, 0, 0, time.UTC).Unix() {
		t.Errorf("ParseStart: %s, %v", at, err)
	}
	if _, err := ParseStart("21:30"); err == nil || !strings.Contains(err.Error(), "such as 2026-") {
		t.Errorf("ParseStart: %v", err)
	}
}
