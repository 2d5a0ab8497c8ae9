package stack_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// parentEnv is an environment variable. If it is set, this test binary starts a stack and then dies in
// the way that the value names.
const parentEnv = "GRABLAB_TEST_PARENT"

func TestMain(m *testing.M) {
	stack.BeHelper()
	if how := os.Getenv(parentEnv); how != "" {
		beParent(how)
	}
	stacktest.Main(m)
}

const everything = lock.Redis | lock.RedisQuorum | lock.SQL

func start(t *testing.T, cfg stack.Config) *stack.Stack {
	t.Helper()
	s, err := stack.Start(t.Context(), cfg)
	stacktest.Check(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStartAndClose(t *testing.T) {
	for _, kind := range []string{stack.Embedded, stack.Local} {
		t.Run(kind, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			s := start(t, stack.Config{Kind: kind, Needs: everything})

			addrs := append([]string{s.Redis}, s.Redlock...)
			if len(addrs) != 6 {
				t.Errorf("%d Redis servers, want 1 and 5", len(addrs))
			}
			seen := map[string]bool{}
			for _, addr := range addrs {
				seen[addr] = true
				if err := ping(addr); err != nil {
					t.Errorf("ping(%s): %v", addr, err)
				}
			}
			if len(seen) != 6 {
				t.Errorf("servers share an address: %v", addrs)
			}
			if err := query(s.DSN); err != nil {
				t.Errorf("query(%s): %v", s.DSN, err)
			}
			if info, err := os.Stat(s.Dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("folder: %v, %v", info, err)
			}
			for _, v := range []string{s.RedisVersion, s.DatabaseVersion} {
				if strings.Contains(v, "(embedded)") != (kind == stack.Embedded) || !strings.ContainsAny(v, " ") {
					t.Errorf("version %q", v)
				}
			}

			pids := s.Pids()
			for range 2 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			checkGone(t, s, pids, addrs)
			if _, err := s.Spawn(t.Context(), "late", "true", nil, nil); err == nil {
				t.Error("a closed stack starts a process")
			}
			goleak.VerifyNone(t, ignore)
		})
	}
}

// badConfig is a change that makes a valid config invalid, and the error that Start must return.
type badConfig struct {
	name   string
	change func(*stack.Config)
	is     error
	want   string // a part of the error's text
}

func failsToStart(t *testing.T, cfg stack.Config, all []badConfig) {
	t.Helper()
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			cfg := cfg
			tt.change(&cfg)
			_, err := stack.Start(t.Context(), cfg)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %v that says %q", err, tt.is, tt.want)
			}
		})
	}
}

// checkGone checks that nothing is left of a stack that was closed.
func checkGone(t *testing.T, s *stack.Stack, pids []int, addrs []string) {
	t.Helper()
	for _, pid := range pids {
		if stack.Alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
	for _, addr := range addrs {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Errorf("%s still listens", addr)
		}
	}
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("folder: %v", err)
	}
}

// TestStartsOnlyWhatIsNeeded checks that a stack starts no Redis server that the config does not need.
func TestStartsOnlyWhatIsNeeded(t *testing.T) {
	s := start(t, stack.Config{Kind: stack.Embedded})
	if s.Redis != "" || s.Redlock != nil || s.RedisVersion != "" {
		t.Errorf("Redis %q, Redlock %v, %q", s.Redis, s.Redlock, s.RedisVersion)
	}
	s = start(t, stack.Config{Kind: stack.Embedded, Needs: lock.RedisQuorum})
	if s.Redis != "" || len(s.Redlock) != 5 {
		t.Errorf("Redis %q, Redlock %v", s.Redis, s.Redlock)
	}
}

func ping(addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	return c.Ping(context.Background()).Err()
}

func query(dsn string) error {
	driver := "mysql"
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		driver, dsn = "sqlite", path
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (n INT)")
	return err
}

