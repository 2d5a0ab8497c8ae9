package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// Instance is one instance of the service. A fault can hit its process only if the fleet has
// started it or knows its process ID.
type Instance struct {
	ID             string // the name in reports: the instance's port, or the target's host
	URL            string
	StartTook      time.Duration // how long the last start took; 0 if the user started it
	control.Client               // controls the instance through Call
	// AwaitsDatabase reports whether the instance has been waiting for a reply for at least the
	// duration long. Only statements that may wait for a row lock count. It returns false if the
	// instance has no proxies.
	AwaitsDatabase func(long time.Duration) bool

	fleet    *Fleet
	index    int
	reached  netip.AddrPort // network address that the first call reached
	group    int            // instances with the same number may be one instance behind several URLs
	sameAs   []string       // why this may be the same instance as an earlier one
	strategy string         // the last strategy to which use switched
	port     int            // requested port; 0 for any
	reserved net.Listener   // reserves the requested port; nil if it is not reserved
	addr     string         // address at which it listens; empty before the first start, or if the user started it
	events   string         // path of the event file
	proc     *stack.Process // nil before the first start
	theirs   *os.Process    // process that the user started; nil if unknown
	killed   bool           // whether Signal has killed the process in theirs
	grouped  bool           // whether signals are known to reach all processes of the user's service
	wires    *wires         // proxies between the service and its servers; nil before connect
	exe      string         // program of the last start
	args     []string
	env      []string
}

func (f *Fleet) newInstance(index int) *Instance {
	in := &Instance{fleet: f, index: index}
	in.Client, in.AwaitsDatabase = in.Call, in.awaitsDatabase
	return in
}

func (in *Instance) awaitsDatabase(long time.Duration) bool {
	w := in.wires
	return w != nil && w.rowWaits.Load() > 0 && time.Since(time.Unix(0, w.rowWaitsSince.Load())) >= long
}

// Name returns a name such as "instance 1". It is known from the beginning, unlike the ID, which
// depends on the port.
func (in *Instance) Name() string { return fmt.Sprintf("instance %d", in.index+1) }

// Process returns the process of the instance, or nil before its first start.
func (in *Instance) Process() *stack.Process { return in.proc }

// equip makes the instance run with the setup u. It keeps a running process if the command line and
// environment stay the same, and otherwise starts a new one.
func (in *Instance) equip(ctx context.Context, u Setup) error {
	if err := in.connect(u); err != nil {
		return err
	}
	exe, args, env, err := in.command(u)
	if err != nil {
		return err
	}
	same := in.proc != nil && in.exe == exe && slices.Equal(in.args, args) && slices.Equal(in.env, env)
	switch {
	case same && in.alive():
		return nil
	case same:
		in.fleet.cfg.Say("instance %s has exited; starting it again\n%s", in.ID, in.proc.LogTail())
	case in.proc != nil:
		if err := in.end(); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		if u.SameAddr {
			err = in.awaitPort(ctx)
		} else {
			err = in.chooseAddr()
		}
		if err != nil {
			return err
		}
		if in.exe, in.args, in.env, err = in.command(u); err != nil {
			return err
		}
		err := in.start(ctx, in.args)
		if !errors.Is(err, stack.ErrPortTaken) || try == stack.PortTries {
			return err
		}
	}
}

// connect opens the proxies between an instance and its servers. Only instances of a user's service
// need these proxies.
func (in *Instance) connect(u Setup) (err error) {
	if in.fleet.service == nil {
		return nil
	}
	if in.wires == nil {
		if in.wires, err = newWires(in.fleet.stack, in.Name(), in.fleet.cfg.Say); err != nil {
			return err
		}
		in.Client = in.wires.holds.Client()
	}
	in.wires.lead(in.servers(u))
	return nil
}

// servers returns the addresses at which the instance reaches its servers. They may belong to
// proxies.
func (in *Instance) servers(u Setup) stack.Addresses {
	if to, routed := u.Routes[in.index]; routed {
		return to
	}
	return in.fleet.stack.Addresses
}

// end stops the process. It ignores errors from a user's service, because it may have to kill a
// slow service.
func (in *Instance) end() error {
	err := in.proc.Stop(stopGrace)
	if in.fleet.service != nil {
		return nil
	}
	return err
}

func (in *Instance) command(u Setup) (exe string, args, env []string, err error) {
	if in.fleet.service != nil {
		return in.fleet.service.fill(in.ID, in.index+1, in.wires.at, u)
	}
	return in.fleet.cfg.Exe, in.arguments(u), nil, nil
}

// chooseAddr chooses the requested address, or another free one if it is in use. It sets all instance
// fields that depend on the port.
func (in *Instance) chooseAddr() error {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(in.port))
	if in.port == 0 || proc.Taken(addr) || !in.reserve() {
		var err error
		if addr, err = proc.FreeAddr(); err != nil {
			return err
		}
	}
	_, port, _ := net.SplitHostPort(addr)
	if want := strconv.Itoa(in.port); in.port != 0 && port != want && in.ID == "" {
		in.fleet.cfg.Say("port %s is taken, so %s listens on %s", want, in.Name(), port)
	}
	in.ID, in.addr, in.URL = port, addr, "http://"+addr
	in.events = filepath.Join(in.fleet.stack.Dir, "events-"+port+".jsonl")
	return nil
}

