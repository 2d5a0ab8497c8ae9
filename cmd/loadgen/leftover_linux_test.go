package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"grablab/internal/report"
)

// However a run ends while faults strike in several workers: its processes end,
// and its folders go.
func TestNothingIsLeft(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := loadgen(t, "-only", "setnx/pause", "-only", "watchdog/slow", "-only", "mutex/slow", "-worker-stacks", "2", "-out", "x", "-seed", "1")
			startUntil(t, cmd, "[3/3]") // so one cell has ended, and two are under way
			children := childrenOf(t, cmd.Process.Pid)
			// Each worker has its reaper and two instances, once those of its cell have started.
			for end := time.Now().Add(5 * time.Second); len(children) < 6; children = childrenOf(t, cmd.Process.Pid) {
				if time.Now().After(end) {
					t.Errorf("it has the children %v", children)
					break
				}
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				left := leftOf(children)
				if len(left) == 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("there are left %q", left)
				}
			}
			if run := fits(t, read(t, cmd.Dir, "x", report.File)); run.Complete || len(run.Cells) == 0 {
				t.Errorf("kept are %d cells, complete %v", len(run.Cells), run.Complete)
			}
		})
	}
}

// child is a process, with the folder that it writes its events to.
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

// statOf is /proc/PID/stat from the state on, which follows the name: 1 is the
// parent, 19 when it began.
func statOf(proc string) []string {
	stat, _ := os.ReadFile(filepath.Join(proc, "stat"))
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}

// leftOf tells what is still there.
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
