package proc

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// EndWithParent makes the system send SIGTERM to the child when the thread that starts it ends, at
// the latest at the end of this process.
func EndWithParent(cmd *exec.Cmd) { attr(cmd).Pdeathsig = syscall.SIGTERM }

// SetTitle changes the name that tools such as ps show for this process.
func SetTitle(title string) error { return os.WriteFile("/proc/self/comm", []byte(title), 0) }

// BootID returns an id that changes at each boot. If it has changed, recorded process ids have lost
// their meaning.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
