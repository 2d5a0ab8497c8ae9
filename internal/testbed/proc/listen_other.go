//go:build !linux

package proc

// Listens always returns known false, because only Linux reports which process listens on a port.
func Listens(group, port int) (listens, known bool) { return false, false }
