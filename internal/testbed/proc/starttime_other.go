//go:build !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
)

// StartTime returns when a process started, as a text without a fixed format. Together with the
// process id, it identifies the process. It returns false if the process has ended or never
// existed.
func StartTime(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, began, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(began), true
}
