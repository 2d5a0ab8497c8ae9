package catalog_test

import (
	"slices"
	"testing"

	"grablab/internal/catalog"
)

// Every name, old ones included, stands for one thing.
func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	add := func(name, about string, aliases []string) {
		t.Helper()
		if name == "" || about == "" {
			t.Errorf("%q: %q", name, about)
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
			t.Errorf("%+v", m)
		}
	}
}

func TestFindProperty(t *testing.T) {
	for _, tt := range []struct {
		name, want, note string
	}{
		{"one-winner", catalog.OneWinner, ""},
		{"live-overlap", catalog.LeaseExclusive, "live-overlap is now called lease-exclusive"},
		{"holders-apart", catalog.HoldersExclusive, "holders-apart is now called holders-exclusive"},
		{"effects-apart", catalog.WritesExclusive, "effects-apart is now called writes-exclusive"},
		{"late-holder", catalog.WriteAfterExpiry, "late-holder is now called write-after-expiry"},
		{"no-stale-write", catalog.StaleWrite, "no-stale-write is now called stale-write"},
		{"fence-monotone", catalog.FenceMonotone, "fence-monotone is now called fence"},
		{"nothing-stuck", catalog.StuckOrder, "nothing-stuck is now called stuck"},
		{"progress", catalog.NoLostWakeup, "progress is now called no-lost-wakeup"},
		{"prompt-release", catalog.ReleaseEffective, "prompt-release is now called release-effective"},
		{"left-over", catalog.NoResidue, "left-over is now called no-residue"},
		{"told", catalog.LossNotified, "told is now called loss-notified"},
	} {
		if p, note, ok := catalog.FindProperty(tt.name); !ok || p.Name != tt.want || note != tt.note {
			t.Errorf("%s: got %q, %q, %v", tt.name, p.Name, note, ok)
		}
	}
	if p, note, ok := catalog.FindProperty("nonsense"); ok || p.Name != "" || note != "" {
		t.Errorf("nonsense: got %q, %q, %v", p.Name, note, ok)
	}
}

func TestFindFault(t *testing.T) {
	for _, tt := range []struct {
		name string
		want catalog.Fault
		note string
	}{
		{"slow", catalog.Slow, ""},
		{"expiry", catalog.Slow, "expiry is now called slow"},
		{"restart", catalog.RedisRestart, "restart is now called redis-restart"},
		{"down", catalog.RedisDown, "down is now called redis-down"},
		{"late-reply", catalog.Latency, "late-reply is now called latency"},
		{"lost-reply", catalog.ReplyLost, "lost-reply is now called reply-lost"},
	} {
		if f, note, ok := catalog.FindFault(tt.name); !ok || f.Name != tt.want || note != tt.note {
			t.Errorf("%s: got %q, %q, %v", tt.name, f.Name, note, ok)
		}
	}
	if f, _, ok := catalog.FindFault("expire"); ok {
		t.Errorf("got %q", f.Name)
	}
}

func TestPrograms(t *testing.T) {
	if run := catalog.FaultsBy(catalog.Run); len(run) != 23 || run[0] != catalog.NoFault {
		t.Errorf("run plays %v", run)
	}
	if explored := catalog.FaultsBy(catalog.Explore); len(explored) != 10 || slices.Contains(explored, catalog.NoFault) {
		t.Errorf("explore plays %v", explored)
	}
	if explored := catalog.PropertiesBy(catalog.Explore); len(explored) != 10 || slices.Contains(explored, catalog.Survives) {
		t.Errorf("explore can be asked for %v", explored)
	}
	if replayed := catalog.PropertiesBy(catalog.Replay); len(replayed) != 6 {
		t.Errorf("a replay checks %v", replayed)
	}
}

