//go:build !linux

package stack

import (
	"os/exec"
	"strconv"
	"strings"
)

// startTime tells when a process was started, in a form that can be compared.
// false: there is none, or it has ended and merely waits for its parent.
func startTime(pid int) (string, bool) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, began, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", false
	}
	return strings.TrimSpace(began), true
}
