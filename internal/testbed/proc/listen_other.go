//go:build !linux

package proc

// Listens reports whether a process of the group listens on a TCP port. known is always false here,
// because only Linux provides this information.
func Listens(group, port int) (listens, known bool) { return false, false }
