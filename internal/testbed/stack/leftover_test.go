package stack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/proc"
)

// sleeper starts a process that only a signal ends.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	proc.NewProcessGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// TestLeftoversAreCleared checks that a later run cleans up after a reaper that was killed. It must end
// that reaper's processes and remove its folder, but must not touch other processes and folders.
func TestLeftoversAreCleared(t *testing.T) {
	base := filepath.Join(t.TempDir(), "with [a] strange? name*")
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	left, spared, living := sleeper(t), sleeper(t), sleeper(t)
	began, ok := proc.StartTime(left.Process.Pid)
	if !ok {
		t.Fatal("no start time")
	}
	folder := func(watched map[int]string) (dir string, release func() error) {
		t.Helper()
		dir, lock, err := makeDir(base)
		if err != nil {
			t.Fatal(err)
		}
		for pid, began := range watched {
			if err := os.WriteFile(childFile(dir, pid), []byte(began), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir, lock.Close
	}
	dead, die := folder(map[int]string{left.Process.Pid: began, spared.Process.Pid: "at another time"})
	if err := die(); err != nil {
		t.Fatal(err)
	}
	began, _ = proc.StartTime(living.Process.Pid)
	alive, end := folder(map[int]string{living.Process.Pid: began})
	defer end()
	foreign := filepath.Join(base, dirPrefix+"foreign") // without a lock file
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := clearLeftovers(base); err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err == nil {
		t.Error("the leftover process ended by itself")
	}
	for _, cmd := range []*exec.Cmd{spared, living} {
		if !Alive(cmd.Process.Pid) {
			t.Errorf("process %d was ended", cmd.Process.Pid)
		}
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the folder of the killed reaper still exists: %v", err)
	}
	for _, dir := range []string{alive, foreign} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}

// TestCleanUpEndsWhatItCan checks that an incomplete list of children neither keeps the other processes alive
// nor makes every later run fail.
func TestCleanUpEndsWhatItCan(t *testing.T) {
	for what, damage := range map[string]func(list string) error{
		"complete":       func(string) error { return nil },
		"missing":        os.RemoveAll,
		"file":           func(list string) error { return errors.Join(os.RemoveAll(list), os.WriteFile(list, nil, 0o600)) },
		"foreign number": func(list string) error { return os.WriteFile(filepath.Join(list, "0"), nil, 0o600) },
		"foreign name":   func(list string) error { return os.WriteFile(filepath.Join(list, "x"), nil, 0o600) },
		"foreign folder": func(list string) error { return os.Mkdir(filepath.Join(list, "7"), 0o700) },
	} {
		dir, lock, err := makeDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		child := sleeper(t)
		began, _ := proc.StartTime(child.Process.Pid)
		list := filepath.Join(dir, childrenDir)
		if err := errors.Join(os.WriteFile(childFile(dir, child.Process.Pid), []byte(began), 0o600), damage(list)); err != nil {
			t.Fatal(err)
		}
		err = cleanUp(dir)
		if wrong := what != "complete" && what != "missing"; (err != nil) != wrong {
			t.Errorf("list of children is %s: error %v", what, err)
		}
		if listed := what != "missing" && what != "file"; Alive(child.Process.Pid) == listed {
			t.Errorf("%s: the child runs: %v", what, !listed)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: folder %s: %v", what, dir, err)
		}
	}
}

// TestEnded checks that Ended lists a server that another program has ended, but not a server that this
// program has signalled.
func TestEnded(t *testing.T) {
	s := &Stack{}
	for _, how := range []struct {
		name  string
		asked bool
	}{{"redis", false}, {"db", true}} {
		cmd := sleeper(t)
		p := &Process{Name: how.name, cmd: cmd, server: true, done: make(chan struct{})}
		go p.await(&reaper{dir: t.TempDir()})
		if how.asked {
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		} else if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		s.procs = append(s.procs, p)
	}
	ended := s.Ended()
	if len(ended) != 1 {
		t.Fatalf("Ended: got %q", ended)
	}
	if want := "redis ended at " + s.procs[0].at.Format(time.TimeOnly) + ": signal: terminated"; ended[0] != want {
		t.Errorf("Ended returned %q, want %q", ended[0], want)
	}
}
