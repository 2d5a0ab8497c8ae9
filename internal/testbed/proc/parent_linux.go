package proc

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// EndWithParent has the system end cmd, and what it becomes, with this process. It
// does so when the thread ends that started cmd.
func EndWithParent(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGTERM }

// SetTitle changes by what name this process is found, and killed.
func SetTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// BootID changes when the system is started: process ids begin anew.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
