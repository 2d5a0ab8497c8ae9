package lockbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	joinTimeout = 30 * time.Second
	// sendAhead is how long before its start a job is sent, so that every process receives it in
	// time.
	sendAhead = 2 * time.Millisecond
	// grace is the timeout for a worker process's report after a job has ended.
	grace = 10 * time.Second
)

// errProcess means that a worker process has exited or does not respond.
var errProcess = errors.New("lockbench: worker process")

// pool contains the worker processes.
type pool []*process

type process struct {
	*stack.Process
	*rpc.Client
}

// newPool starts the worker processes and waits until they respond.
func newPool(ctx context.Context, st *stack.Stack, exe string, processes int) (p pool, err error) {
	for i := range processes {
		proc, err := startProcess(ctx, st, exe, fmt.Sprintf("worker-%d", i+1))
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p = append(p, proc)
	}
	return p, nil
}

func startProcess(ctx context.Context, st *stack.Stack, exe, name string) (*process, error) {
	socket := filepath.Join(st.Dir, name+".sock")
	child, err := st.Spawn(ctx, name, exe, []string{WorkerCommand, socket}, nil)
	if err != nil {
		return nil, err
	}
	p := &process{Process: child}
	conn, err := dial(ctx, child, socket)
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), p.failed(err))
	}
	p.Client = rpc.NewClient(conn)
	if err := p.Call("Worker.Serve", Servers{name, st.Addresses}, new(struct{})); err != nil {
		return nil, errors.Join(p.failed(err), p.Close())
	}
	return p, nil
}

// dial connects to a child process once the process listens.
func dial(ctx context.Context, child *stack.Process, socket string) (conn net.Conn, err error) {
	_, _ = wait.Until(ctx, 5*time.Millisecond, joinTimeout, func() (bool, error) {
		conn, err = net.Dial("unix", socket)
		return err == nil || wait.IsOver(child.Done()), nil
	})
	return conn, err
}

// failed gives the process a moment to exit. If the process does, failed adds the exit status to
// err.
func (p *process) failed(err error) error {
	select {
	case <-p.Done():
		err = fmt.Errorf("the worker process ended too early: %w", errors.Join(p.Wait(), err))
	case <-time.After(time.Second):
	}
	err = fmt.Errorf("%w: %s: %w", errProcess, p.Name, err)
	if log := p.LogTail(); log != "" {
		err = fmt.Errorf("%w\n%s", err, log)
	}
	return err
}

// trace records what the workers have done with a lock.
type trace struct {
	Case
	holds    []Hold
	span     time.Duration // total time for which the workers ran
	counted  int           // acquisitions within span, without later ones
	sent     uint64        // commands and statements that the clients sent
	ran      uint64        // commands that the Redis servers ran; valid if ranKnown
	ranKnown bool
}

func (t *trace) add(u trace) {
	t.holds = append(t.holds, u.holds...)
	t.span += u.span
	t.counted += u.counted
	t.sent += u.sent
	t.ran += u.ran
}

// run lets the workers use a lock for the given duration. first is the ID of the first order that
// they lock. A case with waves runs at least one wave, even if that takes longer.
func (p pool) run(c Case, subject string, first int64, long time.Duration) (trace, error) {
	t := trace{Case: c}
	idle := func(int) Job { return Job{Subject: subject} }
	before, err := p.do(c.Processes, idle)
	if err != nil {
		return t, err
	}
	keys := make([]string, c.Keys)
	for i := range keys {
		keys[i] = grab.Key(subject, first+int64(i))
	}
	for end := history.Clock() + long; t.span == 0 || c.Wave > 0 && history.Clock() < end; {
		at := history.Clock() + sendAhead
		until := at + long
		r, err := p.do(c.Processes, func(i int) Job {
			workers, firstWorker := c.workersOf(i)
			return Job{Subject: subject, Workers: workers, First: firstWorker, Keys: keys, Held: c.Held, At: at, Times: c.Wave, Until: until}
		})
		if err != nil {
			return t, err
		}
		if c.Wave > 0 { // a wave ends when its last lock is released
			until = slices.MaxFunc(r.Holds, func(a, b Hold) int { return cmp.Compare(a.Released, b.Released) }).Released
		}
		for _, h := range r.Holds {
			if h.Acquired <= until {
				t.counted++
			}
		}
		t.holds = append(t.holds, r.Holds...)
		t.span += until - at
	}
	after, err := p.do(c.Processes, idle)
	t.sent = after.Sent - before.Sent
	return t, err
}

// do runs a job in the first n processes at the same time, and adds up their reports. If a process
// fails, it returns errProcess. Otherwise, it returns the lock's errors.
func (p pool) do(n int, jobOf func(i int) Job) (sum Report, err error) {
	calls := make([]*rpc.Call, n)
	reports := make([]Report, n)
	now := history.Clock()
	end := now
	for i, proc := range p[:n] {
		j := jobOf(i)
		end = max(end, j.At, j.Until)
		calls[i] = proc.Go("Worker.Do", j, &reports[i], make(chan *rpc.Call, 1))
	}
	late := time.After(end - now + acquireTimeout + grace)
	var failed error
	for i, call := range calls {
		select {
		case <-call.Done:
		case <-late:
			return sum, p[i].failed(errors.New("no answer"))
		}
		if _, ofLock := errors.AsType[rpc.ServerError](call.Error); ofLock {
			failed = errors.Join(failed, call.Error)
		} else if call.Error != nil {
			return sum, p[i].failed(call.Error)
		}
		sum.Holds = append(sum.Holds, reports[i].Holds...)
		sum.Sent += reports[i].Sent
	}
	return sum, failed
}

// close closes the connections, which makes the worker processes exit.
func (p pool) close() (err error) {
	for _, proc := range p {
		err = errors.Join(err, proc.Close())
	}
	return err
}

// commandStats counts the commands that the Redis servers run, including commands in scripts.
type commandStats []*redis.Client

// newCommandStats connects to a local stack's Redis servers. It counts nothing on external servers,
// because other programs may use them too.
func newCommandStats(st *stack.Stack) (s commandStats) {
	if st.Kind != stack.Local {
		return nil
	}
	for _, addr := range append([]string{st.Redis}, st.Redlock...) {
		if addr != "" {
			s = append(s, redis.NewClient(&redis.Options{
				Addr: addr, Protocol: 2, DisableIdentity: true, // avoid extra commands, because they would be counted
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			}))
		}
	}
	return s
}

// calls returns how many commands the servers have run so far.
func (s commandStats) calls(ctx context.Context) (n uint64, err error) {
	for _, server := range s {
		text, err := server.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, fmt.Errorf("lockbench: %w", err)
		}
		n += parseCalls(text)
	}
	return n, nil
}

// cmdstat matches lines such as "cmdstat_get:calls=12,usec=34,…" in the INFO reply.
var cmdstat = regexp.MustCompile(`(?m)^cmdstat_(.+?):calls=(\d+)`)

// parseCalls adds up the calls of all commands except INFO, which only the benchmark itself sends.
func parseCalls(text string) (n uint64) {
	for _, line := range cmdstat.FindAllStringSubmatch(text, -1) {
		if c, err := strconv.ParseUint(line[2], 10, 64); err == nil && line[1] != "info" {
			n += c
		}
	}
	return n
}
