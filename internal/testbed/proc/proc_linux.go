package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// EndWithParent makes the system send SIGTERM to the child when the thread that started it ends,
// which happens at the latest when this process ends.
func EndWithParent(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGTERM }

// SetTitle changes the name that tools such as ps show for this process.
func SetTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// BootID returns an ID that changes at each boot. If it has changed, recorded process IDs are no
// longer valid.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// StartTime returns a process's start time as text. The text has no fixed format, but together with
// the process ID, it identifies the process. It returns false if there is no such process.
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

// Listens reports whether a process in this process group listens on a TCP port. If this cannot be
// determined, known is false.
func Listens(group, port int) (listens, known bool) {
	sockets := map[string]bool{} // keys have the same form as the links in /proc/PID/fd
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		known = true
		lines := bufio.NewScanner(f)
		lines.Scan() // the heading
		for lines.Scan() {
			const local, state, inode, listening = 1, 3, 9, "0A"
			fields := strings.Fields(lines.Text())
			if len(fields) <= inode || fields[state] != listening {
				break // Linux lists all listening sockets first, and there may be thousands of others
			}
			if strings.HasSuffix(fields[local], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
		_ = f.Close()
	}
	processes, err := os.ReadDir("/proc")
	if err != nil || !known {
		return false, false
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if of, err := syscall.Getpgid(pid); err != nil || of != group {
			continue
		}
		links, _ := filepath.Glob("/proc/" + p.Name() + "/fd/*")
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil && sockets[to] {
				return true, true
			}
		}
	}
	return false, true
}
