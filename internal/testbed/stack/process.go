package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/wait"
)

// Process is a child process in its own process group. If this program dies, a helper process (the
// reaper) ends it. A Process is safe for concurrent use.
type Process struct {
	Name string

	cmd    *exec.Cmd
	log    string
	server bool           // whether it is a server of the stack
	quit   syscall.Signal // the signal that ends the process, as in server.quit

	mu    sync.Mutex // held while signaling, so that no signal reaches a later process with the same pid
	asked bool       // whether the process was asked to end
	ended bool
	at    time.Time
	err   error
	done  chan struct{}
}

// Spawn starts a program with additional environment variables, and writes its output to the file
// NAME.log.
func (s *Stack) Spawn(ctx context.Context, name, exe string, args, env []string) (*Process, error) {
	p := &Process{Name: name, log: filepath.Join(s.logs, name+".log")}
	return p, s.spawn(ctx, p, exe, args, env)
}

// spawn finds the program exe and starts it as process p. If the file cannot be
// run, the error says what the user can do.
func (s *Stack) spawn(ctx context.Context, p *Process, exe string, args, env []string) error {
	path, err := exec.LookPath(exe)
	if err != nil {
		from := ""
		if dir, failed := os.Getwd(); failed == nil && filepath.Base(exe) != exe && !filepath.IsAbs(exe) {
			from = ". The path is relative to the working directory " + dir
		}
		return fmt.Errorf("cannot start %s: %w%s", p.Name, err, from)
	}
	if err = context.Cause(ctx); err == nil {
		err = s.start(p, exec.Command(path, args...), env)
	}
	if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%w: if it is a script, begin it with #!/bin/sh", err)
	}
	if err != nil {
		return fmt.Errorf("stack: cannot start %s: %w", p.Name, err)
	}
	return nil
}

// start starts cmd as process p in a process group of its own. The process appends its output to
// p.log.
func (s *Stack) start(p *Process, cmd *exec.Cmd, env []string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	p.cmd, p.done = cmd, make(chan struct{})
	cmd.Env = slices.Concat(os.Environ(), env, []string{markOf(s.Dir)})
	cmd.Stdout, cmd.Stderr = log, log
	proc.NewProcessGroup(cmd)
	proc.EndWithParent(cmd)
	started := make(chan error)
	go func() {
		// Keep this thread until the process has ended, because the system may kill a child when the
		// thread that started it ends (see [proc.EndWithParent]).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.await(s.reaper)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	if err := s.adopt(p); err != nil {
		_ = p.Stop(0)
		return err
	}
	return nil
}

// adopt makes Close and the reaper responsible for ending p. If this process dies before that, Linux
// ends p, or the reaper finds p by its mark. macOS can do neither, so there p remains.
func (s *Stack) adopt(p *Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("the stack is closed")
	}
	s.procs = append(s.procs, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	return s.reaper.watch(p.Pid())
}

func (p *Process) await(r *reaper) {
	defer close(p.done)
	err := p.cmd.Wait()

	p.mu.Lock()
	p.ended, p.at, p.err = true, time.Now(), err
	proc.KillRest(p.Pid()) // end the processes that it has forked
	p.mu.Unlock()
	r.forget(p.Pid())
}

// Process returns the latest process with this name, or nil. The name belongs to a server, such as
// "redis" or "db", or was passed to Spawn.
func (s *Stack) Process(name string) *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Backward(s.procs) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Pid returns the process ID, which is also the process group ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process ends.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has ended. It returns nil if the exit code is 0, and an
// *exec.ExitError otherwise.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Complete is like Wait, but kills the process if ctx ends first, and then returns the cause.
func (p *Process) Complete(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		_ = p.Stop(0)
		return context.Cause(ctx)
	}
}

// ExitCode returns the exit code, or -1 if the process is running or was killed by a signal.
func (p *Process) ExitCode() int {
	if wait.IsOver(p.done) {
		return p.cmd.ProcessState.ExitCode()
	}
	return -1
}

// Signal sends a signal to the process group. If the process is not a server of the stack, the signal also reaches
// descendants in other groups. Signal returns os.ErrProcessDone if the process has already ended.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return os.ErrProcessDone
	}
	p.asked = p.asked || sig == syscall.SIGTERM || sig == syscall.SIGKILL || sig == p.quit
	if p.server { // a server ends its own children
		return proc.Signal(p.Pid(), sig)
	}
	return proc.SignalTree(p.Pid(), sig)
}

// ByItself describes when and how the process exited unexpectedly. It returns "" if the process is
// still running or was ended on purpose.
func (p *Process) ByItself() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended || p.asked {
		return ""
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Sprintf("%s ended at %s: %s", p.Name, p.at.Format(time.TimeOnly), how)
}

// Ended describes the servers that exited unexpectedly.
func (s *Stack) Ended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []string
	for _, p := range s.procs {
		if how := p.ByItself(); p.server && how != "" {
			ended = append(ended, how)
		}
	}
	return ended
}

// Stop asks the process to end and waits until it has ended. It resumes a paused process first. If
// the process still runs after grace, Stop kills it and returns an error. With a grace of 0, it
// kills the process immediately.
func (p *Process) Stop(grace time.Duration) error {
	ask := syscall.SIGTERM
	if grace == 0 && p.quit != 0 {
		ask, grace = p.quit, stopTimeout
	}
	if grace > 0 {
		_ = p.Signal(ask)
		_ = p.Signal(syscall.SIGCONT)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return nil
		case <-timer.C:
		}
	}
	killed := p.Signal(syscall.SIGKILL)
	<-p.done
	if grace > 0 && killed == nil {
		return fmt.Errorf("stack: %s did not end within %v and was killed", p.Name, grace)
	}
	return nil
}

const tailBytes = 4 << 10

// javaFrames matches the frames in the stack trace of a Java exception. A trace with several causes is so long that only
// its frames would fit in the tail.
var javaFrames = regexp.MustCompile(`(?m)^\s+(at [^(\s]+\(([^)]*\.(java|kt|scala):\d+|Native Method|Unknown Source)\).*|\.\.\. \d+ (more|common frames omitted))\n?`)

// LogTail returns the end of the process's output, at most tailBytes bytes, without Java stack frames.
func (p *Process) LogTail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return "" // a missing file means that the process has printed nothing
	}
	defer f.Close()
	before, _ := f.Seek(-8*tailBytes, io.SeekEnd) // fails if the file is shorter, which leaves the offset at 0
	tail, _ := io.ReadAll(io.LimitReader(f, 8*tailBytes))
	tail = javaFrames.ReplaceAll(tail, nil)
	if before > 0 || len(tail) > tailBytes {
		_, tail, _ = bytes.Cut(tail[max(0, len(tail)-tailBytes):], []byte("\n"))
	}
	return string(bytes.TrimSpace(tail))
}

// Quote returns the last lines of the process's output, indented, as the end of an error message.
// It returns "" if there is no output.
func (p *Process) Quote() string {
	lines := strings.Split(p.LogTail(), "\n")
	lines = lines[max(0, len(lines)-quotedLines):]
	if lines[len(lines)-1] == "" {
		return ""
	}
	return ". Its output ends with\n    " + strings.Join(lines, "\n    ")
}

const quotedLines = 20
