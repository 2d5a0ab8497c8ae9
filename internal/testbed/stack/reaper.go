package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"grablab/internal/testbed/proc"
)

const (
	reaperCommand = "stack-reaper"   // as the first argument, it makes a program the reaper
	reaperTitle   = "grablab-reaper" // at most 15 bytes, because Linux truncates longer names
)

var (
	self   string // the path of this program; empty until BeHelper has run
	errNot = errors.New("stack: this program cannot start its reaper: call stack.BeHelper at the start of main")
)

// BeHelper must be the first call in main and TestMain of every program that uses stacks. If this
// process was started as the reaper, BeHelper does the reaper's work and exits. Otherwise, it
// returns.
func BeHelper() {
	exe, err := os.Executable()
	if err == nil {
		self = exe
	}
	if len(os.Args) < 2 || os.Args[1] != reaperCommand {
		return
	}
	_ = proc.SetTitle(reaperTitle) // if this fails, pkill may also end the reaper, but a later run cleans up
	if err := reap(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// reaper is a helper process that cleans up after this process, even if SIGKILL ended it. The
// reaper ends our child processes and removes our folder. Its standard input closes when we die, so
// it notices our death.
type reaper struct {
	dir string // the reaper creates this folder, so that there is always a process that will remove it

	mu       sync.Mutex
	cmd      *exec.Cmd
	requests io.WriteCloser
	answers  *bufio.Reader
}

func startReaper() (r *reaper, err error) {
	if self == "" {
		return nil, errNot
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("stack: reaper: %w", err)
		}
	}()
	r = &reaper{cmd: exec.Command(self, reaperCommand)}
	r.cmd.Args[0] = reaperTitle
	r.cmd.Env = append(os.Environ(), "TMPDIR="+tempDir()) // an absolute path, because the reaper changes its working directory
	r.cmd.Dir = "/"
	proc.Detached(r.cmd)
	if r.requests, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.answers = bufio.NewReader(answers)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	if r.dir, err = r.answer(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// watch tells the reaper to end this process group if our process dies.
func (r *reaper) watch(pid int) error { return r.request("watch", pid) }

// forget tells the reaper that a process group has ended and need not be watched any longer.
func (r *reaper) forget(pid int) { _ = r.request("forget", pid) }

func (r *reaper) request(verb string, pid int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintln(r.requests, verb, pid)
	if err == nil {
		_, err = r.answer()
	}
	if err != nil {
		err = fmt.Errorf("stack: reaper: %w", err)
	}
	return err
}

// answer reads the reaper's answer, which is "ok" with a value, or "error" with a reason.
func (r *reaper) answer() (string, error) {
	line, err := r.answers.ReadString('\n')
	if err != nil {
		return "", err
	}
	verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if verdict != "ok" {
		return "", errors.New(rest)
	}
	return rest, nil
}

// close makes the reaper end all watched processes and remove the folder.
func (r *reaper) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests.Close()
	if err := r.cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("stack: reaper: %w", err), os.RemoveAll(r.dir))
	}
	return nil
}

// reap runs in the helper process. It keeps track of the processes to watch, and ends them when the
// parent process dies.
func reap(requests io.Reader, answers io.Writer) error {
	// Ignore signals, because the user may send them to all processes of this name. Ignore SIGPIPE,
	// because the parent may die before it reads an answer.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)

	base := tempDir()
	cleared := clearLeftovers(base)
	dir, lock, err := makeDir(base)
	if err != nil {
		fmt.Fprintln(answers, "error", err)
		return errors.Join(cleared, err)
	}
	fmt.Fprintln(answers, "ok", dir)

	watched := map[int]string{} // maps a process id to its start time
	lines := bufio.NewScanner(requests)
	for lines.Scan() {
		verb, number, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(number)
		switch {
		case err != nil || pid <= 1:
			fmt.Fprintf(answers, "error not a process: %q\n", number)
			continue
		case verb == "forget":
			delete(watched, pid)
		default:
			began, ok := proc.StartTime(pid)
			if !ok {
				fmt.Fprintf(answers, "error process %d has ended\n", pid)
				continue
			}
			watched[pid] = began
		}
		if err := noteChildren(dir, watched); err != nil {
			fmt.Fprintln(answers, "error", err)
			continue
		}
		fmt.Fprintln(answers, "ok")
	}
	return errors.Join(cleared, endAll(watched, dir), removeDir(dir), lock.Close())
}

// tempDir returns the parent folder of all run folders. If the system's temporary folder has a long
// path, it falls back to /tmp, because a socket path can have at most 103 bytes.
func tempDir() string {
	dir, err := filepath.Abs(os.TempDir())
	if err != nil || len(dir) > 60 {
		return "/tmp"
	}
	return dir
}

const (
	termTimeout = time.Second     // how long an instance may take to release its locks
	killTimeout = 5 * time.Second // how long a slow disk may delay a process's exit
)

// markOf returns the environment variable by which the reaper recognizes the processes of a run, even if they
// have left the process group in which they were started.
func markOf(dir string) string { return "GRABLAB_STACK=" + dir }

// endAll ends process groups, and the other processes of the run in dir, with SIGTERM, and then with SIGKILL if
// necessary.
func endAll(watched map[int]string, dir string) error {
	signalAll(watched, dir, syscall.SIGTERM)
	signalAll(watched, dir, syscall.SIGCONT) // a stopped process cannot end
	awaitEnd(watched, dir, termTimeout)
	signalAll(watched, dir, syscall.SIGKILL)
	if left := awaitEnd(watched, dir, killTimeout); len(left) > 0 {
		return fmt.Errorf("stack: processes %v still run after SIGKILL", left)
	}
	return nil
}

// signalAll sends a signal to the process groups, and to the other processes of the run. It skips a process ID that
// now belongs to another process.
func signalAll(watched map[int]string, dir string, sig syscall.Signal) {
	for pid, began := range watched {
		if now, ok := proc.StartTime(pid); !ok || now == began {
			_ = proc.Signal(pid, sig)
		}
	}
	for _, pid := range proc.Marked(markOf(dir)) {
		_ = syscall.Kill(pid, sig) // fails only if the process has ended
	}
}

// awaitEnd waits until the processes have ended. It returns the ids of any that still run after the
// timeout.
func awaitEnd(watched map[int]string, dir string, timeout time.Duration) []int {
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		var left []int
		for pid, began := range watched {
			if now, ok := proc.StartTime(pid); ok && now == began {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			left = proc.Marked(markOf(dir))
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// removeDir removes a folder. It tries several times, because a dying process may still create
// files there.
func removeDir(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
