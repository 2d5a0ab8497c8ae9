//go:build !linux

package proc

import "os/exec"

// EndWithParent does nothing, because this system has no such feature.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because processes of this system cannot change their names.
func SetTitle(string) error { return nil }

// BootID returns "", because this system has no such id.
func BootID() string { return "" }
