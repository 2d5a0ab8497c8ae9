package stack

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/wait"
)

func TestReaperSparesTheNextOwnerOfAPid(t *testing.T) {
	cmd := sleeper(t)
	if err := endAll(map[int]string{cmd.Process.Pid: "at another time"}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if !Alive(cmd.Process.Pid) {
		t.Error("the reaper has ended another process with the same ID")
	}
}

// TestReaperKnowsGroupsWithoutALeader ends a process group whose leader has ended. After a reboot, the group could
// belong to someone else, so the reaper must spare it.
func TestReaperKnowsGroupsWithoutALeader(t *testing.T) {
	own, _ := proc.StartTime(os.Getpid())
	for began, ends := range map[string]bool{own: true, "the boot before 1": runtime.GOOS != "linux"} {
		leader := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
		proc.NewProcessGroup(leader)
		out, err := leader.Output()
		if err != nil {
			t.Fatal(err)
		}
		rest, _ := strconv.Atoi(strings.TrimSpace(string(out)))
		defer syscall.Kill(rest, syscall.SIGKILL)
		signalAll(map[int]string{leader.Process.Pid: began}, t.TempDir(), syscall.SIGKILL)
		ended, _ := wait.Until(t.Context(), time.Millisecond, map[bool]time.Duration{true: 5 * time.Second, false: 50 * time.Millisecond}[ends], func() (bool, error) { return !Alive(rest), nil })
		if ended != ends {
			t.Errorf("started at %q: the group has ended: %v, want %v", began, ended, ends)
		}
	}
}

// TestReaperOutlivesItsParent checks that the reaper creates a folder, and that it ends the recorded
// child and removes the folder when its parent dies.
func TestReaperOutlivesItsParent(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	parent, alive := io.Pipe()
	hear, answers := io.Pipe()
	kept := make(chan error, 1)
	go func() { kept <- reap(parent, answers) }()

	r := &reaper{alive: alive, answers: bufio.NewReader(hear)}
	answer, err := r.answers.ReadString('\n')
	dir, ok := strings.CutPrefix(strings.TrimSpace(answer), "ok ")
	if info, err := os.Stat(dir); !ok || err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("folder %q: %v, %v", dir, info, err)
	}
	child, forgotten := sleeper(t), sleeper(t)
	r.dir = dir
	err = errors.Join(err, r.watch(child.Process.Pid), r.watch(forgotten.Process.Pid))
	r.forget(forgotten.Process.Pid)
	gone := exec.Command("true")
	if err := errors.Join(err, gone.Run(), r.watch(gone.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if watched, err := children(dir); err != nil || len(watched) != 1 || watched[child.Process.Pid] == "" {
		t.Errorf("the reaper watches %v, %v", watched, err)
	}

	alive.Close()
	select {
	case err := <-kept:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the reaper outlives its pipe")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("folder %s: %v", dir, err)
	}
	if Alive(child.Process.Pid) || !Alive(forgotten.Process.Pid) {
		t.Errorf("the child runs: %v, the forgotten process runs: %v", Alive(child.Process.Pid), Alive(forgotten.Process.Pid))
	}
}

func TestStartNeedsAHelper(t *testing.T) {
	exe := self
	self = ""
	defer func() { self = exe }()
	if _, err := Start(t.Context(), Config{Kind: Embedded}); err != errNot {
		t.Errorf("Start: got %v, want %v", err, errNot)
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ info, want string }{
		{"# Server\r\nredis_version:7.0.15\r\nprocess_id:7\r\n", "Redis 7.0.15"},
		{"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n", "Valkey 8.0.1"},
	} {
		if got := parseInfo(tt.info).version; got != tt.want {
			t.Errorf("name of %q: %q, want %q", tt.info, got, tt.want)
		}
	}
}

// TestReaperEndsChildrenInEveryState checks that the reaper sends SIGTERM to each child first, even to
// a stopped one. It must kill a child that ignores SIGTERM.
func TestReaperEndsChildrenInEveryState(t *testing.T) {
	// Another test calls reap, which makes this process ignore SIGTERM. Children would inherit that.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM)
	t.Cleanup(func() { signal.Stop(heard) })
	const heeds = `trap 'echo term >"$0"; exit' TERM; echo ready >"$0"; while :; do sleep 0.02; done`
	const ignores = `trap '' TERM; echo ready >"$0"; while :; do sleep 0.02; done`
	for _, tt := range []struct {
		name, script string
		stopped      bool
		left         string // the contents of its file at the end
	}{
		{"running", heeds, false, "term\n"},
		{"stopped", heeds, true, "term\n"},
		{"ignores SIGTERM", ignores, false, "ready\n"},
		{"stopped, and ignores SIGTERM", ignores, true, "ready\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "state")
			cmd := exec.Command("sh", "-c", tt.script, file)
			proc.NewProcessGroup(cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			if ok, err := wait.Until(t.Context(), 5*time.Millisecond, 10*time.Second, func() (bool, error) {
				text, _ := os.ReadFile(file)
				return string(text) == "ready\n", nil
			}); !ok || err != nil {
				t.Fatalf("the child does not start: %v", err)
			}
			began, ok := proc.StartTime(cmd.Process.Pid)
			if !ok {
				t.Fatal("the child has ended by itself")
			}
			if tt.stopped {
				if err := proc.Signal(cmd.Process.Pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := endAll(map[int]string{cmd.Process.Pid: began}, t.TempDir()); err != nil {
				t.Error(err)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the child is still running")
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != tt.left {
				t.Errorf("its file contains %q, %v, want %q", text, err, tt.left)
			}
		})
	}
}

// TestReaperEndsDaemons checks that the reaper ends daemons: processes that have left their process
// group and whose parents have ended. It must not end the daemons of another run.
func TestReaperEndsDaemons(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reveals the environment of other processes")
	}
	dir := t.TempDir()
	for _, of := range []string{dir, dir + "2"} {
		for _, script := range []string{"setsid sleep 60 & echo", `(setsid sh -c 'trap "" TERM; echo; while :; do sleep 0.02; done' &)`} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd := exec.Command("sh", "-c", script)
			cmd.Env, cmd.Stdout = append(os.Environ(), markOf(of)), w
			err = cmd.Start()
			w.Close()
			if err == nil {
				_, err = r.Read(make([]byte, 1))
			}
			if err = errors.Join(err, cmd.Wait(), endAll(nil, dir)); err != nil {
				t.Fatal(err)
			}
			left := proc.Marked(markOf(of))
			if (len(left) > 0) != (of != dir) {
				t.Errorf("%s: processes %v are left", script, left)
			}
			if of != dir {
				if err := endAll(nil, of); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestDaemonsAreAwaited checks that the reaper waits for a daemon like for a child, and returns its process
// ID after the timeout. Otherwise, it would kill a daemon before the daemon can clean up.
func TestDaemonsAreAwaited(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reveals the environment of other processes")
	}
	dir := t.TempDir()
	cmd := sleeper(t)
	began, ok := proc.StartTime(cmd.Process.Pid)
	if !ok {
		t.Fatal("the child has ended by itself")
	}
	daemon := exec.Command("sleep", "60")
	daemon.Env = append(os.Environ(), markOf(dir))
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	for _, tt := range []struct {
		name    string
		watched map[int]string
		want    int
	}{
		{"only a daemon", nil, daemon.Process.Pid},
		{"a daemon, and a child that has ended", map[int]string{cmd.Process.Pid: "at another time"}, daemon.Process.Pid},
		{"a daemon and a child", map[int]string{cmd.Process.Pid: began}, cmd.Process.Pid},
	} {
		if left := awaitEnd(tt.watched, dir, time.Millisecond); len(left) != 1 || left[0] != tt.want {
			t.Errorf("%s: processes %v still run, want %d", tt.name, left, tt.want)
		}
	}
	if err := endAll(nil, dir); err != nil {
		t.Error(err)
	}
	<-ended
	if left := awaitEnd(nil, dir, time.Minute); len(left) > 0 {
		t.Errorf("processes %v still run after the end", left)
	}
}
