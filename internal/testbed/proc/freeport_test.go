package proc_test

import (
	"net"
	"strconv"
	"testing"

	"grablab/internal/testbed/proc"
)

// TestFreeAddr checks that FreeAddr returns a free port that the system does not assign to outgoing
// connections.
func TestFreeAddr(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 20 {
		addr, err := proc.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // the port stays in use, so the next call must return another one
		_, text, _ := net.SplitHostPort(addr)
		if port, _ := strconv.Atoi(text); port < 1024 || port >= other.Addr().(*net.TCPAddr).Port && port >= 32_768 {
			t.Errorf("%s is in the range for outgoing connections", addr)
		}
	}
}

// TestTaken checks that an address is taken exactly while a process listens on it.
func TestTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if !proc.Taken(addr) {
		t.Errorf("%s is free while a process listens on it", addr)
	}
	l.Close()
	for range 2 { // the first call must not keep the address
		if proc.Taken(addr) {
			t.Errorf("%s is taken, but no process listens on it", addr)
		}
	}
}
