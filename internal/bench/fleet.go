package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/stack"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
)

// The article's two ports; more instances and lanes follow on the next ones.
const firstPort = 8004

// fleet is the instances under test: our own processes, or somebody's targets.
type fleet struct {
	instances []*member
	client    *http.Client
	token     string
	ours      bool
	foreign   bool          // they answer the grab call and nothing else
	settings  grab.Settings // of the first, where somebody else has started them
	first     int64

	// Of our own.
	cfg   Config
	stack *stack.Stack
	say   func(string, ...any)
}

// member is one instance of the fleet.
type member struct {
	name string
	url  string

	// Of our own.
	port   int            // that it is to have
	addr   string         // that it has
	events string         // its event file
	proc   *stack.Process // nil: it was never started
	args   []string
}

func newFleet(token string) *fleet {
	return &fleet{
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		token:  token,
	}
}

// newOwnFleet names cfg.Instances processes of this very program over st, on
// ports from port on. None of them runs before equip.
func newOwnFleet(cfg Config, st *stack.Stack, port int, say func(string, ...any)) *fleet {
	f := newFleet("")
	f.ours, f.cfg, f.stack, f.say = true, cfg, st, say
	for i := range cfg.Instances {
		f.instances = append(f.instances, &member{port: port + i})
	}
	return f
}

// equip has every instance of ours run as u says: it starts those that have
// ended, and anew those that run otherwise.
func (f *fleet) equip(ctx context.Context, u setup) error {
	if !f.ours {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, in := range f.instances {
		g.Go(func() error { return f.equipOne(ctx, i, in, u) })
	}
	return g.Wait()
}

func (f *fleet) equipOne(ctx context.Context, i int, in *member, u setup) error {
	same := in.proc != nil && slices.Equal(in.args, f.args(i, in, u))
	switch {
	case same && in.alive():
		return nil
	case same:
		f.say("instance %s has ended; starting it again\n%s", in.name, in.proc.LogTail())
	case in.proc != nil:
		if err := in.proc.Stop(stopGrace); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		if err := f.settleOn(i, in); err != nil {
			return err
		}
		in.args = f.args(i, in, u)
		err := f.start(ctx, in)
		if !errors.Is(err, errPortTaken) || try == portTries {
			return err
		}
	}
}

// portTries is how often an instance may find that somebody has taken its port
// between our look and its own.
const portTries = 5

var errPortTaken = errors.New("its port is taken")

// settleOn gives the instance its address, and with it its name.
func (f *fleet) settleOn(i int, in *member) error {
	addr, err := pickAddr(in.port)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	if want := strconv.Itoa(in.port); port != want && in.name == "" {
		f.say("port %s is taken: instance %d listens on %s", want, i+1, port)
	}
	in.name, in.addr, in.url = port, addr, "http://"+addr
	in.events = filepath.Join(f.stack.Dir, "events-"+port+".jsonl")
	return nil
}

// pickAddr is the wanted loopback port if it is free, else any.
func pickAddr(port int) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", fmt.Errorf("bench: no free port: %w", err)
		}
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// InstanceCommand is the hidden subcommand by which this program is an instance.
const InstanceCommand = "instance"

// args are those of instance i, at its address.
func (f *fleet) args(i int, in *member, u setup) []string {
	to, detour := u.routes[i]
	if !detour {
		to = f.stack.Addresses
	}
	args := []string{
		InstanceCommand, "-addr", in.addr, "-instance", in.name, "-db", to.DSN, "-events", in.events,
		"-strategy", firstStrategy, "-work", u.work.String(), "-ttl", u.ttl.String(), "-wait", u.wait.String(),
		"-on-lost", string(f.cfg.OnLost), "-timeout", u.timeout.String(),
	}
	for _, server := range []struct{ flag, addr string }{
		{"-redis", to.Redis},
		{"-sentinel", strings.Join(to.Sentinel, ",")},
		{"-sentinel-master", to.SentinelMaster},
		{"-redlock", strings.Join(to.Redlock, ",")},
		{"-zk", strings.Join(to.ZooKeeper, ",")},
		{"-etcd", strings.Join(to.Etcd, ",")},
		{"-guard", string(f.cfg.Guard)},
	} {
		if server.addr != "" {
			args = append(args, server.flag, server.addr)
		}
	}
	if f.cfg.ClockOffset != 0 && i == 1 {
		args = append(args, "-clock-offset", f.cfg.ClockOffset.String())
	}
	if u.traps {
		args = append(args, "-traps")
	}
	return args
}

