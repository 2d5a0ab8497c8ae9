package catalog_test

import (
	"slices"
	"testing"

	"grablab/internal/catalog"
)

// TestNamesAreUnique checks that no name, old or current, stands for two things.
func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	add := func(name, about string, aliases []string) {
		t.Helper()
		if name == "" || about == "" {
			t.Errorf("name or description is empty: %q: %q", name, about)
		}
		for _, n := range append([]string{name}, aliases...) {
			if seen[n] {
				t.Errorf("%q stands for two things", n)
			}
			seen[n] = true
		}
	}
	for _, p := range catalog.Properties {
		add(p.Name, p.About, p.Aliases)
	}
	for _, f := range catalog.Faults {
		add(string(f.Name), f.About, f.Aliases)
	}
	for _, m := range catalog.Modes {
		add(m.ID, m.Name, nil)
		if m.Cure == "" || m.In == "" || m.Steps == "" || m.ShownBy == "" {
			t.Errorf("a field of this failure mode is empty: %+v", m)
		}
	}
}

func TestFindProperty(t *testing.T) {
	for _, tt := range []struct {
		name, want string
	}{
		{"one-winner", catalog.OneWinner},
		{"no-oversell", catalog.OneWinner},
		{"live-overlap", catalog.LeaseExclusive},
		{"holders-apart", catalog.HoldersExclusive},
		{"effects-apart", catalog.WritesExclusive},
		{"late-holder", catalog.WriteAfterExpiry},
		{"no-stale-write", catalog.StaleWrite},
		{"fence-monotone", catalog.FenceMonotone},
		{"nothing-stuck", catalog.StuckOrder},
		{"progress", catalog.NoLostWakeup},
		{"prompt-release", catalog.ReleaseEffective},
		{"left-over", catalog.NoResidue},
		{"told", catalog.LossNotified},
	} {
		if p, ok := catalog.FindProperty(tt.name); !ok || p.Name != tt.want {
			t.Errorf("FindProperty(%s): got %q, %v", tt.name, p.Name, ok)
		}
	}
	if p, ok := catalog.FindProperty("nonsense"); ok || p.Name != "" {
		t.Errorf("nonsense: got %q, %v", p.Name, ok)
	}
}

func TestFindFault(t *testing.T) {
	for _, tt := range []struct {
		name string
		want catalog.Fault
	}{
		{"slow", catalog.Slow},
		{"expiry", catalog.Slow},
		{"restart", catalog.RedisRestart},
		{"down", catalog.RedisDown},
		{"late-reply", catalog.Latency},
		{"lost-reply", catalog.ReplyLost},
	} {
		if f, ok := catalog.FindFault(tt.name); !ok || f.Name != tt.want {
			t.Errorf("FindFault(%s): got %q, %v", tt.name, f.Name, ok)
		}
	}
	if f, ok := catalog.FindFault("expire"); ok {
		t.Errorf("FindFault(expire): got %q", f.Name)
	}
}

func TestPrograms(t *testing.T) {
	if run := catalog.FaultsBy(catalog.Run); len(run) < 20 || run[0] != catalog.NoFault {
		t.Errorf("run can inject %v", run)
	}
	if explored := catalog.FaultsBy(catalog.Explore); len(explored) < 15 || slices.Contains(explored, catalog.NoFault) {
		t.Errorf("explore can inject %v", explored)
	}
	if explored := catalog.PropertiesBy(catalog.Explore); len(explored) != 15 || slices.Contains(explored, catalog.Survives) {
		t.Errorf("a user can select %v in explore", explored)
	}
	if replayed := catalog.PropertiesBy(catalog.Replay); len(replayed) != 5 {
		t.Errorf("a replay checks %v", replayed)
	}
}

