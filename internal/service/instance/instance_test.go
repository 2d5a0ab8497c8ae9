package instance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"
)

// argsEnv is an environment variable. If it is set, the test binary runs as an instance with these
// arguments.
const argsEnv = "INSTANCE_TEST_ARGS"

func TestMain(m *testing.M) {
	stack.BeHelper()
	if args := os.Getenv(argsEnv); args != "" {
		os.Exit(instance.Main(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// process is an instance that runs in a separate process.
type process struct {
	*exec.Cmd
	url    string
	stderr *os.File
}

func start(t *testing.T, args ...string) process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), argsEnv+"=-addr 127.0.0.1:0 "+strings.Join(args, " "))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		stderr.Close()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		log, _ := os.ReadFile(stderr.Name())
		t.Fatalf("the instance printed %q, %v\n%s", line, err, log)
	}
	return process{cmd, url, stderr}
}

// grabbing sends a grab in the background. The channel gets the answer, or closes if there is none.
func grabbing(t *testing.T, url, path string) <-chan grab.Answer {
	t.Helper()
	answered := make(chan grab.Answer, 1)
	go func() {
		defer close(answered)
		resp, err := http.Post(url+path, "application/json", strings.NewReader(`{"driver_id":42}`))
		if err != nil {
			return
		}
		defer resp.Body.Close()
		var a grab.Answer
		if json.NewDecoder(resp.Body).Decode(&a) == nil {
			answered <- a
		}
	}()
	return answered
}

const orders = 200

