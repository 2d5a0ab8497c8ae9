package stack_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
)

func embedded(t *testing.T) *stack.Stack {
	t.Helper()
	return start(t, stack.Config{Kind: stack.Embedded})
}

func spawn(t *testing.T, s *stack.Stack, script string, env ...string) *stack.Process {
	t.Helper()
	p, err := s.Spawn(t.Context(), strings.ReplaceAll(t.Name(), "/", "-"), "sh", []string{"-c", script}, env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcess(t *testing.T) {
	p := spawn(t, embedded(t), "echo $GREETING $$; exit 7", "GREETING=hello")
	err := p.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || p.ExitCode() != 7 {
		t.Errorf("ended with %v and %d, want exit status 7", err, p.ExitCode())
	}
	// The child must be the program, without another process in between.
	var pid int
	if got := p.LogTail(); !strings.HasPrefix(got, "hello ") {
		t.Errorf("printed %q", got)
	} else if pid = atoi(t, got[len("hello "):]); pid != p.Pid() {
		t.Errorf("the program runs as process %d, want %d", pid, p.Pid())
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the end: %v", err)
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("a stop after the end: %v", err)
	}
}

// TestEnvironment checks that a program gets all variables, even those with names that some shells drop.
func TestEnvironment(t *testing.T) {
	t.Setenv("grablab.inherited", "1")
	p, err := embedded(t).Spawn(t.Context(), "env", "env", nil, []string{"grablab.dotted=a b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(p.LogFile())
	for _, want := range []string{"grablab.inherited=1\n", "grablab.dotted=a b\n"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the environment: %v", want, err)
		}
	}
}

func TestStop(t *testing.T) {
	s := embedded(t)
	t.Run("asks first", func(t *testing.T) {
		p := spawn(t, s, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
		awaitLog(t, p, "ready")
		if err := p.Stop(20 * time.Second); err != nil || p.Wait() != nil || !strings.Contains(p.LogTail(), "bye") {
			t.Errorf("stop: %v, wait: %v, log: %q", err, p.Wait(), p.LogTail())
		}
	})
	t.Run("wakes a stopped process", func(t *testing.T) {
		p := spawn(t, s, "exec sleep 600") // with exec, because a shell cannot be stopped while it waits for a child to start
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// If both signals are pending at once, SIGTERM is delivered first.
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.Pid(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("the process is not stopped: %v, %v", status, err)
		}
		if err := p.Stop(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	t.Run("kills what does not listen", func(t *testing.T) {
		p := spawn(t, s, "trap '' TERM; echo deaf; while :; do sleep 0.01; done")
		awaitLog(t, p, "deaf")
		if err := p.Stop(50 * time.Millisecond); err == nil {
			t.Error("Stop does not report that it killed the process")
		}
		if stack.Alive(p.Pid()) {
			t.Error("the process still runs")
		}
	})
	t.Run("takes along what was forked", func(t *testing.T) {
		p := spawn(t, s, "sleep 600 & echo $!; wait")
		awaitLog(t, p, "\n")
		_ = p.Stop(0)
		child := atoi(t, p.LogTail())
		eventually(t, func() bool { return !stack.Alive(child) }, "child %d still runs", child)
	})
}

func TestSpawnFails(t *testing.T) {
	s := embedded(t)
	if _, err := s.Spawn(t.Context(), "ghost", "no-such-program", nil, nil); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("Spawn: got %v, want %v", err, exec.ErrNotFound)
	}
	_, err := s.Spawn(t.Context(), "relative", "bin/no-such-program", nil, nil)
	if dir, _ := os.Getwd(); err == nil || !strings.HasPrefix(err.Error(), "cannot start relative: ") || !strings.HasSuffix(err.Error(), ". The path is relative to the working directory "+dir) {
		t.Errorf("got %v, want an error that names the working directory", err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Spawn(t.Context(), "broken", broken, nil, nil); !errors.Is(err, syscall.ENOEXEC) || !strings.Contains(err.Error(), broken) || !strings.Contains(err.Error(), "#!/bin/sh") {
		t.Errorf("got %v, want an error that names %s and says what to do", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Spawn(ctx, "cancelled", "sleep", []string{"600"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Spawn: got %v, want %v", err, context.Canceled)
	}
	for _, pid := range s.Pids()[1:] {
		if stack.Alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// TestReaperKilled checks that a stack starts no more processes after its reaper was killed. Close must
// report this, but must still end all processes and remove the folder.
func TestReaperKilled(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded})
	if err != nil {
		t.Fatal(err)
	}
	p := spawn(t, s, "sleep 600")
	if err := proc.Signal(s.ReaperPid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Spawn(t.Context(), "orphan", "sleep", []string{"600"}, nil); err == nil {
		t.Error("the stack starts a process that no reaper watches")
	}
	if err := s.Close(); err == nil {
		t.Error("Close does not report that the reaper was killed")
	}
	if stack.Alive(p.Pid()) {
		t.Error("a child still runs")
	}
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("folder: %v", err)
	}
}

func TestLogTail(t *testing.T) {
	p := spawn(t, embedded(t), "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done")
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	tail := p.LogTail()
	if !strings.HasSuffix(tail, "\nline 2000") || !strings.HasPrefix(tail, "line ") || len(tail) > 4096 {
		t.Errorf("%d bytes, %.20q … %q", len(tail), tail, tail[len(tail)-20:])
	}
}

// TestLogTailOfJava checks that the end of a Java program's output shows the causes of an exception, even if thousands of
// stack frames are between them.
func TestLogTailOfJava(t *testing.T) {
	p := spawn(t, embedded(t), `echo 'Exception in thread "main" a.PoolException: failed'; i=0; while [ $i -lt 200 ]; do i=$((i+1)); printf '\tat a.b.C$D.<init>(C.java:%d)\n' $i; done; `+
		`printf '\tat java.base/a.B.c(Native Method)\n\t... 5 more\nCaused by: a.LinkException: at once (no reply)\n\tat a.b.C.d(C.java:7)\n\t... 9 more\n'`)
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.LogTail(), "Exception in thread \"main\" a.PoolException: failed\nCaused by: a.LinkException: at once (no reply)"; got != want {
		t.Errorf("the tail is %q, want %q", got, want)
	}
}

func awaitLog(t *testing.T, p *stack.Process, word string) {
	t.Helper()
	eventually(t, func() bool {
		text, err := os.ReadFile(p.LogFile())
		return err == nil && strings.Contains(string(text), word)
	}, "%s never printed %q", p.Name, word)
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