func TestModeOf(t *testing.T) {
	type facts = catalog.Facts
	setnx, redlock, miswired := []string{"F11", "F17"}, []string{"F15", "F18", "F19", "F21"}, []string{"F15", "F20"}
	for _, tt := range []struct {
		facts
		want string
	}{
		{facts{Property: catalog.OneWinner, Known: []string{"F1"}}, "F1"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Pause, Known: []string{"F1"}}, "F1"},
		{facts{Property: catalog.OneWinner, Known: setnx}, ""}, // nothing explains that
		{facts{Property: catalog.OneWinner, Fault: catalog.Pause, Known: setnx}, "F11"},
		{facts{Property: catalog.HoldersExclusive, Fault: catalog.Slow, Known: setnx}, "F11"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Pause, Known: []string{"F13", "F15"}}, "F11"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Partition, Known: []string{"F13", "F15"}}, "F13"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Pause, Known: setnx, FenceWrite: true}, "F34"},
		{facts{Property: catalog.WriteAfterExpiry, Fault: catalog.Pause, Known: setnx, FenceWrite: true}, "F34"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Slow, Known: []string{"F36"}, FreedAnother: true}, "F36"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Slow, Known: []string{"F36"}}, "F11"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Slow, Known: setnx, FreedAnother: true}, "F11"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Latency, Known: []string{"F5", "F12"}}, "F12"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Latency, Known: []string{"F12", "F37"}}, "F37"},
		{facts{Property: catalog.HoldersExclusive, Fault: catalog.Latency, Known: []string{"F12", "F37"}}, "F12"},
		{facts{Property: catalog.WriteAfterExpiry, Fault: catalog.Latency, Known: []string{"F5", "F12"}}, "F12"},
		{facts{Property: catalog.OneWinner, Known: []string{"F31", "F32"}}, "F31"},
		{facts{Property: catalog.OneWinner, Fault: catalog.Pause, Known: []string{"F31", "F32"}}, "F31"},
		{facts{Property: catalog.StuckOrder, Known: []string{"F31", "F32"}}, "F31"},
		{facts{Property: catalog.OneWinner, Fault: catalog.DBRestart, Known: []string{"F31", "F32"}}, "F32"},
		{facts{Property: catalog.LeaseExclusive, Fault: catalog.Slow, Known: []string{"F36"}}, "F36"},
		{facts{Property: catalog.LeaseExclusive, Fault: catalog.Slow}, "F5"},
		{facts{Property: catalog.OneWinner, Fault: catalog.NodeClock, Known: setnx}, "F19"},
		{facts{Property: catalog.OneWinner, Fault: catalog.NodeClock, Known: []string{"F37"}}, "F37"},
		{facts{Property: catalog.OneWinner, Fault: catalog.RedisRestart, Known: setnx}, "F17"},
		{facts{Property: catalog.OneWinner, Fault: catalog.RedisRestart, Known: redlock}, "F18"},
		{facts{Property: catalog.LeaseExclusive, Fault: catalog.RedisRestart, Repeated: true, Known: redlock}, "F21"},
		{facts{Property: catalog.LeaseExclusive, Fault: catalog.RedisRestart, Known: miswired}, "F20"},
		{facts{Property: catalog.LossNotified, Fault: catalog.RedisRestart, Repeated: true, Known: []string{"F24"}}, "F24"},
		{facts{Property: catalog.StuckOrder, Fault: catalog.Hang, Known: []string{"F3", "F5", "F15"}}, "F15"},
		{facts{Property: catalog.StuckOrder, Fault: catalog.Crash, Known: []string{"F3", "F5", "F15"}}, "F3"},
		{facts{Property: catalog.StuckOrder, Fault: catalog.Crash, Known: setnx}, ""},
		{facts{Property: catalog.OneWinner, Fault: catalog.RedisFull, Known: setnx}, "F38"},
		{facts{Property: catalog.HoldersExclusive, Fault: catalog.RedisFull, Known: miswired}, "F20"},
		{facts{Property: catalog.OneWinner, Fault: catalog.FailoverSplit, Known: setnx}, "F39"},
		{facts{Property: catalog.OneWinner, Fault: catalog.FailoverSplit, Known: miswired}, "F20"},
		{facts{Property: catalog.OneWinner, Fault: catalog.SlowDB, Known: setnx}, "F40"},
		{facts{Property: catalog.OneWinner, Fault: catalog.SlowDB, Known: []string{"F37"}}, "F37"},
		{facts{Property: catalog.OneWinner, Fault: catalog.SlowDB, Known: []string{"F34"}, FenceWrite: true}, "F34"},
		{facts{Property: catalog.OneWinner, Fault: catalog.ReplyLost, Known: []string{"F33"}}, "F33"},
		{facts{Property: catalog.StuckOrder, Fault: catalog.ReplyLost, Known: []string{"F3"}}, "F25"},
		{facts{Property: catalog.StuckOrder, Fault: catalog.Cancel, Known: []string{"F14"}}, "F14"},
		{facts{Property: catalog.StuckOrder, Fault: catalog.Cancel, Known: []string{"F3"}}, "F22"},
		{facts{Property: catalog.HoldersExclusive, Fault: catalog.LateRelease, Known: []string{"F35"}}, "F35"},
		{facts{Property: catalog.OneWinner, Fault: catalog.LateRelease, Known: setnx}, "F11"},
		{facts{Property: catalog.NoLostWakeup}, "F16"},
		{facts{Property: catalog.NoLostWakeup, Fault: catalog.Crash}, ""},
		{facts{Property: catalog.AnswersAgree, Fault: catalog.Pause, Known: setnx}, ""},
	} {
		if m, _ := catalog.ModeOf(tt.facts); m.ID != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.facts, m.ID, tt.want)
		}
	}
}
