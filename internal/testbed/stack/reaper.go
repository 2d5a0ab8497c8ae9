package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/proc"

	"github.com/gofrs/flock"
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
//
// The folder lists our children, so a later run can clean up even if the reaper was killed too.
type reaper struct {
	dir     string // the reaper creates this folder, so that there is always a process that will remove it
	cmd     *exec.Cmd
	alive   io.WriteCloser // its standard input
	answers *bufio.Reader  // its standard output
}

// startReaper starts the reaper as a separate process, and waits until the reaper reports that it
// is ready.
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
	if r.alive, err = r.cmd.StdinPipe(); err != nil {
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
	answer, err := r.answers.ReadString('\n')
	verdict, rest, _ := strings.Cut(strings.TrimSpace(answer), " ")
	if err == nil && verdict != "ok" {
		err = errors.New(rest)
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.dir = rest
	return r, nil
}

// watch makes the reaper, or a later run, end this process group if our process dies. It returns an
// error if the reaper is dead. Concurrent calls are not allowed.
func (r *reaper) watch(pid int) error {
	_, err := r.alive.Write([]byte{'\n'})
	if err == nil {
		_, err = r.answers.ReadByte()
	}
	if began, ok := proc.StartTime(pid); ok && err == nil {
		err = os.WriteFile(childFile(r.dir, pid), []byte(began), 0o600)
	}
	if err != nil {
		err = fmt.Errorf("stack: reaper: %w", err)
	}
	return err
}

// forget undoes watch after a process group has ended.
func (r *reaper) forget(pid int) { _ = os.Remove(childFile(r.dir, pid)) }

// close makes the reaper end all watched processes and remove the folder.
func (r *reaper) close() error {
	r.alive.Close()
	if err := r.cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("stack: reaper: %w", err), os.RemoveAll(r.dir))
	}
	return nil
}

// reap runs in the helper process. It creates the run's folder and writes "ok" with the path, or
// "error" with a reason. Then it repeats every byte from the parent. When the parent dies, reap ends its
// children and removes the folder.
func reap(parent io.Reader, answers io.Writer) error {
	// Ignore signals, because the user may send them to all processes of this name. Ignore SIGPIPE,
	// because the parent may die before it reads the answer.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)

	base := tempDir()
	cleared := clearLeftovers(base)
	dir, lock, err := makeDir(base)
	if err != nil {
		fmt.Fprintln(answers, "error", err)
		return errors.Join(cleared, err)
	}
	fmt.Fprintln(answers, "ok", dir)
	_, _ = io.Copy(answers, parent) // an error means that the parent is dead
	return errors.Join(cleared, cleanUp(dir), lock.Close())
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

// With these files in a run's temporary folder, a later run can clean up after a killed one. The
// reaper locks lockFile. If the lock is free, the run is dead, so the later run ends the processes in
// childrenDir.
const (
	dirPrefix   = "grablab-"
	lockFile    = "reaper.lock"
	childrenDir = "children"
)

// childFile returns the file for a child process. Its name is the process ID, and it contains the
// process's start time.
func childFile(dir string, pid int) string {
	return filepath.Join(dir, childrenDir, strconv.Itoa(pid))
}

// makeDir creates and locks a run's folder. Until it holds the lock, the folder name begins with a
// dot, so that other runs do not remove the folder.
func makeDir(base string) (dir string, lock *flock.Flock, err error) {
	made, err := os.MkdirTemp(base, "."+dirPrefix)
	if err != nil {
		return "", nil, err
	}
	lock = flock.New(filepath.Join(made, lockFile))
	dir = filepath.Join(base, strings.TrimPrefix(filepath.Base(made), "."))
	err = errors.Join(lock.Lock(), os.Mkdir(filepath.Join(made, childrenDir), 0o700))
	if err == nil {
		err = os.Rename(made, dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, lock.Close(), os.RemoveAll(made))
	}
	return dir, lock, nil
}

// clearLeftovers cleans up after killed runs. A run was killed if its folder exists but its lock file
// is not locked.
func clearLeftovers(base string) error {
	dirs, err := fs.Glob(os.DirFS(base), dirPrefix+"*")
	if err != nil {
		return err
	}
	return errors.Join(catalog.Map(dirs, func(dir string) error { return clearLeftover(filepath.Join(base, dir)) })...)
}

func clearLeftover(dir string) error {
	info, err := os.Lstat(filepath.Join(dir, lockFile))
	if err != nil || !info.Mode().IsRegular() || !proc.IsOwn(info) {
		return nil
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR))
	free, err := lock.TryLock()
	if err != nil || !free {
		return nil // the reaper is alive, or another run has just removed this folder
	}
	return errors.Join(cleanUp(dir), lock.Close())
}

// cleanUp ends the processes of a run and removes its folder. It does both even if it cannot read the
// list of the processes, because most of them also have a mark.
func cleanUp(dir string) error {
	watched, err := children(dir)
	return errors.Join(err, endAll(watched, dir), removeDir(dir))
}

// children returns the start time of each process that the reaper watches. The folder may be missing,
// because another program may have removed it.
func children(dir string) (map[int]string, error) {
	files, err := os.ReadDir(filepath.Join(dir, childrenDir))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	watched := map[int]string{}
	for _, file := range files {
		pid, failed := strconv.Atoi(file.Name())
		if failed == nil && pid <= 1 { // kill would interpret such a number differently
			failed = fmt.Errorf("not a process: %d", pid)
		}
		began, unread := os.ReadFile(filepath.Join(dir, childrenDir, file.Name()))
		if failed = errors.Join(failed, unread); failed == nil {
			watched[pid] = string(began)
		}
		err = errors.Join(err, failed)
	}
	return watched, err
}

const (
	termTimeout = time.Second     // how long an instance may take to release its locks
	killTimeout = 5 * time.Second // how long a slow disk may delay a process's exit
)

// markOf returns the environment variable by which the reaper recognizes the processes of a run. It
// recognizes them even if they have left the process group in which they were started.
func markOf(dir string) string { return "GRABLAB_STACK=" + dir }

// endAll ends process groups, and the other processes of the run in dir, with SIGTERM, and then with SIGKILL if
// necessary. It searches for processes several times, because one search can miss a process that is being started.
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
		if now, ok := proc.StartTime(pid); now == began || !ok && proc.SameBoot(began) { // the leader of a group may have ended before the others
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
