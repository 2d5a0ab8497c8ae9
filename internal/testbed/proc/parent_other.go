//go:build !linux

package proc

import "os/exec"

// EndWithParent does nothing, because this system has no such feature.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because a process cannot change its name on this system.
func SetTitle(string) error { return nil }

// BootID returns "", because this system has no such id.
func BootID() string { return "" }
