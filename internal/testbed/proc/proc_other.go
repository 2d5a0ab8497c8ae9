//go:build !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
)

// EndWithParent does nothing, because this system cannot signal a child process when its parent
// ends.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because a process cannot change its name on this system. On Linux, a title
// protects helper processes from commands such as pkill grabsvc.
func SetTitle(string) error { return nil }

// StartTime returns a process's start time as text. The text has no fixed format, but together with
// the process ID, it identifies the process. It returns false if there is no such process.
func StartTime(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, began, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(began), true
}

// SameBoot always returns true, because the start time does not show the boot on this system.
func SameBoot(start string) bool { return true }

// Listens always returns known false, because only Linux reveals which process listens on a port.
func Listens(groups []int, port int) (listens, known bool) { return false, false }

// Sharer always returns 0, because only Linux reveals which process listens on a port.
func Sharer(pid, port int) int { return 0 }

// Marked always returns nil, because only Linux reveals the environment of other processes.
func Marked(variable string) (pids []int) { return nil }

// Groups returns only pid, because the descendants of a process are known only on Linux.
func Groups(pid int) []int { return []int{pid} }

// Outsider always returns 0, because only Linux reveals which process has a connection.
func Outsider(groups []int, ports ...int) (pid int) { return 0 }
