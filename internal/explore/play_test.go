package explore

import (
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/schedule"
)

func testSetting(t testing.TB, name string) setting {
	st, err := lock.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return setting{strategy: st, guard: st.Guard, onLost: "abort", ttl: 3 * time.Second,
		actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}}}
}

func TestPlay(t *testing.T) {
	for _, name := range []string{"none", "mutex", "setnx", "watchdog", "redlock", "setnx-getset", "handoff", "mysql-forupdate", "mysql-getlock", "mysql-cas", "setnx-watch"} {
		t.Run(name, func(t *testing.T) {
			set := testSetting(t, name)
			s, err := newStage(set.strategy.Needs, 2)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				if err := s.learn(set); err != nil {
					t.Fatal(err)
				}
			})
			t.Logf("tells %v renews %v baseline %v", s.tells, s.renews, s.baseline)
			for range 3 {
				synctest.Test(t, func(t *testing.T) {
					p, err := s.play(set, &limits{preemptions: 2, faults: 1, kinds: map[string]bool{Expiry: true}}, nil, cost{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					t.Log(p.steps, p.broken, p.cut, p.wrong, p.points[len(p.points)-1].state)
				})
			}
		})
	}
}
