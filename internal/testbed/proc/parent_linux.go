package proc

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// EndWithParent makes the system send SIGTERM to cmd when the thread that started cmd ends, at the
// latest with this process.
func EndWithParent(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGTERM }

// SetTitle changes the name that tools such as ps show for this process.
func SetTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// BootID returns an id that changes each time the system boots. It shows whether a recorded process
// id is still meaningful.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
