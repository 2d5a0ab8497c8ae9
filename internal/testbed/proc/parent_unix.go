//go:build unix && !linux

package proc

import "os/exec"

// EndWithParent does nothing where the system cannot end a child with its parent.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing where a process cannot change its name.
func SetTitle(string) error { return nil }

// BootID is not known.
func BootID() string { return "" }
