package proc

import (
	"bytes"
	"os"
	"strconv"
)

// StartTime returns the start time of a process as text. The text has no fixed format, but
// identifies the process together with its id. It returns false if there is no such process.
func StartTime(pid int) (string, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	// Skip the name in parentheses, because it may contain spaces. The start time is the 20th field
	// after it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return "", false
	}
	return string(fields[19]), true
}
