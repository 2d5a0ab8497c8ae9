//go:build !linux

package proc

import "os/exec"

// EndWithParent does nothing, because this system cannot end a child with its parent.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because a process of this system cannot change its name.
func SetTitle(string) error { return nil }

// BootID returns "", because this system provides no such id.
func BootID() string { return "" }