// firstStrategy is what an instance begins with, until a cell switches it: one
// that every stack serves.
const firstStrategy = "none"

func (f *fleet) start(ctx context.Context, in *member) error {
	proc, err := f.stack.Spawn(ctx, "instance-"+in.name, f.cfg.Exe, in.args, nil)
	if err != nil {
		return fmt.Errorf("bench: instance %s: %w", in.name, err)
	}
	in.proc = proc
	if err := f.awaitReady(ctx, in); err != nil {
		_ = proc.Stop(0)
		return fmt.Errorf("bench: instance %s: %w\n%s", in.name, err, proc.LogTail())
	}
	return nil
}

// alive says whether the instance runs, as far as we can know.
func (in *member) alive() bool {
	if in.proc == nil {
		return true
	}
	select {
	case <-in.proc.Done():
		return false
	default:
		return true
	}
}

// stopGrace is what an instance may take to end.
const stopGrace = 10 * time.Second

// stop ends our instances gracefully. equip starts fresh ones.
func (f *fleet) stop() error {
	var errs []error
	for _, in := range f.instances {
		if in.proc != nil {
			errs = append(errs, in.proc.Stop(stopGrace))
			in.args = nil
		}
	}
	f.client.CloseIdleConnections()
	return errors.Join(errs...)
}

const readyTimeout = 30 * time.Second

// awaitReady returns once the instance itself, and not another program on its
// port, says that it is ready.
func (f *fleet) awaitReady(ctx context.Context, in *member) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { // whoever has its port may never answer
		select {
		case <-in.proc.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		err := f.askReady(ctx, in)
		switch {
		case err == nil, errors.Is(err, errPortTaken):
			return err
		case !in.alive() && strings.Contains(in.proc.LogTail(), "ddress already in use"):
			return errPortTaken
		case !in.alive():
			return errors.New("it ended while starting")
		case !rest(ctx, 20*time.Millisecond) && in.alive():
			return fmt.Errorf("not ready: %w", err)
		}
	}
}

// askReady is nil if the instance says that it is ready.
func (f *fleet) askReady(ctx context.Context, in *member) error {
	var health struct {
		PID int `json:"pid"`
	}
	if err := f.call(ctx, http.MethodGet, in.url+"/healthz", nil, &health); err != nil {
		return err
	}
	if health.PID != in.proc.Pid() {
		return fmt.Errorf("%w: process %d answers there", errPortTaken, health.PID)
	}
	return f.call(ctx, http.MethodGet, in.url+"/readyz", nil, nil)
}

// useTargets takes the instances that somebody else has started, and finds out
// how much of the API they know.
func useTargets(ctx context.Context, cfg Config) (*fleet, error) {
	f := newFleet(cfg.AdminToken)
	f.first = cfg.FirstOrder
	for _, base := range cfg.Targets {
		base = strings.TrimRight(base, "/")
		in := &member{url: base, name: strings.TrimPrefix(strings.TrimPrefix(base, "http://"), "https://")}
		var health grab.Health
		err := f.call(ctx, http.MethodGet, base+"/healthz", nil, &health)
		if sent := (*url.Error)(nil); errors.As(err, &sent) {
			return f, fmt.Errorf("bench: target %s does not answer: %w", base, err)
		}
		in.name = or(health.Instance, in.name)
		if len(f.instances) == 0 {
			f.settings = health.Settings
		}
		f.instances = append(f.instances, in)
		var current struct {
			Name string `json:"name"`
		}
		if f.call(ctx, http.MethodGet, base+"/strategy", nil, &current) != nil || current.Name == "" {
			f.foreign = true
		}
	}
	if f.foreign && cfg.FirstOrder == 0 {
		return f, errors.New("bench: the targets cannot open orders: say with -first-order which id to begin at")
	}
	return f, nil
}

func (f *fleet) urls() []string {
	urls := make([]string, len(f.instances))
	for i, in := range f.instances {
		urls[i] = in.url
	}
	return urls
}

// names of the instances by target URL.
func (f *fleet) names() map[string]string {
	names := map[string]string{}
	for _, in := range f.instances {
		names[in.url] = in.name
	}
	return names
}

