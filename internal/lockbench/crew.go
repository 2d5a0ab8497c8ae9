package lockbench

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/stack"
)

const (
	processes   = 2
	joinTimeout = 30 * time.Second
	// ahead is how long before a start it is told: long enough that it has come
	// to all, and that nobody must have been asleep.
	ahead = 2 * time.Millisecond
	// grace is given to a worker process beyond what a job may take.
	grace = 10 * time.Second
)

// workerError says that a worker process is no more, or answers no more.
type workerError struct {
	name, log string
	err       error
}

func (e *workerError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("lockbench: %s: %v\n%s", e.name, e.err, e.log))
}

func (e *workerError) Unwrap() error { return e.err }

// crew is the worker processes.
type crew struct {
	members []*member
	clock   func() time.Duration
}

// member is one of them.
type member struct {
	proc *stack.Process
	conn net.Conn
	in   *gob.Decoder
	out  *gob.Encoder
}

// newCrew starts exe as worker processes over st, and returns once they have
// joined.
func newCrew(ctx context.Context, st *stack.Stack, exe string) (*crew, error) {
	socket := filepath.Join(st.Dir, "bench.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("lockbench: %w", err)
	}
	defer l.Close()
	c := &crew{clock: history.Clock()}
	for i := range processes {
		m, err := join(ctx, st, l, exe, fmt.Sprintf("worker-%d", i+1))
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.members = append(c.members, m)
	}
	return c, nil
}

func join(ctx context.Context, st *stack.Stack, l *net.UnixListener, exe, name string) (*member, error) {
	p, err := st.Spawn(ctx, name, exe, []string{WorkerCommand, l.Addr().String()}, nil)
	if err != nil {
		return nil, err
	}
	_ = l.SetDeadline(time.Now().Add(joinTimeout))
	defer context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Now()) })()
	conn, err := acceptFrom(p, l)
	m := &member{proc: p, conn: conn}
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), m.failed(err))
	}
	m.in, m.out = gob.NewDecoder(conn), gob.NewEncoder(conn)
	if err := m.out.Encode(servers{name, st.Addresses}); err != nil {
		return nil, errors.Join(m.failed(err), conn.Close())
	}
	return m, nil
}

// acceptFrom does not wait for a process that has ended.
func acceptFrom(p *stack.Process, l *net.UnixListener) (net.Conn, error) {
	var watching sync.WaitGroup
	joined := make(chan struct{})
	watching.Go(func() {
		select {
		case <-p.Done():
			_ = l.SetDeadline(time.Now())
		case <-joined:
		}
	})
	defer watching.Wait()
	defer close(joined)
	return l.Accept()
}

// failed says what became of the process. It may be just about to end.
func (m *member) failed(err error) error {
	select {
	case <-m.proc.Done():
		err = fmt.Errorf("the process has ended: %w", errors.Join(m.proc.Wait(), err))
	case <-time.After(time.Second):
	}
	return &workerError{m.proc.Name, m.proc.LogTail(), err}
}

// turn is what workers did while a contestant had its turn, or several of them.
type turn struct {
	Case
	holds   []Hold
	span    time.Duration // how long it was their turn
	counted int           // acquisitions within that time: some come later, of those who waited at its end
	sent    uint64        // commands and statements
	ran     *uint64       // commands that the servers ran; nil: nobody knows
}

// add takes a further turn of the same contestant in.
func (t *turn) add(u turn) {
	t.Case = u.Case
	t.holds = append(t.holds, u.holds...)
	t.span += u.span
	t.counted += u.counted
	t.sent += u.sent
	if u.ran != nil {
		if t.ran == nil {
			t.ran = new(uint64)
		}
		*t.ran += *u.ran
	}
}

// turn has the workers of k take the locks of ids for as long.
func (c *crew) turn(k Case, contestant string, ids []int64, long time.Duration) (turn, error) {
	t := turn{Case: k}
	idle := job{Contestant: contestant}
	before, err := c.do(processes, func(int) job { return idle })
	if err != nil {
		return t, err
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = grab.Key(contestant, id)
	}
	each := k.Workers / k.Processes
	run := func(at, until time.Duration) (report, error) {
		return c.do(k.Processes, func(i int) job {
			return job{Contestant: contestant, Workers: each, First: i * each, Keys: keys, Held: k.Held, At: at, Times: k.Wave, Until: until}
		})
	}
	if k.Wave > 0 {
		err = t.waves(c.clock, run, long)
	} else {
		err = t.loop(c.clock, run, long)
	}
	if err != nil {
		return t, err
	}
	after, err := c.do(processes, func(int) job { return idle })
	t.sent = after.Sent - before.Sent
	return t, err
}

// loop lets all take their locks again and again until the time is over.
func (t *turn) loop(clock func() time.Duration, run func(at, until time.Duration) (report, error), long time.Duration) error {
	at := clock() + ahead
	r, err := run(at, at+long)
	t.holds, t.span = r.Holds, long
	for _, h := range r.Holds {
		if h.Acquired <= at+long {
			t.counted++
		}
	}
	return err
}

// waves lets wave after wave arrive until the time is over: one at least. What
// counts is from the start of each to its last release, not what lies between.
func (t *turn) waves(clock func() time.Duration, run func(at, until time.Duration) (report, error), long time.Duration) error {
	for end := clock() + long; t.span == 0 || clock() < end; {
		at := clock() + ahead
		r, err := run(at, 0)
		if err != nil {
			return err
		}
		last := at
		for _, h := range r.Holds {
			last = max(last, h.Released)
		}
		t.holds = append(t.holds, r.Holds...)
		t.counted += len(r.Holds)
		t.span += last - at
	}
	return nil
}

// do gives the first n processes their jobs and adds their reports up. A
// *workerError: one of them is lost; any other error is the contestant's.
func (c *crew) do(n int, jobOf func(i int) job) (sum report, err error) {
	for i, m := range c.members[:n] {
		j := jobOf(i)
		_ = m.conn.SetDeadline(time.Now().Add(max(j.At, j.Until, c.clock()) - c.clock() + patience + grace))
		if err := m.out.Encode(j); err != nil {
			return sum, m.failed(err)
		}
	}
	var failed error
	for _, m := range c.members[:n] {
		var r report
		if err := m.in.Decode(&r); err != nil {
			return sum, m.failed(err)
		}
		if r.Err != "" {
			failed = errors.Join(failed, errors.New(r.Err))
		}
		sum.Holds = append(sum.Holds, r.Holds...)
		sum.Sent += r.Sent
	}
	return sum, failed
}

// close lets the processes go; the stack sees to it that they do.
func (c *crew) close() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.conn.Close())
	}
	return errors.Join(errs...)
}
