package explore_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
)

var update = flag.Bool("update", false, "replace golden schedules if a search finds schedules of another length, and the digests of the random walks")

// golden compares a schedule that a search has found with the stored one. If there are
// several shortest schedules, any of them passes.
func golden(t *testing.T, id string, f explore.Failure) {
	t.Helper()
	path := filepath.Join("testdata", id+".txt")
	if kept, err := os.ReadFile(path); err == nil {
		s, err := schedule.Parse(string(kept))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Steps) == len(f.Schedule.Steps) && s.Property == f.Property && s.Mode == f.Mode && s.Strategy == f.Schedule.Strategy {
			return
		}
	}
	if !*update {
		t.Errorf("%s breaks %s in %d steps, which differs from %s:\n%s", f.Schedule.Strategy, f.Property, len(f.Schedule.Steps), path, f.Schedule)
		return
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "# %s\n%s", f.Why, f.Schedule), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGoldenSchedules checks that every stored schedule breaks its property with its last
// step, and not earlier.
func TestGoldenSchedules(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d schedules, %v", len(paths), err)
	}
	paths = append(paths, "testdata/renamed/F5.txt") // uses the old name of a property
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, r := replayFile(t, path)
			property, _ := catalog.FindProperty(s.Property)
			s.Property = property.Name
			i := slices.IndexFunc(r.Failures, func(f explore.Failure) bool { return f.Property == s.Property })
			if i < 0 {
				t.Fatalf("it breaks %d properties, but not %s", len(r.Failures), s.Property)
			}
			broken := slices.IndexFunc(r.Failures[i].Moments, func(m explore.Moment) bool { return m.Broken })
			if broken < len(s.Steps)-1 {
				t.Errorf("%s is broken by step %d of %d", s.Property, broken+1, len(s.Steps))
			}
			if s.Mode == "F3" || s.Mode == "F4" { // in these modes, the dead driver's key never expires
				for j, m := range r.Failures[i].Moments {
					if want := j >= slices.IndexFunc(s.Steps, func(s schedule.Step) bool { return s.Kind == schedule.Dies }); slices.Equal(m.Kept, []string{"A"}) != want {
						t.Errorf("at step %d: the dead actors whose locks are still stored are %q, want A if it has died", j+1, m.Kept)
					}
				}
			}
			if r.Expected != r.Verdict {
				t.Errorf("the verdict is %s, want %s", r.Verdict, r.Expected)
			}
			if r.Failures[i].Mode != s.Mode {
				t.Errorf("the failure mode is %q, want %q", r.Failures[i].Mode, s.Mode)
			}
		})
	}
}

// replayFile replays the schedule in a file with its own strategy.
func replayFile(t *testing.T, path string) (schedule.Schedule, explore.Result) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schedule.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := explore.Replay(t.Context(), bubbleOf(t), s, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}
