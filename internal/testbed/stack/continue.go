package stack

import (
	"fmt"
	"os/exec"
	"strconv"

	"grablab/internal/testbed/proc"
)

// ContinueAtEnd makes sure that paused processes resume (SIGCONT) when this process ends, even if
// it is killed. The function done resumes them immediately.
func ContinueAtEnd(pids []int) (done func() error, err error) {
	cmd := exec.Command("sh", "-c", `trap "" INT TERM HUP; cat >/dev/null; kill -CONT "$@" 2>/dev/null; exit 0`, "sh")
	for _, pid := range pids {
		cmd.Args = append(cmd.Args, strconv.Itoa(pid))
	}
	cmd.Dir = "/"
	proc.Detached(cmd)
	alive, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("stack: cannot start the helper that continues stopped processes at the end: %w", err)
	}
	return func() error {
		_ = alive.Close() // fails only if the helper has already ended
		return cmd.Wait()
	}, nil
}
