// Package proc starts other processes, recognizes them and signals them: all that
// operating systems do differently. On Linux and macOS a child leads a process group,
// which is signalled as a whole. Windows has no such groups: see proc_windows.go.
package proc

// CanStop says whether a process can be stopped and continued on the operating system,
// by its name in [runtime.GOOS].
func CanStop(goos string) bool { return goos != "windows" }
