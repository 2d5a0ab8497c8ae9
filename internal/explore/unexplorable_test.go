package explore_test

import (
	"errors"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// TestUnexplorable checks the result for a strategy that cannot be explored. If there are other
// strategies, its Result must give the reason. If it is the only one, Search must return an error.
func TestUnexplorable(t *testing.T) {
	cfg := explore.Config{Strategies: []string{"setnx", "etcd"}, Guard: order.Fenced}
	results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d rows, %v", len(results), err)
	}
	if r := results[0]; r.Verdict != catalog.Unknown || !strings.Contains(r.Reason, "setnx has none") {
		t.Errorf("setnx should be unexplorable, but the result is %+v", r)
	}
	if r := results[1]; r.Verdict != catalog.Safe || !r.Complete {
		t.Errorf("etcd should be safe, but the result is %+v", r)
	}
	cfg.Strategies = cfg.Strategies[:1]
	if _, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil); !errors.Is(err, explore.ErrConfig) {
		t.Errorf("as the only strategy: %v", err)
	}
}

// TestUnexplorableUnits checks that a search with several units refuses a guard that can sell only one.
func TestUnexplorableUnits(t *testing.T) {
	cfg := explore.Config{Strategies: []string{"mysql-unique"}, Stock: 2}
	if _, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil); !errors.Is(err, explore.ErrConfig) || !strings.Contains(err.Error(), "cannot sell several units") {
		t.Errorf("two units: %v", err)
	}
	cfg.Stock = 1
	if results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil); err != nil || results[0].Verdict != catalog.Safe {
		t.Errorf("one unit: %+v, %v", results, err)
	}
}

// TestUnexplorableLibrary checks the same as TestUnexplorable for a library that cannot run in virtual
// time. The reason comes from its registry entry.
func TestUnexplorableLibrary(t *testing.T) {
	library := lock.Strategy{Name: "library", Excludes: catalog.Global, Unexplorable: "it has sockets of its own"}
	cfg := explore.Config{Strategies: []string{"setnx", "library"}, Own: []lock.Strategy{library}}
	results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d rows, %v", len(results), err)
	}
	if r := results[1]; r.Verdict != catalog.Unknown || !strings.Contains(r.Reason, library.Unexplorable) {
		t.Errorf("the library should be unexplorable, but the result is %+v", r)
	}
	cfg.Strategies = cfg.Strategies[1:]
	if _, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil); !errors.Is(err, explore.ErrConfig) {
		t.Errorf("as the only strategy: %v", err)
	}
}