// reserve reserves the port while the instance is down. Otherwise, instances from other runs of
// this program could take the port and answer our requests. It returns false if another run has
// already reserved the port.
func (in *Instance) reserve() bool {
	if in.reserved != nil || runtime.GOOS != "linux" { // only Linux has socket names that disappear together with their process
		return true
	}
	l, err := net.Listen("unix", fmt.Sprintf("@grablab-port-%d", in.port))
	if err != nil {
		return false
	}
	in.reserved = l
	return true
}

func (in *Instance) unreserve() {
	if in.reserved != nil {
		_ = in.reserved.Close() // an error is harmless, because nothing was sent through the socket
		in.reserved = nil
	}
}

// saysTaken reports whether a service's log says that its port is in use. Testing the port is not
// enough, because an outgoing connection may have used it only briefly.
func saysTaken(log string) bool {
	log = strings.ToLower(log)
	return strings.Contains(log, "address already in use") || strings.Contains(log, "eaddrinuse")
}

// Command is the hidden command that runs this program as an instance.
const Command = "instance"

// firstStrategy is a new instance's locking strategy. It must work without lock servers.
const firstStrategy = "none"

// arguments returns the command line of one of our own instances for the setup u.
func (in *Instance) arguments(u Setup) []string {
	to := in.servers(u)
	cfg := in.fleet.cfg
	args := []string{
		Command, "-addr", in.addr, "-instance", in.ID, "-db", to.DSN, "-events", in.events,
		"-strategy", firstStrategy, "-work", u.Work.String(), "-ttl", u.TTL.String(), "-wait", u.Wait.String(),
		"-on-lost", string(cfg.OnLost), "-timeout", u.Timeout.String(),
	}
	for _, server := range []struct{ flag, addr string }{
		{"-redis", to.Redis},
		{"-sentinel", strings.Join(to.Sentinel, ",")},
		{"-sentinel-master", to.SentinelMaster},
		{"-redlock", strings.Join(to.Redlock, ",")},
		{"-zk", strings.Join(to.ZooKeeper, ",")},
		{"-etcd", strings.Join(to.Etcd, ",")},
		{"-guard", string(cfg.Guard)},
		{"-lab", cfg.Lab},
		{"-otlp", cfg.OTLP},
	} {
		if server.addr != "" {
			args = append(args, server.flag, server.addr)
		}
	}
	if cfg.PerDriver > 1 {
		args = append(args, "-per-driver", strconv.Itoa(cfg.PerDriver))
	}
	if cfg.ClockOffset != 0 && in.index == 1 {
		args = append(args, "-clock-offset", cfg.ClockOffset.String())
	}
	if u.Control {
		args = append(args, "-control")
	}
	return args
}

func (in *Instance) start(ctx context.Context, args []string) error {
	began := time.Now()
	p, err := in.fleet.stack.Spawn(ctx, "instance-"+in.ID, in.exe, args, in.env)
	if err != nil {
		return fmt.Errorf("%s (port %s): %w%s", in.Name(), in.ID, err, in.fleet.service.noShell())
	}
	in.proc = p
	if err := in.awaitReady(ctx); err != nil {
		_ = p.Stop(0)
		hints := in.fleet.service.noShell() + in.fleet.service.misread(p.LogTail()) + in.fleet.service.wrongPassword(p.LogTail())
		return fmt.Errorf("%s (port %s): %w%s%s", in.Name(), in.ID, err, hints, p.Quote())
	}
	in.StartTook = time.Since(began)
	return nil
}

// alive reports whether the instance is running. An instance that the user started counts as
// running until Signal kills it.
func (in *Instance) alive() bool {
	if in.proc == nil {
		return !in.killed
	}
	return !wait.IsOver(in.proc.Done())
}

const (
	stopGrace    = 10 * time.Second // time for an instance to stop
	readyTimeout = 30 * time.Second
)

