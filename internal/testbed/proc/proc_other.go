//go:build !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
)

// EndWithParent does nothing, because this system cannot signal a child process at the end of its
// parent.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because a process cannot change its name on this system.
func SetTitle(string) error { return nil }

// BootID returns "", because this system has no id that changes with each boot.
func BootID() string { return "" }

// StartTime returns the start time of a process as text. The text has no fixed format, but
// identifies the process together with its id. It returns false if there is no such process.
func StartTime(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, began, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(began), true
}

// Listens always returns known false, because only Linux reports which process listens on a port.
func Listens(group, port int) (listens, known bool) { return false, false }
