package proc

import (
	"bytes"
	"os"
	"strconv"
)

// StartTime returns the time at which a process was started, in a form that can be compared. It
// returns false if the process does not exist, or if it has ended and its parent has not noticed
// yet.
func StartTime(pid int) (string, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	// The name, in parentheses, may contain blanks and parentheses. Counted from the state,
	// which follows the name, the start in clock ticks is the 20th field.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return "", false
	}
	return string(fields[19]), true
}
