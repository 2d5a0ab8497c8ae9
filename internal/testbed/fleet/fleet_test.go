package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
	"grablab/internal/testbed/wait"
)

func TestMain(m *testing.M) {
	stacktest.Main(m, stacktest.Command{Name: Command, Run: instance.Main}, stacktest.Command{Name: "chatty", Run: serveChatty})
}

// serveChatty answers each request with status 404, and logs it in two lines, as Python's http.server does.
func serveChatty(_ context.Context, args []string, _, stderr io.Writer) int {
	err := http.ListenAndServe(strings.Join(args, ":"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(stderr, "[%v] code 404\n[%[1]v] GET %s 404\n", time.Now().UnixNano(), r.URL.Path)
		http.NotFound(w, r)
	}))
	fmt.Fprintln(stderr, err)
	return 1
}

// embedded starts an embedded stack. It also returns the path of the test program, which can run as an
// instance.
func embedded(t *testing.T) (st *stack.Stack, exe string) {
	t.Helper()
	st, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded})
	stacktest.Check(t, err)
	t.Cleanup(func() { st.Close() })
	if exe, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	return st, exe
}

// TestPortTaken checks that an instance gets another port if another process takes its port during the
// start.
func TestPortTaken(t *testing.T) {
	st, exe := embedded(t)
	f := New(Config{Exe: exe, Instances: 1, OnLost: grab.Abort, Say: t.Logf}, st, FirstPort)
	defer f.Stop()
	u := Setup{TTL: time.Second, Wait: time.Second, Timeout: time.Second}
	in := f.Instances[0]
	if err := in.chooseAddr(); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp", in.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if in.exe, in.args, in.env, err = in.command(u); err != nil {
		t.Fatal(err)
	}
	if err := in.start(t.Context(), in.args); !errors.Is(err, stack.ErrPortTaken) {
		t.Errorf("on a port that is taken: %v", err)
	}
	if err := f.Equip(t.Context(), u); err != nil || in.addr == other.Addr().String() {
		t.Errorf("the instance listens on %s: %v", in.addr, err)
	}
}