func TestTwoStacksAtOnce(t *testing.T) {
	one := stacktest.Local(t)
	two := start(t, stack.Config{Kind: stack.Local, Needs: lock.Redis})
	if one.Dir == two.Dir || one.Redis == two.Redis || one.DSN == two.DSN {
		t.Fatalf("the stacks share a folder or a server: %+v, %+v", one, two)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ping(one.Redis); err != nil {
		t.Errorf("the other stack: %v", err)
	}
}

// TestServerDies checks that a stack does not restart servers that were killed, and that it can still
// be closed.
func TestServerDies(t *testing.T) {
	stacktest.Local(t)
	s := start(t, stack.Config{Kind: stack.Local, Needs: lock.Redis})
	for _, name := range []string{"redis", "db"} {
		p := s.Process(name)
		if p == nil {
			t.Fatalf("no process %s", name)
		}
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
	}
	if ping(s.Redis) == nil || query(s.DSN) == nil {
		t.Error("a killed server answers")
	}
	if p := s.Process("redlock-1"); p != nil {
		t.Errorf("process %v runs, although it is not needed", p)
	}
}

// TestEmbeddedTTL checks that a key in the embedded Redis expires after its TTL. The test reads the
// clock before and after each request, because the server handles the request at some time between.
func TestEmbeddedTTL(t *testing.T) {
	const ttl, tolerance = 300 * time.Millisecond, 5 * time.Millisecond
	s := start(t, stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	c := redis.NewClient(&redis.Options{Addr: s.Redis})
	defer c.Close()
	ctx := t.Context()

	before := time.Now()
	if err := c.Set(ctx, "lock", "token", ttl).Err(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	for alive := true; alive; {
		asked := time.Now()
		left, err := c.PTTL(ctx, "lock").Result()
		if err != nil {
			t.Fatal(err)
		}
		if alive = left >= 0; alive && asked.Sub(after) > ttl+tolerance {
			t.Fatalf("the key still exists after %v", asked.Sub(after))
		}
		if lived := time.Since(before); !alive && lived < ttl-tolerance {
			t.Fatalf("the key has expired after %v", lived)
		}
		if alive && left > ttl-asked.Sub(after)+tolerance {
			t.Fatalf("the key has %v left after %v", left, asked.Sub(after))
		}
	}
	if ok, err := c.SetNX(ctx, "lock", "next", ttl).Result(); !ok || err != nil {
		t.Errorf("an expired lock cannot be acquired: %v, %v", ok, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		cfg  stack.Config
		want string
	}{
		{stack.Config{Kind: "imaginary"}, "embedded, local, external"},
		{stack.Config{Kind: stack.Embedded, Needs: lock.ZooKeeper}, "no ZooKeeper: use -stack local"},
		{stack.Config{Kind: stack.Embedded, Needs: lock.Redis | lock.Etcd}, "no etcd: use -stack local"},
		{stack.Config{Kind: stack.Embedded, Needs: lock.SQL | lock.SQLLocks}, "no row locks or named locks, because SQLite locks its whole file: use -stack local"},
		{stack.Config{Kind: stack.External, Needs: lock.Redis}, "-redis"},
		{stack.Config{Kind: stack.External, Needs: lock.RedisQuorum, Addresses: stack.Addresses{Redlock: []string{"127.0.0.1:1"}}}, "-redlock"},
		{stack.Config{Kind: stack.External, Needs: lock.SQL}, "-db"},
	} {
		_, err := stack.Start(t.Context(), tt.cfg)
		if !errors.Is(err, stack.ErrRefused) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want a refusal that says %q", tt.cfg, err, tt.want)
		}
	}
}

func TestExternal(t *testing.T) {
	local := stacktest.Local(t)
	cfg := stack.Config{Kind: stack.External, Needs: everything, Addresses: local.Addresses}

	s := start(t, cfg)
	if s.RedisVersion != local.RedisVersion || s.DatabaseVersion != local.DatabaseVersion {
		t.Errorf("%s and %s, want %s and %s", s.RedisVersion, s.DatabaseVersion, local.RedisVersion, local.DatabaseVersion)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ping(local.Redis); err != nil {
		t.Errorf("Close has stopped an external server: %v", err)
	}

	closed := closedAddr(t)
	failsToStart(t, cfg, []badConfig{
		{"no Redis", func(c *stack.Config) { c.Redis = closed }, stack.ErrUnreachable, closed},
		{"a node is down", func(c *stack.Config) { c.Redlock = append([]string{closed}, c.Redlock...) }, stack.ErrUnreachable, closed},
		{"no database", func(c *stack.Config) { c.DSN = "root@tcp(" + closed + ")/grablab" }, stack.ErrUnreachable, closed},
		{"no Redis there", func(c *stack.Config) { c.Redis = mysqlAddr(t, local.DSN) }, stack.ErrUnreachable, "Redis at"},
		{"one node twice", func(c *stack.Config) {
			c.Redlock = append(c.Redlock[:3:3], "localhost"+c.Redlock[0][len("127.0.0.1"):])
		}, stack.ErrRefused, "the same server"},
	})
}

// closedAddr returns a loopback address at which nothing listens.
func closedAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func mysqlAddr(t *testing.T, dsn string) string {
	_, rest, ok := strings.Cut(dsn, "tcp(")
	addr, _, ok2 := strings.Cut(rest, ")")
	if !ok || !ok2 {
		t.Fatalf("no address in %q", dsn)
	}
	return addr
}

func TestMissingPrograms(t *testing.T) {
	stack.OnlyPATH(t, t.TempDir())
	_, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: lock.Redis})
	if !errors.Is(err, stack.ErrMissing) {
		t.Fatalf("Start: got %v, want %v", err, stack.ErrMissing)
	}
	for _, want := range []string{"redis-server", "mariadbd", "apt-get install redis-server mariadb-server", "brew install redis mariadb"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// fake makes the stack run a shell script instead of the named program.
func fake(t *testing.T, program, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func realPath(t *testing.T, program string) string {
	t.Helper()
	stacktest.Local(t) // skips the test if programs are missing
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err)
	}
	return path
}

func TestAFailedStartShowsTheLog(t *testing.T) {
	stacktest.Local(t)
	fake(t, "redis-server", "echo the disk is made of cheese; exit 3\n")
	_, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: lock.Redis})
	if err == nil || !strings.Contains(err.Error(), "made of cheese") {
		t.Errorf("Start: got %v", err)
	}
}

func TestAPortThatIsTakenIsTriedAgain(t *testing.T) {
	redis := realPath(t, "redis-server")
	mark := filepath.Join(t.TempDir(), "failed")
	fake(t, "redis-server", fmt.Sprintf("if mkdir %s; then echo bind: Address already in use; exit 1; fi\nexec %s \"$@\"\n", mark, redis))
	s := start(t, stack.Config{Kind: stack.Local, Needs: lock.Redis})
	if _, err := os.Stat(mark); err != nil {
		t.Fatalf("the first try did not fail: %v", err)
	}
	if err := ping(s.Redis); err != nil {
		t.Error(err)
	}
}

// TestAServerThatIsNotOursIsNotUsed checks that Start fails if a process outside the started process
// group answers on the port. A child in the group may answer, so a script can start the server.
func TestAServerThatIsNotOursIsNotUsed(t *testing.T) {
	redis := realPath(t, "redis-server")
	pids := filepath.Join(t.TempDir(), "pids")
	fake(t, "redis-server", fmt.Sprintf("%s \"$@\" &\necho $! >> %s\nwait\n", redis, pids))
	s, err := stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: lock.Redis})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ping(s.Redis), s.Close()); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	child := atoi(t, string(text))
	eventually(t, func() bool { return !stack.Alive(child) }, "server %d still runs", child)

	pids += "-outside"
	fake(t, "redis-server", fmt.Sprintf("setsid %s \"$@\" &\necho $! >> %s\nwait\n", redis, pids))
	_, err = stack.Start(t.Context(), stack.Config{Kind: stack.Local, Needs: lock.Redis})
	if err == nil || !strings.Contains(err.Error(), "answers at this address") {
		t.Errorf("Start: got %v", err)
	}
	text, err = os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_ = syscall.Kill(atoi(t, line), syscall.SIGKILL)
	}
}

