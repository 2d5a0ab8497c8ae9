package outside

import (
	"testing"

	"grablab/locktest"
)

func TestFenced(t *testing.T) {
	locktest.Explore(t, locktest.Bounds{Preemptions: 1, Faults: []string{"slow", "pause", "crash"}, Fenced: true}, fenced)
	locktest.Explore(t, locktest.Bounds{Actors: 3, Preemptions: 2, Faults: []string{"slow"}, Properties: []string{"lease-exclusive"}}, fenced)
}

func TestConform(t *testing.T) {
	locktest.Conform(t, locktest.Claims{Redis: []string{locktest.RedisServer(t)}}, fenced)
}

// The locks in the next three tests are wrong, so these tests must fail.

func TestForever(t *testing.T) {
	locktest.Explore(t, locktest.Bounds{Faults: []string{"crash"}, Fenced: true}, forever)
}

func TestLooks(t *testing.T) {
	t.Run("before it sets", func(t *testing.T) {
		locktest.Explore(t, locktest.Bounds{Preemptions: 2}, looks)
	})
}

func TestBlind(t *testing.T) {
	locktest.Explore(t, locktest.Bounds{Actors: 3, Preemptions: 2, Faults: []string{"slow"}, Properties: []string{"lease-exclusive"}}, blind)
}
