package load

import (
	"errors"
	"reflect"
	"testing"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

func drain(p *Plan) []Request {
	var all []Request
	for s, ok := p.take(); ok; s, ok = p.take() {
		all = append(all, s)
	}
	return all
}

func TestPlanSendsEveryDriverAtEveryOrderBackToBack(t *testing.T) {
	targets := []string{"http://a", "http://b"}
	requests := drain(NewPlan(targets, 101, 7, 4, 1))
	if len(requests) != 28 {
		t.Fatalf("%d requests, want 28", len(requests))
	}
	seen := map[[2]int64]bool{}
	for i, s := range requests {
		if s.Target != targets[i%2] {
			t.Errorf("request %d goes to %s", i, s.Target)
		}
		if s.Order != requests[i/4*4].Order {
			t.Errorf("request %d: order %d stands among the drivers of order %d", i, s.Order, requests[i/4*4].Order)
		}
		if s.Order < 101 || s.Order > 107 || s.Driver < 1 || s.Driver > 4 {
			t.Errorf("request %d: order %d, driver %d", i, s.Order, s.Driver)
		}
		seen[[2]int64{s.Order, s.Driver}] = true
	}
	if len(seen) != 28 {
		t.Errorf("%d different pairs of order and driver, want 28", len(seen))
	}
}

func TestSeedDecidesThePlan(t *testing.T) {
	plan := func(seed uint64) []Request { return drain(NewPlan([]string{"http://a"}, 1, 50, 20, seed)) }
	if !reflect.DeepEqual(plan(7), plan(7)) {
		t.Error("the same seed gave two plans")
	}
	if reflect.DeepEqual(plan(7), plan(8)) {
		t.Error("two seeds gave one plan")
	}
}

func TestRequestSurvivesTheURL(t *testing.T) {
	p := NewPlan([]string{"http://127.0.0.1:8004"}, 12, 1, 1, 1)
	var target vegeta.Target
	if err := targeter(p)(&target); err != nil {
		t.Fatal(err)
	}
	got, err := ParseRequest(target.URL)
	if want := (Request{"http://127.0.0.1:8004", 12, 1}); err != nil || got != want {
		t.Errorf("ParseRequest(%q) = %v, %v; want %v", target.URL, got, err, want)
	}
	if err := targeter(p)(&target); !errors.Is(err, vegeta.ErrNoTargets) {
		t.Errorf("an empty plan answers %v", err)
	}
	for _, url := range []string{"", "http://a/orders/1/grab", "http://a/orders/x/grab#1", "http://a/orders/1/grab#"} {
		if _, err := ParseRequest(url); err == nil {
			t.Errorf("ParseRequest(%q) accepts", url)
		}
	}
}
