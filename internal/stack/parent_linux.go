package stack

import (
	"os"
	"strings"
	"syscall"
)

// endWithParent has the system end a child, and what it becomes, with this process. It
// does so when the thread ends that started the child.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }

// setTitle changes by what name this process is found, and killed.
func setTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// bootID changes when the system is started: process ids begin anew.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
