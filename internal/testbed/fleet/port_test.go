package fleet

import (
	"net"
	"runtime"
	"strconv"
	"testing"

	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
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
	run := func() *Instance {
		f := New(Config{Instances: 1, Say: func(string, ...any) {}}, &stack.Stack{}, port)
		return f.Instances[0]
	}
	first, second := run(), run()
	picks := func(in *Instance) string {
		t.Helper()
		if err := in.chooseAddr(); err != nil {
			t.Fatal(err)
		}
		return in.addr
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
