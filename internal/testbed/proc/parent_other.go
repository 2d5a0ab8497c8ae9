//go:build !linux

package proc

import "os/exec"

// EndWithParent does nothing, because this system cannot signal a child process at the end of its
// parent.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because a process cannot change its name on this system.
func SetTitle(string) error { return nil }

// BootID returns "", because this system has no id that changes with each boot.
func BootID() string { return "" }
