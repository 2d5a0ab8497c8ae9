package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"grablab/internal/testbed/proc"
)

const continueCommand = "stack-continue"

// ContinueAtEnd starts a helper process that continues the given stopped processes when this
// process ends, however it ends. The helper notices the end because its standard input
// closes. done makes the helper continue them at once.
func ContinueAtEnd(pids []int) (done func() error, err error) {
	if self == "" {
		return nil, errNot
	}
	cmd := exec.Command(self, continueCommand)
	for _, pid := range pids {
		cmd.Args = append(cmd.Args, strconv.Itoa(pid))
	}
	cmd.Dir = "/"
	proc.Detached(cmd)
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answer, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	done = func() error { return errors.Join(alive.Close(), cmd.Wait()) }
	if line, err := bufio.NewReader(answer).ReadString('\n'); err != nil || line != "ok\n" {
		return nil, errors.Join(fmt.Errorf("stack: %s: %s", continueCommand, strings.TrimSpace(line)), done())
	}
	return done, nil
}

// continueAtEnd runs the helper until its parent has ended.
func continueAtEnd(pids []string, parent io.Reader, answers io.Writer) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	var all []*os.Process
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	fmt.Fprintln(answers, "ok")
	_, err := io.Copy(io.Discard, parent)
	for _, p := range all {
		_ = p.Signal(proc.Continue) // it may have ended
	}
	return err
}
