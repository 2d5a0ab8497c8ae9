package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// EndWithParent makes the system send SIGTERM to the child when the thread that started it ends. At the
// latest, this thread ends together with this process.
func EndWithParent(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGTERM }

// SetTitle changes the name that tools such as ps show for this process.
func SetTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// bootID returns an ID that changes at each boot.
var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// StartTime returns a process's start time as text. The text has no fixed format, but together with
// the process ID, it identifies the process. It returns false if there is no such process.
func StartTime(pid int) (string, bool) {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return startTimeIn(stat)
}

// startTimeIn returns the start time in the contents of /proc/PID/stat. It returns false if the process has ended,
// or if there are no contents.
func startTimeIn(stat []byte) (string, bool) {
	// Skip the name in parentheses, because it may contain spaces. The start time is the 20th field
	// after it, and counts from the boot.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return "", false
	}
	return bootID() + " " + string(fields[19]), true
}

// SameBoot reports whether a process with this start time was started after the last boot.
func SameBoot(start string) bool { return strings.HasPrefix(start, bootID()+" ") }

// Groups returns pid, which leads a process group, and the other groups of its descendants.
func Groups(pid int) []int {
	groups, tree := []int{pid}, []int{pid}
	for i := 0; i < len(tree); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", tree[i])) // one list for each thread
		for _, list := range lists {
			children, _ := os.ReadFile(list)
			for _, text := range strings.Fields(string(children)) {
				child, _ := strconv.Atoi(text)
				tree = append(tree, child)
				if group, err := syscall.Getpgid(child); err == nil && !slices.Contains(groups, group) {
					groups = append(groups, group)
				}
			}
		}
	}
	return groups
}

// Marked returns the processes that have this variable, written as NAME=VALUE, in the environment with which they
// were started. Descendants inherit it, even if they have their own process group or session.
func Marked(variable string) (pids []int) {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environment, _ := os.ReadFile("/proc/" + p.Name() + "/environ") // fails if the process has ended, or belongs to another user
		if strings.Contains("\x00"+string(environment)+"\x00", "\x00"+variable+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Listens reports whether a process in one of these process groups listens on a TCP port. If this cannot be
// determined, known is false.
func Listens(groups []int, port int) (listens, known bool) {
	found, known := listeners(port)
	pid, all := holder(found, func(_, of int) bool { return slices.Contains(groups, of) })
	return pid != 0, known && (pid != 0 || all)
}

// Sharer returns another process that serves the TCP port of this one, or 0 if there is none. It may listen on the same
// address and port, or be a descendant to which this process has passed a connection, as a Node.js cluster does. An
// ancestor does not count, because a supervisor may open the socket, but leave the connections to its workers.
func Sharer(pid, port int) int {
	const local, connected = 1, "01"
	found, _ := listeners(port)
	own, family := "", ancestors(pid)
	for socket, address := range found {
		if holds, _ := holder(map[string]string{socket: address}, func(of, _ int) bool { return of == pid }); holds != 0 {
			own = address
		}
	}
	maps.DeleteFunc(found, func(_, address string) bool { return address != own })
	other, _ := holder(found, func(of, _ int) bool { return !slices.Contains(family, of) })
	if own == "" || other != 0 { // a process without a socket of its own may be behind the proxy of a container, which accepts the connections
		return other
	}
	passed, _ := sockets(local, connected, fmt.Sprintf(":%04X", port))
	other, _ = holder(passed, func(of, _ int) bool { return of != pid && slices.Contains(ancestors(of), pid) })
	return other
}

// ancestors returns the process, its parent, and so on.
func ancestors(pid int) (all []int) {
	for ; pid > 1; pid = parent(pid) {
		all = append(all, pid)
	}
	return all
}

// parent returns the parent of a process, or 0 if there is no such process.
func parent(pid int) (id int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "\nPPid:")
	_, _ = fmt.Sscan(rest, &id)
	return id
}

const listening = "0A" // a state of /proc/net/tcp

// listeners returns the sockets that listen on a TCP port.
func listeners(port int) (found map[string]string, known bool) {
	const local = 1
	return sockets(local, listening, fmt.Sprintf(":%04X", port))
}

// Outsider returns a process that is connected to one of the TCP ports of 127.0.0.1. The process
// belongs neither to these process groups nor to that of this program. If there is none, it returns 0.
func Outsider(groups []int, ports ...int) (pid int) {
	const remote, loopback, connected = 2, "0100007F", "01"
	var addresses []string
	for _, port := range ports {
		addresses = append(addresses, fmt.Sprintf("%s:%04X", loopback, port))
	}
	found, _ := sockets(remote, connected, addresses...)
	pid, _ = holder(found, func(_, of int) bool { return !slices.Contains(groups, of) && of != syscall.Getpgrp() })
	return pid
}

// sockets returns the TCP sockets that are in the given state and have one of the given addresses. column
// is the column of /proc/net/tcp that must end with the address. The result maps each socket, in the form
// of the links in /proc/PID/fd, to its text in that column.
func sockets(column int, state string, addresses ...string) (found map[string]string, known bool) {
	found = map[string]string{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		known = true
		lines := bufio.NewScanner(f)
		lines.Scan() // the names of the columns
		for lines.Scan() {
			const states, inode = 3, 9
			fields := strings.Fields(lines.Text())
			if len(fields) <= inode || state == listening && fields[states] != listening {
				break // the kernel lists the listening sockets first, and there may be many thousands of others
			}
			if fields[states] == state && slices.ContainsFunc(addresses, func(a string) bool { return strings.HasSuffix(fields[column], a) }) {
				found["socket:["+fields[inode]+"]"] = fields[column]
			}
		}
		_ = f.Close()
	}
	return found, known
}

// holder returns a process that has one of the sockets open, or 0 if there is none. It examines only
// the processes for which chosen returns true. all is false if this process may not read the open files
// of an examined process, which belongs to another user. It ignores zombies, which have no open files,
// although only root may list them.
func holder(sockets map[string]string, chosen func(pid, group int) bool) (pid int, all bool) {
	processes, _ := os.ReadDir("/proc")
	all = true
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || len(sockets) == 0 {
			continue
		}
		if group, err := syscall.Getpgid(pid); err != nil || !chosen(pid, group) {
			continue
		}
		dir := "/proc/" + p.Name() + "/fd/"
		files, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrPermission) {
			_, runs := StartTime(pid)
			all = all && !runs
		}
		for _, file := range files {
			if to, _ := os.Readlink(dir + file.Name()); sockets[to] != "" {
				return pid, all
			}
		}
	}
	return 0, all
}
