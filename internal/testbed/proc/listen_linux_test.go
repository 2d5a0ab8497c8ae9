package proc

import (
	"net"
	"syscall"
	"testing"
)

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if yes, known := Listens(syscall.Getpgrp(), port); !yes || !known {
		t.Errorf("of this group: %v, %v", yes, known)
	}
	if yes, known := Listens(1<<22+1, port); yes || !known {
		t.Errorf("of another group: %v, %v", yes, known)
	}
	l.Close()
	if yes, known := Listens(syscall.Getpgrp(), port); yes || !known {
		t.Errorf("closed: %v, %v", yes, known)
	}
}