// awaitReady waits until the instance is ready. It ignores replies from other programs that use the
// same port.
func (in *Instance) awaitReady(ctx context.Context) error {
	within := readyTimeout
	if in.fleet.service != nil {
		within = cmp.Or(in.fleet.readyWithin, serviceTimeout)
	}
	began, sayAfter, run := time.Now(), within/24, ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { // another program on the port may never reply, so cancel when the process ends
		select {
		case <-in.proc.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	found := time.Now() // when the ready path last had another status than 404
	for {
		err := in.askReady(ctx)
		status, ok := errors.AsType[*StatusError](err)
		missing := ok && status.Code == http.StatusNotFound && in.fleet.service != nil
		if !missing {
			found = time.Now()
		}
		if took := time.Since(began); err != nil && in.fleet.service != nil && took > sayAfter {
			if ours, _ := in.listens(); ours && errors.Is(in.asked(ctx), syscall.ECONNREFUSED) {
				return errors.New("it listens on its port, but not at 127.0.0.1: let it listen at 127.0.0.1 instead of localhost or another address")
			}
			in.fleet.cfg.Say("%s (port %s) is not ready after %v of %v: %v", in.Name(), in.ID, took.Round(time.Second/10), within, err)
			sayAfter *= 2
		}
		switch {
		case err == nil, errors.Is(err, stack.ErrPortTaken):
			return err
		case run.Err() != nil:
			return context.Cause(run)
		case !in.alive() && in.proc.ExitCode() == instance.ExitAddrInUse:
			return stack.ErrPortTaken
		case !in.alive() && in.fleet.service != nil && (proc.Taken(in.addr) || saysTaken(in.proc.LogTail())):
			return fmt.Errorf("%w. If its output names another port, let each instance use its own port there, because they run at the same time", stack.ErrPortTaken)
		case !in.alive():
			return errors.New("it exited before it was ready")
		case missing && time.Since(found) > within/12:
			return fmt.Errorf("its ready path does not exist: %w: correct ready", err)
		case !wait.For(ctx, 20*time.Millisecond) && in.alive() && run.Err() == nil:
			printed := ""
			if in.proc.LogTail() == "" {
				printed = ", and it has printed nothing"
			}
			return fmt.Errorf("its process is running, but was not ready within %v: %w%s", within, err, printed)
		}
	}
}

// askReady returns nil if the instance is ready. If another process responds on its port, it
// returns stack.ErrPortTaken.
func (in *Instance) askReady(ctx context.Context) error {
	if in.fleet.service != nil {
		return in.answers(ctx)
	}
	var health grab.Health
	if err := in.Call(ctx, http.MethodGet, "/healthz", nil, &health); err != nil {
		return err
	}
	if health.PID != in.proc.Pid() {
		return fmt.Errorf("%w: process %d answers at this address", stack.ErrPortTaken, health.PID)
	}
	return in.Call(ctx, http.MethodGet, "/readyz", nil, nil)
}

// use switches the instance to a strategy. It returns the TTL in milliseconds, or 0 if the instance
// does not report one.
func (in *Instance) use(ctx context.Context, strategy string) (leaseMS float64, err error) {
	in.strategy = strategy
	var told json.RawMessage
	err = in.Call(ctx, http.MethodPut, "/strategy", grab.StrategyName{Name: strategy}, &told)
	var now grab.CurrentStrategy
	_ = json.Unmarshal(told, &now) // ignore the error, because a service may return anything
	return now.LeaseMS, err
}

// Signal sends sig to the instance's processes. If SIGSTOP or SIGKILL would miss a process of the user's service,
// Signal returns an error instead.
func (in *Instance) Signal(sig syscall.Signal) error {
	if in.theirs == nil {
		if in.wires != nil && !in.grouped && sig != syscall.SIGCONT { // check only once, because it may take 1 s on a busy machine
			if err := in.wires.checkReach(proc.Groups(in.proc.Pid())); err != nil {
				return err
			}
			in.grouped = true
		}
		return in.proc.Signal(sig)
	}
	err := in.theirs.Signal(sig)
	in.killed = in.killed || err == nil && sig == syscall.SIGKILL
	return err
}

// Restart waits until the instance's process has died, and starts it again. It makes three
// attempts, because the port may still be in use. If the user started the instance, Restart does
// nothing.
func (in *Instance) Restart(ctx context.Context) error {
	if in.theirs != nil {
		return nil
	}
	select {
	case <-in.proc.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	for range restartTries {
		if err = in.awaitPort(ctx); err == nil {
			err = in.start(ctx, withStrategy(in.args, in.strategy))
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil || in.fleet.Foreign {
		return err
	}
	_, err = in.use(ctx, in.strategy)
	return err
}

const (
	restartTries = 3
	portFreed    = 2 * time.Second // how long another program usually needs to release a port
)

// awaitPort waits until the instance's port is free.
func (in *Instance) awaitPort(ctx context.Context) error {
	free, err := wait.Until(ctx, 50*time.Millisecond, portFreed, func() (bool, error) { return !proc.Taken(in.addr), nil })
	if err == nil && !free {
		err = fmt.Errorf("cannot restart %s (port %s): %w: repeat the run", in.Name(), in.ID, stack.ErrPortTaken)
	}
	return err
}

// withStrategy sets the -strategy flag in args, so that a restarted instance uses the strategy from
// its first request.
func withStrategy(args []string, strategy string) []string {
	i := slices.Index(args, "-strategy")
	if i < 0 || strategy == "" {
		return args
	}
	args = slices.Clone(args)
	args[i+1] = strategy
	return args
}

// Call makes an API call to the instance. It sends body as JSON and decodes the response into
// answer. Both may be nil.
func (in *Instance) Call(ctx context.Context, method, path string, body, answer any) error {
	if err := in.fleet.client.call(ctx, method, in.URL+path, body, answer); err != nil {
		return fmt.Errorf("%s: %w", in.Name(), err)
	}
	return nil
}
