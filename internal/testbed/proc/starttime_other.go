//go:build !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
)

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
