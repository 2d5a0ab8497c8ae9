package proc_test

import (
	"net"
	"strconv"
	"testing"

	"grablab/internal/testbed/proc"
)

// The port that FreeAddr returns is free, and no connection of another program gets it.
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
		defer l.Close() // so that the next one is another
		_, text, _ := net.SplitHostPort(addr)
		if port, _ := strconv.Atoi(text); port < 1024 || port >= other.Addr().(*net.TCPAddr).Port && port >= 32_768 {
			t.Errorf("%s lies among the ports of connections", addr)
		}
	}
}
