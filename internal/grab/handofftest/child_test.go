package handoff_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"grablab/handoff"

	"golang.org/x/sys/unix"
)

// childEnv is an environment variable. If it is set, the test binary runs as a child, with the setup in
// the variable.
const childEnv = "HANDOFF_CHILD"

// childSetup contains the Redis address and the TTL of a child's Locker.
type childSetup struct {
	Addr string
	TTL  time.Duration
}

// childOrder is a task for a child.
type childOrder struct {
	Do      string // hold, wait or wave
	Key     string
	Workers int
	Rounds  int // how many times each worker of a wave acquires the lock; 0 means once
}

// childHold describes one lease of a child. The times are from hostClock.
type childHold struct {
	Fence           uint64
	Asked           int64
	Acquired, Freed int64 // Freed is the time just before the release
	Error           string
}

// child is another process that uses the lock.
type child struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
	stdin   *os.File
}

func startChild(tb testing.TB, setup childSetup) *child {
	tb.Helper()
	text, err := json.Marshal(setup)
	if err != nil {
		tb.Fatal(err)
	}
	hear, orders, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	answers, say, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.ExtraFiles = []*os.File{hear, say}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	_, _ = hear.Close(), say.Close()
	c := &child{cmd, json.NewEncoder(orders), json.NewDecoder(answers), orders}
	tb.Cleanup(func() {
		_ = orders.Close()
		_ = cmd.Wait()
		_ = answers.Close()
	})
	return c
}

func (c *child) tell(tb testing.TB, o childOrder) {
	tb.Helper()
	if err := c.orders.Encode(o); err != nil {
		tb.Fatal(err)
	}
}

func (c *child) hear(tb testing.TB) (holds []childHold) {
	tb.Helper()
	if err := c.answers.Decode(&holds); err != nil {
		tb.Fatal(err)
	}
	return holds
}

// kill ends the child like a crash.
func (c *child) kill(tb testing.TB) {
	tb.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
}

// stop sends SIGSTOP to the child, and returns once the child has stopped.
func (c *child) stop(tb testing.TB) {
	tb.Helper()
	if err := c.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(c.cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		tb.Fatalf("the child does not stop: %v, %v", status, err)
	}
}

// TestChild runs the tasks of a child process. It is not a test.
func TestChild(t *testing.T) {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		t.Skip("not a child")
	}
	var setup childSetup
	if err := json.Unmarshal([]byte(text), &setup); err != nil {
		t.Fatal(err)
	}
	orders, answers := json.NewDecoder(os.NewFile(3, "orders")), json.NewEncoder(os.NewFile(4, "answers"))
	l := open(t, setup.Addr, setup.TTL)
	for {
		var o childOrder
		if err := orders.Decode(&o); err != nil {
			return // the parent has gone
		}
		if err := answers.Encode(o.run(l)); err != nil {
			return
		}
	}
}

func (o childOrder) run(l *handoff.Locker) []childHold {
	ctx := context.Background()
	switch o.Do {
	case "hold": // until the process ends
		lease, err := l.Acquire(ctx, o.Key)
		if err != nil {
			return []childHold{{Error: err.Error()}}
		}
		return []childHold{{Fence: lease.Fence(), Acquired: hostClock()}}
	case "wait": // in the background, until the process ends
		for range o.Workers {
			go l.Acquire(ctx, o.Key)
		}
		return []childHold{{}}
	case "wave":
		rounds := max(1, o.Rounds)
		holds := make([]childHold, o.Workers*rounds)
		var workers sync.WaitGroup
		for i := range o.Workers {
			workers.Go(func() {
				for r := range rounds {
					holds[i*rounds+r] = holdOnce(ctx, l, o.Key)
				}
			})
		}
		workers.Wait()
		return holds
	default:
		return []childHold{{Error: fmt.Sprintf("no order %q", o.Do)}}
	}
}

func holdOnce(ctx context.Context, l *handoff.Locker, key string) (h childHold) {
	h.Asked = hostClock()
	lease, err := l.Acquire(ctx, key)
	h.Acquired = hostClock()
	if err != nil {
		h.Error = err.Error()
		return h
	}
	h.Fence = lease.Fence()
	h.Freed = hostClock()
	if err := lease.Release(ctx); err != nil {
		h.Error = "release: " + err.Error()
	}
	return h
}

// hostClock returns the monotonic clock that all processes of the host share, in ns.
func hostClock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
