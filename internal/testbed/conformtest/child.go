package conformtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

// childEnv is the environment variable that contains a child process's job.
const childEnv = "GRABLAB_CONFORMTEST_CHILD"

// job tells a child process which locks to acquire. The child uses several goroutines, and cancels
// some attempts to simulate clients that disconnect.
type job struct {
	Strategy, Spec string
	Dir            string // folder in which a worker keeps a file while it holds a lock
	Keys           []string
	Args           []string
}

const (
	childWorkers = 4
	childTime    = 800 * time.Millisecond
)

// counts contains what the workers of a child process have observed.
type counts struct {
	held     atomic.Int32 // number of leases that were acquired
	overlaps atomic.Int32 // number of leases acquired while another worker held the same lock
	hungUp   atomic.Int32 // number of acquires that were cancelled
}

// BeChild must be called at the beginning of TestMain in every package that uses the suite. If the
// suite has started this process as a child, BeChild does the child's work and exits. Otherwise, it
// does nothing, and does not call open or find.
func BeChild(open Opener, find func(name string) (lock.Strategy, error)) {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	var st lock.Strategy
	if err == nil {
		st, err = find(j.Strategy)
	}
	var hungUp int32
	if err == nil {
		hungUp, err = j.run(Subject{Strategy: st, Spec: j.Spec, Open: open})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("\n%d\n", hungUp) // the lock may have printed the start of a line
	os.Exit(0)
}

// processes checks that clients in different processes never hold the same lock at once, and that a
// closed locker leaves no goroutine behind.
func processes(t *trial) {
	dir, err := os.MkdirTemp("", "conformtest")
	t.must("a folder", err)
	t.stop = append(t.stop, func() { _ = os.RemoveAll(dir) })
	t.addKey("another")
	j := job{Strategy: t.Strategy.Name, Spec: t.Spec, Dir: dir, Keys: t.keys, Args: t.Child}
	count := 2
	if t.Strategy.Excludes == catalog.PerProcess {
		count = 1
	}
	var children sync.WaitGroup
	hungUp, errs := make([]int, count), make([]error, count)
	for i := range count {
		children.Go(func() { hungUp[i], errs[i] = j.inChild(t.ctx) })
	}
	children.Wait()
	t.must("a child", errors.Join(errs...))
	if slices.Max(hungUp) == 0 {
		t.fatalf("no client waited long enough to test a disconnect")
	}
}

// inChild runs the job in a child process. It returns how many acquires the child has cancelled.
func (j job) inChild(ctx context.Context) (hungUp int, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], j.Args...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil { // the testing package prints the reason for a failure to stdout
		return 0, fmt.Errorf("%w: %s%s", err, out, stderr.String())
	}
	out = bytes.TrimSpace(out)
	return strconv.Atoi(string(out[bytes.LastIndexByte(out, '\n')+1:]))
}

// run lets several workers use the locks. It returns an error if a lock breaks a promise.
func (j job) run(s Subject) (hungUp int32, err error) {
	before := goleak.IgnoreCurrent()
	p, err := s.start(longTTL, slack)
	if err != nil {
		return 0, err
	}
	var seen counts
	var workers errgroup.Group
	end := time.Now().Add(childTime)
	for w := range childWorkers {
		workers.Go(func() error {
			for n := w; time.Now().Before(end); n++ {
				if err := j.runOnce(p, n, &seen); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := errors.Join(workers.Wait(), p.stop()); err != nil {
		return 0, err
	}
	if n := seen.overlaps.Load(); n > 0 {
		return 0, fmt.Errorf("%d of %d leases were valid at the same time as another one", n, seen.held.Load())
	}
	if seen.held.Load() == 0 {
		return 0, errors.New("the process never got the lock")
	}
	if err := goleak.Find(before); err != nil {
		return 0, fmt.Errorf("the process has goroutines left at the end: %w", err)
	}
	return seen.hungUp.Load(), nil
}

// runOnce acquires a lock and releases it. In every fourth call, it cancels the attempt after a
// millisecond, as if the client had disconnected.
func (j job) runOnce(l lock.Locker, n int, seen *counts) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n%4 == 3 {
		timer := time.AfterFunc(time.Millisecond, cancel)
		defer timer.Stop()
	}
	key := n % len(j.Keys)
	lease, err := l.Acquire(ctx, j.Keys[key])
	switch {
	case errors.Is(err, lock.ErrBusy):
		return nil
	case errors.Is(err, context.Canceled):
		seen.hungUp.Add(1)
		return nil
	case err != nil:
		return err
	}
	seen.held.Add(1)
	// Mark the holder with a file, to detect overlaps independently of the lock.
	mark := filepath.Join(j.Dir, fmt.Sprint(key))
	if err := os.Mkdir(mark, 0o700); errors.Is(err, os.ErrExist) {
		seen.overlaps.Add(1)
	} else if err != nil {
		return err
	} else {
		time.Sleep(2 * time.Millisecond)
		_ = os.Remove(mark)
	}
	if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
