package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/proc"
)

// TestNothingIsLeft ends a run in several ways while its workers inject faults. It checks that all
// processes of the run end and that its temporary folders are removed.
func TestNothingIsLeft(t *testing.T) {
	alone := func(sig syscall.Signal) func(*exec.Cmd, []child) error {
		return func(cmd *exec.Cmd, _ []child) error { return cmd.Process.Signal(sig) }
	}
	for name, end := range map[string]func(*exec.Cmd, []child) error{
		"SIGINT": alone(syscall.SIGINT), "SIGHUP": alone(syscall.SIGHUP), "SIGKILL": alone(syscall.SIGKILL), "killall -9": killByName,
	} {
		t.Run(name, func(t *testing.T) {
			if (name == "SIGHUP" || name == "SIGKILL") && !proving() {
				t.Skip("this case runs only with GRABLAB_PROVE=1")
			}
			cmd := loadgen(t, "-only", "setnx/pause", "-only", "watchdog/slow", "-only", "mutex/slow", "-worker-stacks", "2", "-out", "x", "-seed", "1")
			startUntil(t, cmd, "[3/3]") // now one cell has ended, and two are running
			children := childrenOf(t, cmd.Process.Pid)
			// Each worker has a reaper, and two instances once its cell has started them.
			for end := time.Now().Add(5 * time.Second); len(children) < 6; children = childrenOf(t, cmd.Process.Pid) {
				if time.Now().After(end) {
					t.Errorf("it has the children %v", children)
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err := end(cmd, children); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			awaitNone(t, children)
			if run := fits(t, read(t, cmd.Dir, "x", report.File)); run.Complete || len(run.Cells) == 0 {
				t.Errorf("the saved run has %d cells, and complete is %v", len(run.Cells), run.Complete)
			}
		})
	}
}

// killByName kills all processes of the run that have the name of the program.
func killByName(cmd *exec.Cmd, children []child) error {
	name := commOf(fmt.Sprint(cmd.Process.Pid))
	errs := []error{cmd.Process.Kill()}
	for _, c := range children {
		if pid, err := strconv.Atoi(c.pid); err == nil && commOf(c.pid) == name {
			errs = append(errs, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	return errors.Join(errs...)
}

func commOf(pid string) string {
	name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	return string(name)
}

func awaitNone(t *testing.T, children []child) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := leftOf(children)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("these are left: %q", left)
		}
	}
}

// TestNextRunClears kills a run and its reapers. It checks that the other children still end, and that
// the next run removes the folders that are left.
func TestNextRunClears(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cmd := loadgen(t, "-only", "setnx/pause", "-only", "watchdog/slow", "-only", "mutex/slow", "-worker-stacks", "2", "-out", "x", "-seed", "1")
	startUntil(t, cmd, "[3/3]")
	children := childrenOf(t, cmd.Process.Pid)
	errs := []error{cmd.Process.Kill()}
	for _, c := range children {
		if commOf(c.pid) != commOf(fmt.Sprint(cmd.Process.Pid)) { // a reaper
			pid, err := strconv.Atoi(c.pid)
			errs = append(errs, err)
			if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) { // a reaper can end with its parent
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "grablab-*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("the killed run left no folder to clear: %v", err)
	}
	if code, _, stderr := output(t, loadgen(t, "-strategies", "none", "-orders", "1", "-drivers", "2", "-quiet", "-out", "y")); code != int(exitDone) {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	awaitNone(t, children)
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "grablab-*")); err != nil || len(left) > 0 {
		t.Errorf("the next run did not remove %v, %v", left, err)
	}
}

// child is a child process of a run, with its start time and the folder for its events.
type child struct {
	pid    string
	began  string
	folder string
}

func childrenOf(t *testing.T, parent int) (children []child) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range all {
		stat := statOf(proc)
		if len(stat) < 20 || stat[1] != fmt.Sprint(parent) {
			continue
		}
		c := child{pid: filepath.Base(proc), began: stat[19]}
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		for arg := range strings.SplitSeq(string(args), "\x00") {
			if strings.Contains(arg, "events-") {
				c.folder = filepath.Dir(arg)
			}
		}
		children = append(children, c)
	}
	return children
}

// statOf returns the fields of /proc/PID/stat from the state on, which follows the name. Field 1
// is the parent, and field 19 the start time.
func statOf(proc string) []string {
	stat, _ := os.ReadFile(filepath.Join(proc, "stat"))
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}

// leftOf returns the processes that still run and the folders that still exist.
func leftOf(children []child) (left []string) {
	for _, c := range children {
		if stat := statOf("/proc/" + c.pid); len(stat) >= 20 && stat[19] == c.began {
			left = append(left, "process "+c.pid)
		}
		if _, err := os.Stat(c.folder); c.folder != "" && !errors.Is(err, os.ErrNotExist) {
			left = append(left, c.folder)
		}
	}
	return left
}

// TestTemporaryFolders checks that the name of the temporary folder can contain special characters, and
// that its path can be relative.
func TestTemporaryFolders(t *testing.T) {
	for _, name := range []string{"with spaces", "what?", "relative"} {
		t.Run(name, func(t *testing.T) {
			cmd := loadgen(t, "-strategies", "mutex", "-orders", "1", "-drivers", "4", "-quiet", "-out", "x")
			dir := filepath.Join(cmd.Dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if name == "relative" {
				dir = name
			}
			cmd.Env = append(cmd.Env, "TMPDIR="+dir)
			if code, _, stderr := output(t, cmd); code != int(exitDone) {
				t.Errorf("exit %d: %s", code, stderr)
			}
			if left, err := os.ReadDir(filepath.Join(cmd.Dir, name)); err != nil || len(left) > 0 {
				t.Errorf("temporary files are left: %v, %v", left, err)
			}
		})
	}
}

// TestWorkshopInterrupted checks that Ctrl-C during an exercise ends all its processes and keeps the
// earlier progress.
func TestWorkshopInterrupted(t *testing.T) {
	cmd := loadgen(t, "workshop", "1", "-predict", "a", "-seed", "7")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	children := childrenOf(t, cmd.Process.Pid)
	for end := time.Now().Add(20 * time.Second); len(children) < 3; children = childrenOf(t, cmd.Process.Pid) { // a reaper and two instances
		if time.Now().After(end) {
			t.Fatalf("it has the children %v", children)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	awaitNone(t, children)
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) {
		t.Errorf("exit %d, want %d", code, int(exitInterrupted))
	}
	progress, err := workshop.ReadProgress(filepath.Join(cmd.Dir, resultsDir, progressFile), 0)
	if err != nil || progress.Seed != 7 || progress.Exercises[1].Predicted == "" || progress.Exercises[1].Ran {
		t.Errorf("ReadProgress: %+v, %v", progress, err)
	}
}

// TestTargetGoesOn checks that a target process that a run has stopped continues when the run ends, even
// if the run is killed.
func TestTargetGoesOn(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, sig := range map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			var urls, pids []string
			db := "sqlite:" + filepath.Join(t.TempDir(), "grab.db")
			for range 2 {
				addr, err := proc.FreeAddr()
				if err != nil {
					t.Fatal(err)
				}
				in := exec.Command(exe, fleet.Command, "-addr", addr, "-db", db, "-strategy", "none", "-work", "300ms")
				if err := in.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = in.Process.Kill(); _ = in.Wait() })
				urls, pids = append(urls, "http://"+addr), append(pids, fmt.Sprint(in.Process.Pid))
				awaitHealthy(t, urls[len(urls)-1])
			}
			cmd := loadgen(t, "-targets", strings.Join(urls, ","), "-target-pid", strings.Join(pids, ","), "-only", "none/pause", "-out", "x", "-seed", "1")
			var said bytes.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			isStopped := func() bool { return statOf("/proc/" + pids[1])[0] == "T" }
			awaited := func(within time.Duration, stopped bool) bool {
				for end := time.Now().Add(within); isStopped() != stopped; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						return false
					}
				}
				return true
			}
			if !awaited(20*time.Second, true) {
				t.Error("the run did not stop the target process")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(said.String())
			}
			if !awaited(5*time.Second, false) {
				t.Fatal("the target process is still stopped")
			}
			awaitHealthy(t, urls[1])
		})
	}
}