func TestModeOf(t *testing.T) {
	setnx, redlock, miswired := []string{"F11", "F17"}, []string{"F15", "F18", "F19", "F21"}, []string{"F15", "F20"}
	for _, tt := range []struct {
		property string
		shown    catalog.Facts
		known    []string
		want     string
	}{
		{catalog.OneWinner, 0, []string{"F1"}, "F1"},
		{catalog.OneWinner, catalog.LeaseEnded, []string{"F1"}, "F1"},
		{catalog.OneWinner, 0, setnx, ""}, // no fact explains the failure
		{catalog.OneWinner, catalog.Pause.Shows(), setnx, "F11"},
		{catalog.OneWinner, catalog.LeaseEnded | catalog.Died, setnx, "F11"},
		{catalog.OneWinner, catalog.Died, setnx, ""},
		{catalog.HoldersExclusive, catalog.Slow.Shows(), setnx, "F11"},
		{catalog.OneWinner, catalog.Pause.Shows(), []string{"F13", "F15"}, "F11"},
		{catalog.OneWinner, catalog.Partition.Shows(), []string{"F13", "F15"}, "F13"},
		{catalog.OneWinner, catalog.Partition.Shows(), setnx, "F11"},
		{catalog.OneWinner, catalog.CutOff, []string{"F13"}, ""}, // the lease has not ended
		{catalog.OneWinner, catalog.LeaseEnded | catalog.FenceAtWrite, setnx, "F34"},
		{catalog.WriteAfterExpiry, catalog.LeaseEnded | catalog.FenceAtWrite, setnx, "F34"},
		{catalog.OneWinner, catalog.Forgotten | catalog.FenceFell | catalog.FenceAtWrite | catalog.Cancelled, []string{"F34"}, "F27"},
		{catalog.OneWinner, catalog.LeaseEnded | catalog.FreedAnother, []string{"F36"}, "F36"},
		{catalog.OneWinner, catalog.LeaseEnded, []string{"F36"}, "F11"},
		{catalog.OneWinner, catalog.FreedAnother, setnx, "F5"}, // the strategy is not known to have F5, but the facts show it
		{catalog.OneWinner, catalog.Latency.Shows(), []string{"F5", "F12"}, "F12"},
		{catalog.OneWinner, catalog.Latency.Shows(), []string{"F12", "F37"}, "F37"},
		{catalog.HoldersExclusive, catalog.Latency.Shows(), []string{"F12", "F37"}, "F12"},
		{catalog.WriteAfterExpiry, catalog.GrantLate, []string{"F5", "F12"}, "F12"},
		{catalog.OneWinner, catalog.Delayed, []string{"F5", "F12"}, ""}, // the grant was in time
		{catalog.OneWinner, 0, []string{"F31", "F32"}, "F31"},
		{catalog.OneWinner, catalog.LeaseEnded, []string{"F31", "F32"}, "F31"},
		{catalog.StuckOrder, 0, []string{"F31", "F32"}, "F31"},
		{catalog.OneWinner, catalog.DBRestart.Shows(), []string{"F31", "F32"}, "F32"},
		{catalog.LeaseExclusive, catalog.LeaseEnded | catalog.FreedAnother, []string{"F36"}, "F36"},
		{catalog.LeaseExclusive, catalog.FreedAnother, nil, "F5"},
		{catalog.LeaseExclusive, catalog.Died, nil, ""},
		{catalog.LeaseExclusive, catalog.TakenOver, []string{"F7"}, "F7"},
		{catalog.LeaseExclusive, catalog.TakenOver, setnx, ""}, // no clock explains it
		{catalog.LeaseExclusive, catalog.TakenOver | catalog.ClocksApart, nil, "F9"},
		{catalog.LeaseExclusive, catalog.ClocksApart, setnx, ""}, // the lock was not taken over
		{catalog.OneWinner, catalog.NodeClock.Shows(), setnx, "F19"},
		{catalog.OneWinner, catalog.NodeClock.Shows(), []string{"F37"}, "F37"},
		{catalog.OneWinner, catalog.RedisRestart.Shows(), setnx, "F17"},
		{catalog.OneWinner, catalog.RedisRestart.Shows(), redlock, "F18"},
		{catalog.OneWinner, catalog.Amnesia.Shows(), redlock, "F18"},
		{catalog.LeaseExclusive, catalog.Forgotten | catalog.ForgottenTwice, redlock, "F21"},
		{catalog.LeaseExclusive, catalog.RedisRestart.Shows(), miswired, "F20"},
		{catalog.LossNotified, catalog.Forgotten | catalog.ForgottenTwice, []string{"F24"}, "F24"},
		{catalog.StuckOrder, catalog.Hang.Shows(), []string{"F3", "F5", "F15"}, "F15"},
		{catalog.StuckOrder, catalog.Crash.Shows(), []string{"F3", "F5", "F15"}, "F3"},
		{catalog.StuckOrder, catalog.Crash.Shows(), setnx, ""},
		{catalog.OneWinner, catalog.RedisFull.Shows(), setnx, "F38"},
		{catalog.HoldersExclusive, catalog.RedisFull.Shows(), miswired, "F20"},
		{catalog.OneWinner, catalog.FailoverSplit.Shows(), setnx, "F39"},
		{catalog.OneWinner, catalog.FailoverSplit.Shows(), miswired, "F20"},
		{catalog.OneWinner, catalog.FailoverSplit.Shows(), redlock, "F39"},
		{catalog.OneWinner, catalog.SlowDB.Shows(), setnx, "F40"},
		{catalog.OneWinner, catalog.SlowDB.Shows(), []string{"F37"}, "F37"},
		{catalog.OneWinner, catalog.SlowDB.Shows() | catalog.FenceAtWrite, []string{"F34"}, "F34"},
		{catalog.OneWinner, catalog.ReplyLost.Shows(), []string{"F33"}, "F33"},
		{catalog.StuckOrder, catalog.ReplyLost.Shows(), []string{"F3"}, "F25"},
		{catalog.StuckOrder, catalog.Cancel.Shows(), []string{"F14"}, "F14"},
		{catalog.StuckOrder, catalog.Cancel.Shows(), []string{"F3"}, "F22"},
		{catalog.HoldersExclusive, catalog.LateRelease.Shows(), []string{"F35"}, "F35"},
		{catalog.OneWinner, catalog.LateRelease.Shows(), setnx, "F11"},
		{catalog.FenceMonotone, catalog.LeaseEnded, nil, "F26"},
		{catalog.FenceMonotone, catalog.Forgotten | catalog.FenceFell, nil, "F27"},
		{catalog.NoLostWakeup, 0, nil, "F16"},
		{catalog.NoLostWakeup, catalog.Died, nil, ""},
		{catalog.AnswersAgree, catalog.LeaseEnded, setnx, ""},
	} {
		if m, _ := catalog.ModeOf(tt.property, tt.shown, tt.known); m.ID != tt.want {
			t.Errorf("ModeOf(%+v) = %q, want %q", tt, m.ID, tt.want)
		}
	}
}

// TestFaultsAreDescribed checks that every fault has a group and facts, and that every fault of a
// run has a row in claimTable.
func TestFaultsAreDescribed(t *testing.T) {
	for _, f := range catalog.Faults {
		if !slices.Contains(catalog.FaultGroups, f.Group) || f.By == 0 {
			t.Errorf("%s: group %q, programs %b", f.Name, f.Group, f.By)
		}
		if (f.Shows != 0) == (f.Name == catalog.NoFault) {
			t.Errorf("%s shows %b", f.Name, f.Shows)
		}
		if _, ok := catalog.ClaimsOf("setnx")[f.Name]; ok != (f.By&catalog.Run != 0) {
			t.Errorf("%s: row in claimTable: %v, can be injected by run: %v", f.Name, ok, !ok)
		}
	}
}