// TestMySQLIsInitialisedByItself checks how the stack runs MySQL, which creates its own system tables.
// A script passes the commands to MariaDB, so the test does not need MySQL.
func TestMySQLIsInitialisedByItself(t *testing.T) {
	server, install := realPath(t, "mariadbd"), realPath(t, "mariadb-install-db")
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in
*--version*) echo "mysqld  Ver 8.4.3 for Linux on x86_64 (MySQL Community Server - GPL)" ;;
*--initialize-insecure*) exec %s $1 $2 $3 $4 ;;
*) exec %s "$@" ;;
esac
`, install, server)
	if err := os.WriteFile(filepath.Join(dir, "mysqld"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	stack.OnlyPATH(t, dir+":/bin:/usr/bin")
	s := start(t, stack.Config{Kind: stack.Local})
	if err := query(s.DSN); err != nil {
		t.Error(err)
	}
}

// TestCancelledStart checks that a start leaves no process and no file if it is cancelled, at several
// steps.
func TestCancelledStart(t *testing.T) {
	stacktest.Local(t)
	for _, at := range []string{"db-install", "redis", "redlock-3", "db"} {
		t.Run(at, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			starting, returned := context.WithCancel(t.Context())
			defer returned()
			// pids has all processes that the stack has started until Start returned. Some may have started after the
			// cancellation.
			pids := map[int]bool{}
			var watch sync.WaitGroup
			watch.Go(func() {
				dir := ""
				for ; starting.Err() == nil; time.Sleep(time.Millisecond) {
					if logs, _ := filepath.Glob(filepath.Join(os.TempDir(), "grablab-*", at+".log")); len(logs) > 0 {
						dir = filepath.Dir(logs[0])
					}
					if dir == "" {
						continue
					}
					for _, pid := range childrenIn(dir) {
						pids[pid] = true
						cancel()
					}
				}
			})
			s, err := stack.Start(ctx, stack.Config{Kind: stack.Local, Needs: everything})
			returned()
			watch.Wait()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("Start: got %v, %v", s, err)
			}
			for pid := range pids {
				if stack.Alive(pid) {
					t.Errorf("process %d still runs", pid)
				}
			}
			if len(pids) == 0 {
				t.Error("the stack started nothing")
			}
			mustBeEmpty(t, os.TempDir())
		})
	}
}

// childrenIn returns the IDs of the processes that the stack in this folder has started.
func childrenIn(dir string) (pids []int) {
	files, _ := os.ReadDir(filepath.Join(dir, "children"))
	for _, file := range files {
		if pid, err := strconv.Atoi(file.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

func eventually(t *testing.T, ok func() bool, format string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf(format, args...)
		}
	}
}

// A parentReport lists the folder and the processes of a stack. A parent prints it before it dies.
type parentReport struct {
	Dir  string
	Pids []int
}

// beParent starts a stack with children that are hard to end. Then it dies, or waits to be killed.
func beParent(how string) {
	report, err := raiseChildren(context.Background())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch how {
	case "panic":
		go func() { panic("not caught") }()
	case "exit":
		os.Exit(0)
	}
	select {}
}

func raiseChildren(ctx context.Context) (parentReport, error) {
	s, err := stack.Start(ctx, stack.Config{Kind: stack.Local, Needs: everything})
	if err != nil {
		return parentReport{}, err
	}
	const deaf = `trap "" TERM; echo $$; while :; do sleep 1; done`
	children := map[string]*stack.Process{}
	for name, script := range map[string]string{
		"deaf":    deaf,
		"stopped": "echo $$; sleep 600",
		"leader":  "sh -c '" + deaf + "' & wait", // its child ignores SIGTERM and therefore outlives it
	} {
		if children[name], err = s.Spawn(ctx, name, "sh", []string{"-c", script}, nil); err != nil {
			return parentReport{}, err
		}
	}
	pids := s.Pids()
	for _, p := range children {
		for p.LogTail() == "" {
			time.Sleep(time.Millisecond)
		}
		pid, err := strconv.Atoi(p.LogTail())
		if err != nil {
			return parentReport{}, err
		}
		pids = append(pids, pid)
	}
	return parentReport{s.Dir, pids}, children["stopped"].Signal(syscall.SIGSTOP)
}

// TestParentDies checks that a stack's processes and folder disappear if the program that started it
// exits, panics or is killed.
func TestParentDies(t *testing.T) {
	stacktest.Local(t)
	for _, how := range []string{"exit", "panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), parentEnv+"="+how)
			var complaint strings.Builder
			parent.Stderr = &complaint
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = parent.Process.Kill()
				_ = parent.Wait()
				if t.Failed() {
					t.Logf("stderr of the parent: %s", &complaint)
				}
			}()
			var report parentReport
			if err := json.NewDecoder(out).Decode(&report); err != nil {
				t.Fatal(err)
			}
			if len(report.Pids) < 1+7+3+3 {
				t.Fatalf("only %d processes", len(report.Pids))
			}
			if how == "kill" {
				_ = parent.Process.Signal(syscall.SIGKILL)
			}
			for _, pid := range report.Pids {
				eventually(t, func() bool { return !stack.Alive(pid) }, "process %d still runs", pid)
			}
			eventually(t, func() bool { _, err := os.Stat(report.Dir); return os.IsNotExist(err) }, "folder %s is still there", report.Dir)
		})
	}
}

// TestNothingHasEnded checks that Ended does not list the programs that a stack runs only to set up a
// server.
func TestNothingHasEnded(t *testing.T) {
	if ended := stacktest.Local(t).Ended(); len(ended) > 0 {
		t.Errorf("ended: %q", ended)
	}
}

// TestServerEndsAtStart checks the error for a server that ends immediately. It must contain the path
// of the program, its exit status and its output.
func TestServerEndsAtStart(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "redis-server")
	if err := os.WriteFile(exe, []byte("#!/bin/sh\necho out of luck; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := stack.Start(t.Context(), stack.Config{Kind: stack.External})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.ServeRedis(t.Context(), exe)
	for _, want := range []string{exe, "exit status 3", "out of luck", "make sure that this program starts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