// open opens orders 1 to orders.
func open(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Post(url+"/orders", "application/json", strings.NewReader(fmt.Sprintf(`{"count":%d}`, orders)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("open orders: %s", resp.Status)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// TestSIGTERMFinishesGrabs checks that an instance finishes a running grab after SIGTERM. The client must
// get its answer, the ledger its row, and the event file all events. The lock must be released.
func TestSIGTERMFinishesGrabs(t *testing.T) {
	for _, strategy := range []string{"setnx", "watchdog"} {
		t.Run(strategy, func(t *testing.T) {
			redis := miniredis.RunT(t)
			dir := t.TempDir()
			db, events := "sqlite:"+dir+"/t.db", dir+"/events.jsonl"
			p := start(t, "-instance a -work 700ms -db", db, "-redis", redis.Addr(), "-strategy", strategy, "-events", events)
			open(t, p.url)
			answered := grabbing(t, p.url, "/orders/1/grab")
			eventually(t, "the lock is taken", func() bool { return len(redis.Keys()) > 0 })
			if err := p.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if a := <-answered; a.Outcome != grab.Grabbed {
				t.Errorf("answer %+v, want grabbed", a)
			}
			if err := p.Wait(); err != nil {
				t.Errorf("instance: %v, want exit 0", err)
			}
			if keys := redis.Keys(); len(keys) != 0 {
				t.Errorf("keys %v, want none", keys)
			}
			if grabs := ledgerOf(t, db); len(grabs) != 1 || grabs[0].Instance != "a" || grabs[0].Strategy != strategy {
				t.Errorf("ledger %+v, want one grab by a", grabs)
			}
			if last := lastEvent(t, events); last.Op != history.Grab || last.Kind != history.OK {
				t.Errorf("last event %+v, want the grab's end", last)
			}
		})
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	redis := miniredis.RunT(t)
	p := start(t, "-work 10m -timeout 20m -db sqlite:"+t.TempDir()+"/t.db -redis", redis.Addr())
	open(t, p.url)
	answered := grabbing(t, p.url, "/orders/1/grab")
	eventually(t, "the lock is taken", func() bool { return len(redis.Keys()) > 0 })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says that it stops", func() bool {
		log, _ := os.ReadFile(p.stderr.Name())
		return strings.Contains(string(log), "stopping")
	})
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	var err error
	// The test repeats the signal, because the instance may still catch it shortly after this message.
	eventually(t, "another signal ends it", func() bool {
		p.Process.Signal(syscall.SIGTERM)
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("instance: %v, want killed by the signal", err)
	}
	if a, ok := <-answered; ok {
		t.Errorf("answer %+v, want none", a)
	}
}

func ledgerOf(t *testing.T, db string) []order.Grab {
	t.Helper()
	store, err := order.Connect(t.Context(), db, order.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	grabs, err := store.Ledger(t.Context(), 1, 10)
	if err != nil {
		t.Fatal(err)
	}
	return grabs
}

func lastEvent(t *testing.T, path string) (last history.Event) {
	t.Helper()
	for _, last = range eventsOf(t, path) {
	}
	return last
}

func eventsOf(t *testing.T, path string) (events []history.Event) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for e, err := range history.Decode(f) {
		if err != nil {
			t.Error(err)
		}
		events = append(events, e)
	}
	return events
}

// run starts an instance in this process. It returns the instance's URL, and a function that stops it.
func run(t *testing.T, cfg instance.Config) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := instance.Run(ctx, cfg, w, slog.New(slog.DiscardHandler))
		w.CloseWithError(err)
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("instance: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(stop)
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), stop
}

// configOf parses flags and adds an address and a database.
func configOf(t *testing.T, args ...string) instance.Config {
	t.Helper()
	cfg, err := instance.Parse(append([]string{"-addr", "127.0.0.1:0", "-work", "0", "-db", "sqlite:" + t.TempDir() + "/t.db"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestInstanceWithoutRedis(t *testing.T) {
	url, _ := run(t, configOf(t, "-strategy", "mutex"))
	open(t, url)
	if a := <-grabbing(t, url, "/orders/1/grab"); a.Outcome != grab.Grabbed {
		t.Errorf("mutex: %+v", a)
	}
	if a := <-grabbing(t, url, "/orders/2/grab?strategy=none"); a.Outcome != grab.Grabbed {
		t.Errorf("none: %+v", a)
	}
	if a := <-grabbing(t, url, "/orders/3/grab?strategy=setnx"); a.Reason != "bad_strategy" {
		t.Errorf("setnx: %+v, want it refused", a)
	}
	if code, body := get(t, url+"/readyz"); code != 200 || body != `{"ready":true,"checks":{"db":"ok"}}` {
		t.Errorf("readyz: %d %s", code, body)
	}
}

// TestPerDriver checks that the limit per driver applies with each strategy, whether the database or
// Redis counts the driver's units.
func TestPerDriver(t *testing.T) {
	redis := miniredis.RunT(t)
	url, _ := run(t, configOf(t, "-redis", redis.Addr(), "-per-driver", "2"))
	for id, strategy := range []string{"setnx", "mysql-cas", "redis-stock"} {
		if code, body := ask(t, http.MethodPost, url+"/orders", `{"count":1,"stock":5}`); code != http.StatusCreated {
			t.Fatal(code, string(body))
		}
		for n, want := range []string{"", "", grab.PerDriver} {
			if a := <-grabbing(t, url, fmt.Sprintf("/orders/%d/grab?strategy=%s", id+1, strategy)); a.Reason != want {
				t.Errorf("%s, grab %d: %+v, want reason %q", strategy, n+1, a, want)
			}
		}
	}
}

// TestReadyz checks that an instance is ready as long as its Redis server and a majority of the Redlock
// nodes respond. The response must name each server that does not respond.
func TestReadyz(t *testing.T) {
	for _, count := range []int{3, 4} { // half of an even number is no majority
		testReadyz(t, count)
	}
}

func testReadyz(t *testing.T, count int) {
	single := miniredis.RunT(t)
	var nodes []*miniredis.Miniredis
	var addrs []string
	for range count {
		n := miniredis.RunT(t)
		nodes, addrs = append(nodes, n), append(addrs, n.Addr())
	}
	url, _ := run(t, configOf(t, "-strategy", "none", "-redis", single.Addr(), "-redlock", strings.Join(addrs, ",")))
	tests := []struct {
		name string
		down *miniredis.Miniredis
		code int
		bad  []string
	}{
		{"all up", nil, 200, nil},
		{"one node down", nodes[0], 200, []string{"redlock-1"}},
		{"two nodes down", nodes[1], 503, []string{"redlock-1", "redlock-2"}},
		{"Redis down", single, 503, []string{"redis", "redlock-1", "redlock-2"}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s of %d", tt.name, count), func(t *testing.T) {
			if tt.down != nil {
				tt.down.Close()
			}
			code, body := get(t, url+"/readyz")
			var r grab.Readiness
			if err := json.Unmarshal([]byte(body), &r); err != nil {
				t.Fatal(err)
			}
			var bad []string
			for name, text := range r.Checks {
				if text != "ok" {
					bad = append(bad, name)
				}
			}
			slices.Sort(bad)
			if code != tt.code || len(r.Checks) != count+2 || !slices.Equal(bad, tt.bad) {
				t.Errorf("%d %s, want %d and %v", code, body, tt.code, tt.bad)
			}
		})
	}
}

// TestEveryCallIsTapped checks that an instance with -control reports every call of a grab, whichever
// client sends it.
func TestEveryCallIsTapped(t *testing.T) {
	single := miniredis.RunT(t)
	var addrs []string
	for range 3 {
		addrs = append(addrs, miniredis.RunT(t).Addr())
	}
	c, url, _ := controlled(t, "-redis", single.Addr(), "-redlock", strings.Join(addrs, ","))
	called := func(order int64, strategy string) (targets []string) {
		must(t, c.SetHold(t.Context(), strategy, control.Hold{First: order, Count: 1, Drivers: []int64{42}, Outcome: control.Delivered}))
		<-grabbing(t, url, fmt.Sprintf("/orders/%d/grab?strategy=%s", order, strategy))
		calls, err := c.Held(t.Context(), strategy, 0, 0)
		must(t, err)
		for _, c := range calls {
			targets = append(targets, string(c.Phase)+" "+c.Target)
		}
		slices.Sort(targets)
		return slices.Compact(targets)
	}
	if got, want := called(1, "setnx"), []string{"acquire redis", "claim db", "read db", "release redis"}; !slices.Equal(got, want) {
		t.Errorf("setnx called %v, want %v", got, want)
	}
	want := []string{
		"acquire redlock-1", "acquire redlock-2", "acquire redlock-3", "claim db", "read db",
		"release redlock-1", "release redlock-2", "release redlock-3",
	}
	if got := called(2, "redlock"); !slices.Equal(got, want) {
		t.Errorf("redlock called %v, want %v", got, want)
	}
}

// TestInstanceCounts checks the counters of statements and Redis commands. Each winning grab must send
// the same number of statements. It must send two commands, once the scripts are loaded and all
// connections have sent their HELLO.
func TestInstanceCounts(t *testing.T) {
	redis := miniredis.RunT(t)
	url, _ := run(t, configOf(t, "-redis", redis.Addr()))
	open(t, url)
	var first, before counted
	exact := 0
	for n := 1; exact < 5; n++ {
		if n > orders {
			t.Fatalf("after %d grabs they still send more than 2 commands", n)
		}
		if a := <-grabbing(t, url, fmt.Sprintf("/orders/%d/grab", n)); a.Outcome != grab.Grabbed {
			t.Fatalf("the grab should win, but the answer is %+v", a)
		}
		now := count(t, url)
		step := counted{now.commands - before.commands, now.statements - before.statements}
		before = now
		switch {
		case n == 1: // includes the migrations
			continue
		case n == 2:
			first = step
		}
		if step.commands < 2 || step.statements != first.statements || step.statements == 0 {
			t.Fatalf("grab %d sent %+v, grab 2 %+v", n, step, first)
		}
		if exact++; step.commands > 2 {
			exact = 0
		}
	}
}

// counted contains how many commands and statements an instance has sent.
type counted struct{ commands, statements float64 }

func count(t *testing.T, url string) (c counted) {
	t.Helper()
	_, text := get(t, url+"/metrics")
	for line := range strings.Lines(text) {
		fmt.Sscanf(line, "grab_redis_commands_total %g", &c.commands)
		fmt.Sscanf(line, "grab_db_statements_total %g", &c.statements)
	}
	return c
}

// TestBeyondLoopback checks that an instance that other machines can reach switches its strategy only
// for clients that know its token.
func TestBeyondLoopback(t *testing.T) {
	cfg := configOf(t, "-strategy", "none", "-admin-token", "secret")
	cfg.Addr = "0.0.0.0:0"
	url, _ := run(t, cfg)
	url = "http://127.0.0.1" + url[strings.LastIndex(url, ":"):]
	for token, want := range map[string]int{"": 401, "wrong": 401, "secret": 200} {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", url+"/strategy", strings.NewReader(`{"name":"mutex"}`))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: %d, want %d", token, resp.StatusCode, want)
		}
	}
}
