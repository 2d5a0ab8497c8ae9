package proc

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// EndWithParent makes the system send SIGTERM to cmd when the parent thread ends, at the latest
// when this process ends.
func EndWithParent(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGTERM }

// SetTitle changes the name that tools such as ps show for this process.
func SetTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// BootID returns an id that changes each time the system boots. A process id from an earlier boot
// has no meaning.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