// use switches every instance to the strategy, and returns for how long a lease
// lives there, in ms; 0: they do not tell.
func (f *fleet) use(ctx context.Context, strategy string) (leaseMS float64, err error) {
	for _, in := range f.instances {
		var now struct {
			LeaseMS float64 `json:"lease_ms"`
		}
		err := f.call(ctx, http.MethodPut, in.url+"/strategy", map[string]string{"name": strategy}, &now)
		if err != nil {
			return 0, fmt.Errorf("bench: switch %s to %s: %w", in.name, strategy, err)
		}
		leaseMS = max(leaseMS, now.LeaseMS)
	}
	return leaseMS, nil
}

// Create opens orders through the first instance.
func (f *fleet) Create(ctx context.Context, count int) (int64, error) {
	if f.foreign {
		first := f.first
		f.first += int64(count)
		return first, nil
	}
	var made struct {
		FirstID int64 `json:"first_id"`
	}
	err := f.call(ctx, http.MethodPost, f.instances[0].url+"/orders", map[string]int{"count": count}, &made)
	return made.FirstID, err
}

// Ledger asks the first instance for the ledger rows of each order.
func (f *fleet) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	var rows []order.Grab
	for id := first; id < first+int64(count); id++ {
		var got struct {
			Grabs []struct {
				Driver   int64  `json:"driver_id"`
				Instance string `json:"instance"`
				Token    string `json:"token"`
				Fence    uint64 `json:"fence"`
			} `json:"grabs"`
		}
		if err := f.call(ctx, http.MethodGet, fmt.Sprintf("%s/orders/%d", f.instances[0].url, id), nil, &got); err != nil {
			return nil, err
		}
		for _, g := range got.Grabs {
			rows = append(rows, order.Grab{Order: id, Driver: g.Driver, Instance: g.Instance, Token: g.Token, Fence: g.Fence})
		}
	}
	return rows, nil
}

// probe is a grab that does not wait for the lock, by a driver that no load
// uses. The status code alone tells; an error comes with any that does not.
func (f *fleet) probe(ctx context.Context, in *member, id, driver int64) (grab.Outcome, error) {
	url := fmt.Sprintf("%s/orders/%d/grab", in.url, id)
	if !f.foreign {
		url += "?wait=0"
	}
	err := f.call(ctx, http.MethodPost, url, map[string]int64{"driver_id": driver}, nil)
	var status *statusError
	switch {
	case err == nil:
		return grab.Grabbed, nil
	case errors.As(err, &status) && status.code == http.StatusConflict:
		return grab.Taken, nil
	case errors.As(err, &status) && status.code == http.StatusLocked:
		return grab.Busy, nil
	default:
		return grab.Failed, err
	}
}

// statusError is an answer outside of 2xx.
type statusError struct {
	code int
	says string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP %d: %s", e.code, e.says)
}

// oneLine cuts what a server says to what fits into a reason.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 200)]
}

// call is one control call. in and out may be nil.
func (f *fleet) call(ctx context.Context, method, url string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		return &statusError{resp.StatusCode, oneLine(or(field(b, "error"), string(b)))}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// counters are what the instances have counted since they began, summed. An
// instance that was started anew has forgotten; its epoch tells.
type counters struct {
	redisCommands, dbStatements float64
	inFlight                    float64
	epoch                       float64 // sum of the start times
}

var errNoMetrics = errors.New("bench: the targets count nothing")

func (f *fleet) counters(ctx context.Context) (counters, error) {
	var sum counters
	if f.foreign {
		return sum, errNoMetrics
	}
	for _, in := range f.instances {
		if !in.alive() {
			continue // and its start time is missing in the epoch
		}
		families, err := f.scrape(ctx, in)
		if err != nil {
			return sum, fmt.Errorf("bench: metrics of %s: %w", in.name, err)
		}
		sum.redisCommands += total(families["grab_redis_commands_total"])
		sum.dbStatements += total(families["grab_db_statements_total"])
		sum.inFlight += total(families["grab_in_flight"])
		sum.epoch += total(families["process_start_time_seconds"])
	}
	return sum, nil
}

func (f *fleet) scrape(ctx context.Context, in *member) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{code: resp.StatusCode}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

func total(f *dto.MetricFamily) float64 {
	var sum float64
	for _, m := range f.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}
