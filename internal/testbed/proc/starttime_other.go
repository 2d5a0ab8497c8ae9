//go:build !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
)

// StartTime returns the time at which a process was started, in a form that can be compared. It
// returns false if the process does not exist, or if it has ended and its parent has not noticed
// yet.
func StartTime(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, began, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(began), true
}
