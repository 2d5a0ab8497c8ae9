package explore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
)

// TestKnownMistake checks that a search reports a mistake that is already known, both in this process and in
// child processes.
func TestKnownMistake(t *testing.T) {
	for name, command := range map[string][]string{"in the bubble": nil, "in a child process": explore.ChildCommand(t)} {
		t.Run(name, func(t *testing.T) {
			cfg := explore.Config{Strategies: []string{"watchdog"}, Mistake: "x", Command: command}
			results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := results[0]
			if r.Verdict != catalog.Unsafe || len(r.Failures) != 1 || r.Failures[0].Property != catalog.AnswersAgree || r.Failures[0].Why != "x" {
				t.Errorf("%s, %+v, want a violation of answers-agree because of x", r.Verdict, r.Failures)
			}
		})
	}
}

// TestWrongGuard checks that the first search of a portfolio reports a mistake of the guard, and that a replay of
// its schedule shows the mistake again.
func TestWrongGuard(t *testing.T) {
	explore.WrongGuard(t, "the guard is wrong")
	results, err := explore.SearchPortfolio(t.Context(), bubbleOf(t), portfolioOf(1, "watchdog"), nil)
	if err != nil {
		t.Fatal(err)
	}
	shows := func(r explore.Result) bool {
		return len(r.Failures) == 1 && r.Failures[0].Property == catalog.AnswersAgree && r.Failures[0].Why == "the guard is wrong"
	}
	if !shows(results[0]) {
		t.Fatalf("the search found %+v", results[0].Failures)
	}
	for name, command := range map[string][]string{"in the bubble": nil, "in a child process": explore.ChildCommand(t)} {
		r, err := explore.ReplayBy(t.Context(), bubbleOf(t), command, results[0].Failures[0].Schedule, "")
		if err != nil || !shows(r) {
			t.Errorf("the replay %s found %+v, %v", name, r.Failures, err)
		}
	}
}

// neverReleases is a lease whose release always fails.
type neverReleases struct{ lock.Lease }

func (neverReleases) Release(context.Context) error { return errors.New("no") }

// A releaser is a locker whose leases cannot be released.
type releaser struct{ lock.Locker }

func (r releaser) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	l, err := r.Locker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return neverReleases{l}, nil
}

// TestMistakeOfOtherProperty checks that a search without answers-agree does not ignore a known mistake. It must
// not call the strategy safe.
func TestMistakeOfOtherProperty(t *testing.T) {
	s, err := lock.Find("watchdog")
	if err != nil {
		t.Fatal(err)
	}
	right := s.New
	s.Name = "never-releases"
	s.New = func(env lock.Env) (lock.Locker, error) {
		l, err := right(env)
		return releaser{l}, err
	}
	for name, c := range map[string]struct {
		cfg  explore.Config
		want string
	}{
		"of the guard":   {explore.Config{Strategies: []string{"watchdog"}, Mistake: "x", Command: explore.ChildCommand(t)}, "x"},
		"of the release": {explore.Config{Strategies: []string{s.Name}, Own: []lock.Strategy{s}}, "does not release its lock"},
	} {
		c.cfg.Properties = []string{catalog.OneWinner}
		results, err := explore.Search(t.Context(), bubbleOf(t), c.cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; r.Verdict != catalog.Unknown || r.Complete || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s: %s because %q, want unknown because of %q", name, r.Verdict, r.Reason, c.want)
		}
		c.cfg.Properties = nil
		results, err = explore.Search(t.Context(), bubbleOf(t), c.cfg, nil)
		if err != nil || results[0].Verdict != catalog.Unsafe {
			t.Errorf("%s, with all properties: %+v, %v, want unsafe", name, results, err)
		}
	}
}
