package proc

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Listens reports whether a process in this process group listens on a TCP port. The result known
// is false if that cannot be determined.
func Listens(group, port int) (listens, known bool) {
	sockets := map[string]bool{} // keys have the form of the links in /proc/PID/fd
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		known = true
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const local, state, inode, listening = 1, 3, 9, "0A"
			fields := strings.Fields(lines.Text())
			if len(fields) > inode && fields[state] == listening && strings.HasSuffix(fields[local], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
		_ = f.Close()
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || !known {
		return false, false
	}
	of := map[int]bool{} // whether a process belongs to the group
	for _, link := range links {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		ours, asked := of[pid]
		if !asked {
			is, err := syscall.Getpgid(pid)
			ours = err == nil && is == group
			of[pid] = ours
		}
		if !ours {
			continue
		}
		if to, err := os.Readlink(link); err == nil && sockets[to] {
			return true, true
		}
	}
	return false, true
}
