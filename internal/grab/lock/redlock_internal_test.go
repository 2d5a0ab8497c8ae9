package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
)

func redlockOf(t *testing.T, nodes int) *redlockLocker {
	t.Helper()
	env := Env{TTL: time.Hour, Token: func() string { return "token" }, Rand: func() float64 { return 0.5 }}
	for range nodes {
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), Protocol: 2})
		t.Cleanup(func() { _ = client.Close() })
		env.Redlock = append(env.Redlock, client)
	}
	l, err := newRedlock(env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*redlockLocker)
}

// TestQuestion checks when a question ends. If decide is false, any quorum of answers is enough. If
// decide is true, a question ends with a quorum of yes answers, or once no such quorum is possible.
func TestQuestion(t *testing.T) {
	for _, c := range []struct {
		nodes   int
		decide  bool
		answers string
		after   int // the number of answers that end the question; 0 if these do not
	}{
		{3, false, "nn", 2},
		{3, false, "yn", 2},
		{3, false, "y", 0},
		{3, true, "yy", 2},
		{3, true, "yny", 3},
		{3, true, "nn", 2},
		{3, true, "yn", 0},
		{4, true, "yyy", 3},
		{4, true, "nn", 2},
		{4, true, "yny", 0},
		{5, false, "ynn", 3},
		{5, true, "nynyy", 5},
		{5, true, "nnn", 3},
		{5, true, "nynn", 4},
	} {
		q, after := redlockOf(t, c.nodes).question(c.decide), 0
		for i, answer := range c.answers {
			q.answered(answer == 'y')
			select {
			case <-q.enough:
				after = i + 1
			default:
				continue
			}
			break
		}
		if after != c.after {
			t.Errorf("%d nodes, decide %v: %s is enough after %d answers, want %d", c.nodes, c.decide, c.answers, after, c.after)
		}
	}
}

// TestRefusedNodeAnswersNo checks that a node that has another client's lock counts as a no without being asked. A
// release or an extension then ends as soon as the other nodes are not a quorum.
func TestRefusedNodeAnswersNo(t *testing.T) {
	for nodes := redlockMin; nodes <= 7; nodes++ {
		l := redlockOf(t, nodes)
		q := l.question(true)
		for refused := 1; refused <= nodes; refused++ {
			reply, err := redlockConn{node: &redlockNode{eval: q, refused: true}}.Eval(nil)
			if reply != int64(0) || err != nil {
				t.Errorf("Eval: %v, %v; want 0", reply, err)
			}
			ended := false
			select {
			case <-q.enough:
				ended = true
			default:
			}
			if want := nodes-refused < l.quorum; ended != want {
				t.Errorf("%d of %d nodes refuse: ended is %v, want %v", refused, nodes, ended, want)
			}
		}
	}
}

// TestRedlockOutcome checks that a lease counts as lost once so many nodes lack its key that the other
// nodes are not a majority. A silent node does not count as lacking the key.
func TestRedlockOutcome(t *testing.T) {
	for nodes := redlockMin; nodes <= 7; nodes++ {
		l := redlockOf(t, nodes)
		for foreign := range nodes + 1 {
			for silent := range nodes + 1 - foreign {
				var errs []error
				for range foreign {
					errs = append(errs, &redsync.ErrNodeTaken{})
				}
				for range silent {
					errs = append(errs, &redsync.RedisError{Err: errSilent})
				}
				majority := func(without int) bool { return 2*(nodes-without) > nodes }
				got := l.outcome(false, errors.Join(errs...))
				if lost := !majority(foreign); errors.Is(got, ErrLost) != lost {
					t.Errorf("of %d nodes, %d lack the key and %d are silent: %v, want it lost: %v", nodes, foreign, silent, got, lost)
				}
				if noQuorum := foreign == 0 && !majority(silent); errors.Is(got, errNoQuorum) != noQuorum {
					t.Errorf("of %d nodes, %d lack the key and %d are silent: %v, want no quorum: %v", nodes, foreign, silent, got, noQuorum)
				}
			}
		}
	}
}

// TestRedlockCountsFromTheRequest checks that the TTL counts from before the request, minus the
// clock drift, both for an acquire and for an extension.
func TestRedlockCountsFromTheRequest(t *testing.T) {
	l := redlockOf(t, 3)
	const most = time.Hour - time.Hour/100
	check := func(what string, began, end time.Time) {
		t.Helper()
		if took := time.Since(began); end.After(began.Add(most+took)) || end.Before(began.Add(most)) {
			t.Errorf("%s: the lease lives for %v, want %v", what, end.Sub(began), most)
		}
	}
	began := time.Now()
	taken, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	lease := taken.(*redlockLease)
	check("taken", began, lease.end)
	began = time.Now()
	end, err := lease.extend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check("extended", began, end)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
