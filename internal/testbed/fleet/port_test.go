package fleet

import (
	"net"
	"runtime"
	"strconv"
	"testing"

	"grablab/internal/testbed/proc"
)

// TestReserve checks that two runs never choose the same port, even while nothing listens on it.
func TestReserve(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports are reserved only on Linux")
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(addr)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	first, second := &Instance{port: port}, &Instance{port: port}
	picks := func(in *Instance) string {
		t.Helper()
		got, err := in.pickAddr()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := picks(first); got != addr {
		t.Errorf("the first run gets %s, want %s", got, addr)
	}
	if got := picks(first); got != addr {
		t.Errorf("its second start gets %s, want %s", got, addr)
	}
	if got := picks(second); got == addr {
		t.Errorf("the second run gets %s too", got)
	}
	first.unreserve()
	if got := picks(second); got != addr {
		t.Errorf("after the first run has stopped, the second gets %s, want %s", got, addr)
	}
	second.unreserve()
}