// TestLabWorkshopInterrupted checks that the Stop button and Ctrl-C end an exercise in the lab together
// with all processes that it has started.
func TestLabWorkshopInterrupted(t *testing.T) {
	l := startLab(t)
	l.awaitIdle()
	l.post("1/predict", `{"lang":"en","letter":"a"}`)
	for _, how := range []struct {
		name string
		end  func()
	}{{"Stop", func() { l.post("stop", `{}`) }}, {"Ctrl-C", l.end}} {
		before := childrenOf(t, l.cmd.Process.Pid)
		l.post("1/run", `{"lang":"en"}`)
		var children []child
		for end := time.Now().Add(20 * time.Second); len(children) < 3; { // a reaper and two instances
			if time.Now().After(end) {
				t.Fatalf("%s: it has the children %v: %+v", how.name, children, l.job())
			}
			time.Sleep(20 * time.Millisecond)
			children = nil
			for _, c := range childrenOf(t, l.cmd.Process.Pid) {
				if pid, err := strconv.Atoi(c.pid); err == nil && !slices.Contains(before, c) {
					children = append(append(children, c), childrenOf(t, pid)...)
				}
			}
		}
		how.end()
		awaitNone(t, children)
		if how.name == "Stop" {
			if j := l.job(); j.Running || !j.Stopped || j.Problem != "" {
				t.Errorf("the job is %+v", j)
			}
		}
	}
	progress, err := workshop.ReadProgress(filepath.Join(l.cmd.Dir, resultsDir, progressFile), 0)
	if err != nil || progress.Exercises[1].Predicted == "" || progress.Exercises[1].Ran {
		t.Errorf("ReadProgress: %+v, %v", progress, err)
	}
}
