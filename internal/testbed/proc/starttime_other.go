//go:build !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
)

// StartTime returns when a process started, for comparison. It returns false if the process does
// not exist or has ended.
func StartTime(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, began, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(began), true
}
