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

// SetTitle does nothing, because a process cannot change its name on this system. On Linux, a title
// protects helper processes from commands such as pkill grabsvc.
func SetTitle(string) error { return nil }

// BootID returns "", because this system has no id that changes with each boot. A later run then
// cannot know whether the system has started again since.
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

// Listens would report whether a process of a process group listens on a port. It always returns
// known false, because only Linux says which process listens.
func Listens(pgid, port int) (listens, known bool) { return false, false }