// TestRestartWhilePortIsTaken checks that a killed instance can restart even if another program uses its
// port for a while. If the port stays in use, the error must say so.
func TestRestartWhilePortIsTaken(t *testing.T) {
	st, exe := embedded(t)
	service, err := ParseService(exe + " " + Command + " -addr 127.0.0.1:{port} -db " + st.DSN)
	if err != nil {
		t.Fatal(err)
	}
	service.Ready = "/readyz"
	for _, taken := range []time.Duration{0, 300 * time.Millisecond, 1500 * time.Millisecond, time.Hour} {
		for _, kind := range []string{"ours", "service", "ours with new settings"} {
			if taken == time.Hour && kind != "ours" {
				continue // it would take as long, with the same result
			}
			u := Setup{TTL: time.Second, Wait: time.Second, Timeout: time.Second}
			f := New(Config{Exe: exe, Instances: 1, OnLost: grab.Abort, Say: t.Logf}, st, 0)
			defer f.Stop()
			if err := f.Equip(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			in := f.Instances[0]
			if kind == "service" {
				in.strategy, f.Foreign, f.service = "", true, &service
			} else if _, err := f.Use(t.Context(), firstStrategy); err != nil {
				t.Fatal(err)
			}
			if err := in.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-in.Process().Done()
			if taken > 0 {
				other, err := net.Listen("tcp", in.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				time.AfterFunc(taken, func() { other.Close() })
			}
			start := in.Restart
			if kind == "ours with new settings" {
				u.TTL, u.SameAddr = time.Minute, true
				start = func(ctx context.Context) error { return f.Equip(ctx, u) }
			}
			if err := start(t.Context()); taken < time.Hour && err != nil || taken == time.Hour && !errors.Is(err, stack.ErrPortTaken) {
				t.Errorf("%s, taken for %v: %v", kind, taken, err)
			}
		}
	}
}

// TestServiceDoesNotStart checks that the error for a service that does not start contains the reason and
// the service's output. The wait must end early if the ready path does not exist or the run is stopped.
func TestServiceDoesNotStart(t *testing.T) {
	st, exe := embedded(t)
	stopped := errors.New("the user stopped the run")
	for _, tt := range []struct {
		service, ready string
		wants          string
	}{
		{exe + " " + Command + " -addr 127.0.0.1:{port} -strategy none -db " + st.DSN, "/nothing", `^instance 1 \(port \d+\): its ready path does not exist: GET http://127.0.0.1:\d+/nothing: HTTP 404: .*: correct ready`},
		{exe + " chatty 127.0.0.2 {port}", "", `it listens on its port, but not at 127.0.0.1`},
		{"sh -c 'echo one; echo two; exit 3' {port}", "/readyz", `^instance 1 \(port \d+\): it exited before it was ready. Its output ends with\n    one\n    two$`},
		{`sh -c 'echo "cannot parse u@tcp(h:1)/d"; exit 1' {port} {db}`, "/readyz", `it exited before it was ready. Only Go's MySQL driver can parse the address in \{db\}: use \{postgres\} for PostgreSQL, .*. Its output ends with\n`},
		{"sh -c 'echo bind :9090: address already in use; exit 1' {port}", "", `another process uses its port\. If its output names another port, let each instance use its own port there, .*\. Its output ends with\n    bind :9090`},
		{"cd shop && node shop.js {port}", "", `exec: "cd": .*: loadgen runs the command without a shell, so cd has no effect: use sh -c`},
		{"~/shop/run {port}", "", `loadgen runs the command without a shell, so ~ in ~/shop/run is not expanded: write the complete path`},
		{"sh -c 'echo Access denied for user shop; exit 3' {port}", "", `exited before it was ready: write {db_user} and {db_password} where the command names the user and the password\. Its output`},
		{"sh -c 'echo Access denied for user shop; exit 3' {port} {db_password}", "", `exited before it was ready\. Its output`},
		{"sleep 600 {port}", "/readyz", `the user stopped the run`},
		{"sh -c 'exec sleep 600' {port}", "/readyz", `its process is running, but was not ready within 500ms: .*, and it has printed nothing$`},
		{"sh -c 'echo hello; exec sleep 600' {port}", "/readyz", `its process is running, but was not ready within 500ms: .*\. Its output ends with\n    hello$`},
	} {
		service, err := ParseService(tt.service)
		if err != nil {
			t.Fatal(err)
		}
		service.Ready = tt.ready
		said := ""
		f := New(Config{Instances: 1, Say: func(format string, args ...any) { said += fmt.Sprintf(format, args...) }}, st, 0)
		waits := strings.Contains(tt.wants, "500ms")
		switch {
		case waits:
			f.readyWithin = 500 * time.Millisecond
		case tt.ready == "/nothing":
			f.readyWithin = 12 * time.Second
		}
		if strings.Contains(tt.service, "127.0.0.2") {
			if runtime.GOOS != "linux" { // only Linux reveals which process listens on a port
				continue
			}
			f.readyWithin = 24 * time.Second
		}
		in := f.Instances[0]
		if err := in.chooseAddr(); err != nil {
			t.Fatal(err)
		}
		f.service, in.exe = &service, service.words[0]
		for _, w := range service.words[1:] {
			in.args = append(in.args, strings.ReplaceAll(w, "{port}", in.ID))
		}
		ctx := t.Context()
		if strings.HasPrefix(tt.service, "sleep") {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, 100*time.Millisecond, stopped)
			defer cancel()
		}
		began := time.Now()
		if err := in.start(ctx, in.args); err == nil || !regexp.MustCompile(tt.wants).MatchString(err.Error()) || time.Since(began) > serviceTimeout/2 {
			t.Errorf("%s: after %v: %v; want %s", tt.service, time.Since(began), err, tt.wants)
		}
		if waits && !strings.Contains(said, "is not ready after ") {
			t.Errorf("%s: the error does not say that the instance is not ready: %q", tt.service, said)
		}
	}
}

// TestArguments checks that the command line of an instance contains all settings of its fleet.
func TestArguments(t *testing.T) {
	cfg := Config{Instances: 2, Guard: order.Guarded, OnLost: grab.Ignore, PerDriver: 3, ClockOffset: 5 * time.Second}
	f := New(cfg, &stack.Stack{Dir: t.TempDir(), Addresses: stack.Addresses{DSN: "sqlite:t.db", Redis: "127.0.0.1:1"}}, 0)
	u := Setup{Work: time.Second, TTL: 2 * time.Second, Wait: 3 * time.Second, Timeout: 4 * time.Second, Control: true}
	for i, offset := range []time.Duration{0, cfg.ClockOffset} {
		in := f.Instances[i]
		in.addr, in.ID = "127.0.0.1:0", fmt.Sprint(i)
		got, err := instance.Parse(in.arguments(u)[1:])
		if err != nil {
			t.Fatal(err)
		}
		if got.Guard != cfg.Guard || got.OnLost != cfg.OnLost || got.PerDriver != cfg.PerDriver || got.ClockOffset != offset ||
			got.Work != u.Work || got.TTL != u.TTL || got.Wait != u.Wait || got.Timeout != u.Timeout || !got.Control {
			t.Errorf("instance %d gets %+v", i, got)
		}
	}
}

// TestStartedAgainWithItsStrategy checks that an instance restarts with its current strategy. A new
// instance starts with firstStrategy, which has no lock, so a restart during the load must not use it.
func TestStartedAgainWithItsStrategy(t *testing.T) {
	f := New(Config{Instances: 1}, &stack.Stack{Dir: t.TempDir()}, 0)
	in := f.Instances[0]
	fresh := in.arguments(Setup{})
	again := withStrategy(fresh, "setnx")
	at := slices.Index(again, "-strategy")
	if fresh[at+1] != firstStrategy || again[at+1] != "setnx" || len(again) != len(fresh) {
		t.Errorf("fresh %q, again %q", fresh, again)
	}
	service := []string{"app.jar", "--server.port=1"}
	if got := withStrategy(service, "rlock"); !slices.Equal(got, service) {
		t.Errorf("a user's service is restarted with %q", got)
	}
}

// TestEndLetsAnInstanceFinish checks that a process can clean up after SIGTERM, whether it is an instance of
// ours or of the user's service. Otherwise, its locks would stay on the servers.
func TestEndLetsAnInstanceFinish(t *testing.T) {
	st, _ := embedded(t)
	for _, service := range []*Service{nil, {}} {
		p, err := st.Spawn(t.Context(), fmt.Sprintf("finishing-%v", service != nil), "sh", []string{"-c", "trap 'sleep 0.1; echo done; exit 0' TERM; echo ready; while :; do sleep 0.01; done"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := wait.Until(t.Context(), 5*time.Millisecond, 20*time.Second, func() (bool, error) { return p.LogTail() != "", nil }); !ok || err != nil {
			t.Fatalf("the process does not start: %v", err)
		}
		in := &Instance{fleet: &Fleet{service: service}, proc: p}
		if err := in.end(); err != nil || !strings.Contains(p.LogTail(), "done") {
			t.Errorf("ours %v: %v, and the process has printed %q", service == nil, err, p.LogTail())
		}
	}
}
