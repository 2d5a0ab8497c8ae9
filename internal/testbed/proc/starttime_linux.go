package proc

import (
	"bytes"
	"os"
	"strconv"
)

// StartTime tells when a process was started, in a form that can be compared.
// false: there is none, or it has ended and merely waits for its parent.
func StartTime(pid int) (string, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	// The name, in parentheses, may itself hold blanks and parentheses. From the
	// state on, which follows it, the start in clock ticks is the 20th field.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return "", false
	}
	return string(fields[19]), true
}
