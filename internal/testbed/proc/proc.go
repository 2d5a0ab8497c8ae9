// Package proc starts, recognizes and signals other processes. It contains everything in
// which operating systems differ. On Linux and macOS, a child leads a process group, and
// signals go to the whole group. Windows has no such groups; see proc_windows.go.
package proc

// CanStop reports whether the operating system, named as in [runtime.GOOS], can stop and
// continue a process.
func CanStop(goos string) bool { return goos != "windows" }
