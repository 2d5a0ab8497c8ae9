//go:build !linux

package stack

import "syscall"

// endWithParent does nothing where the system cannot end a child with its parent.
func endWithParent(*syscall.SysProcAttr) {}

// setTitle does nothing where a process cannot change its name.
func setTitle(string) error { return nil }

// bootID is not known.
func bootID() string { return "" }
