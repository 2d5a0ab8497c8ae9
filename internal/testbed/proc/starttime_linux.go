package proc

import (
	"bytes"
	"os"
	"strconv"
)

// StartTime returns when a process started, as a text without a fixed format. Together with the
// process id, it identifies the process. It returns false if the process has ended or never
// existed.
func StartTime(pid int) (string, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	// Count the fields after the name in parentheses, because the name may contain spaces. The
	// start time is the 20th.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return "", false
	}
	return string(fields[19]), true
}
