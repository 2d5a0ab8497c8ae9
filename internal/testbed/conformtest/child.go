package conformtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"

	"go.uber.org/goleak"
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

// A report contains what a child process has observed. The child prints it as JSON, in its last line.
type report struct {
	Held     int    // number of leases that were acquired
	Overlaps int    // number of leases acquired while another worker held the same lock
	HungUp   int    // number of acquires that were cancelled
	Error    string // any error other than ErrBusy
	Leaked   string // stack traces of goroutines that outlived the locker
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
	if err == nil {
		observed := j.run(Subject{Strategy: st, Spec: j.Spec, Open: open})
		fmt.Println() // the lock may have printed the start of a line
		err = json.NewEncoder(os.Stdout).Encode(observed)
	}
	if err != nil {
		panic(err)
	}
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
	reports, errs := make([]report, count), make([]error, count)
	for i := range count {
		children.Go(func() { reports[i], errs[i] = j.inChild(t.ctx) })
	}
	children.Wait()
	t.must("a child", errors.Join(errs...))
	hungUp := 0
	for i, r := range reports {
		hungUp += r.HungUp
		switch {
		case r.Error != "":
			t.fatalf("process %d: %s", i, r.Error)
		case r.Overlaps > 0:
			t.fatalf("process %d: %d of %d leases were valid at the same time as another one", i, r.Overlaps, r.Held)
		case r.Held == 0:
			t.fatalf("process %d never got the lock", i)
		case r.Leaked != "":
			t.fatalf("process %d has goroutines left at the end: %s", i, r.Leaked)
		}
	}
	if hungUp == 0 {
		t.fatalf("no client waited long enough to test a disconnect")
	}
}

func (j job) inChild(ctx context.Context) (r report, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], j.Args...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil { // the testing package prints the reason for a failure to stdout
		return r, fmt.Errorf("%w: %s%s", err, out, stderr.String())
	}
	out = bytes.TrimSpace(out)
	return r, json.Unmarshal(out[bytes.LastIndexByte(out, '\n')+1:], &r)
}

func (j job) run(s Subject) (total report) {
	before := goleak.IgnoreCurrent()
	p, err := s.start(longTTL, slack)
	if err != nil {
		return report{Error: err.Error()}
	}
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
		end     = time.Now().Add(childTime)
	)
	for w := range childWorkers {
		workers.Go(func() {
			for n := w; time.Now().Before(end); n++ {
				r := j.runOnce(p, n)
				mu.Lock()
				total.Held += r.Held
				total.Overlaps += r.Overlaps
				total.HungUp += r.HungUp
				total.Error = cmp.Or(total.Error, r.Error)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if err := p.stop(); err != nil {
		total.Error = cmp.Or(total.Error, err.Error())
	}
	if err := goleak.Find(before); err != nil {
		total.Leaked = err.Error()
	}
	return total
}

// runOnce acquires a lock and releases it. In every fourth call, it cancels the attempt after a
// millisecond, as if the client had disconnected.
func (j job) runOnce(l lock.Locker, n int) (r report) {
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
		return report{}
	case errors.Is(err, context.Canceled):
		return report{HungUp: 1}
	case err != nil:
		return report{Error: err.Error()}
	}
	r.Held = 1
	// Mark the holder with a file, to detect overlaps independently of the lock.
	mark := filepath.Join(j.Dir, fmt.Sprint(key))
	if err := os.Mkdir(mark, 0o700); errors.Is(err, os.ErrExist) {
		r.Overlaps = 1
	} else if err != nil {
		r.Error = err.Error()
	} else {
		time.Sleep(2 * time.Millisecond)
		_ = os.Remove(mark)
	}
	if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
		r.Error = "release: " + err.Error()
	}
	return r
}
