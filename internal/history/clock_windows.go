package history

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Clock returns a clock that reads the host's performance counter, which all processes
// share. Go's own monotonic clock advances only every half millisecond.
func Clock() func() time.Duration {
	kernel := windows.NewLazySystemDLL("kernel32.dll")
	read := func(name string) int64 {
		var n int64
		if ok, _, err := kernel.NewProc(name).Call(uintptr(unsafe.Pointer(&n))); ok == 0 {
			panic("history: " + name + ": " + err.Error()) // every supported system has it
		}
		return n
	}
	perSecond := read("QueryPerformanceFrequency")
	return func() time.Duration {
		n := read("QueryPerformanceCounter")
		return time.Duration(n/perSecond)*time.Second + time.Duration(n%perSecond)*time.Second/time.Duration(perSecond)
	}
}
