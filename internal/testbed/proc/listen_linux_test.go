package proc

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if yes, known := Listens([]int{1<<22 + 2, syscall.Getpgrp()}, port); !yes || !known {
		t.Errorf("a port of this group: %v, %v", yes, known)
	}
	if yes, known := Listens([]int{1<<22 + 1}, port); yes || !known {
		t.Errorf("a port of another group: %v, %v", yes, known)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := l.Accept() // keeps the port, but does not listen
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l.Close()
	if yes, known := Listens([]int{1<<22 + 2, syscall.Getpgrp()}, port); yes || !known {
		t.Errorf("a closed port: %v, %v", yes, known)
	}
}

// TestSharer checks that Sharer finds a child that has inherited a listening socket. From the child's side, the socket
// belongs to its ancestor, so no one shares it.
func TestSharer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if pid := Sharer(os.Getpid(), port); pid != 0 {
		t.Errorf("process %d shares a port that no other process has", pid)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := start(t, "exec sleep 60", func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{file} })
	if pid := Sharer(os.Getpid(), port); pid != cmd.Process.Pid {
		t.Errorf("process %d shares the port, want %d", pid, cmd.Process.Pid)
	}
	if pid := Sharer(cmd.Process.Pid, port); pid != 0 {
		t.Errorf("process %d shares the port of its child", pid)
	}
	if pid := Sharer(os.Getppid(), port); pid != 0 {
		t.Errorf("process %d shares a port on which its parent does not listen", pid)
	}
}

// TestSharerOfConnections checks that Sharer finds a child that has only a connection, as in a Node.js cluster, but no
// process that listens on the same port of another address.
func TestSharerOfConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pass := func(from interface{ File() (*os.File, error) }) int {
		file, err := from.File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		return start(t, "exec sleep 60", func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{file} }).Process.Pid
	}
	elsewhere, err := net.Listen("tcp", strings.Replace(l.Addr().String(), "127.0.0.1", "127.0.0.2", 1))
	if err != nil {
		t.Fatal(err)
	}
	other := pass(elsewhere.(*net.TCPListener))
	elsewhere.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if pid := Sharer(os.Getpid(), port); pid != 0 {
		t.Errorf("process %d listens on another address, but shares the port; %d has the other address", pid, other)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if pid, want := Sharer(os.Getpid(), port), pass(server.(*net.TCPConn)); pid != 0 || Sharer(os.Getpid(), port) != want {
		t.Errorf("process %d shares the port before a connection is passed, and %d after that; want %d", pid, Sharer(os.Getpid(), port), want)
	}
}

// TestWithoutPermission checks that Listens knows the files of this user's processes, even if one of them has
// ended and still waits for its parent. It must not claim to know the files of another user's process, and
// Find must not return such a process.
func TestWithoutPermission(t *testing.T) {
	const rootListens = "PROC_TEST_PORT"
	if os.Getuid() == 0 { // root may read the files of every process, so repeat the test as another user
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), fmt.Sprint(rootListens, "=", l.Addr().(*net.TCPAddr).Port))
		attr(cmd).Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the test failed as another user: %v: %s", err, out)
		}
		return
	}
	if port, err := strconv.Atoi(os.Getenv(rootListens)); err == nil {
		if yes, known := Listens([]int{syscall.Getpgrp()}, port); yes || known { // the group of the parent, which belongs to root
			t.Errorf("a port of another user: %v, %v", yes, known)
		}
		own := start(t, "exec sleep 60", NewProcessGroup)
		if yes, known := Listens([]int{own.Process.Pid}, port); yes || !known {
			t.Errorf("a port of another user, and a group of this one: %v, %v", yes, known)
		}
		if _, err := Find(os.Getppid()); err != ErrForeign {
			t.Errorf("a process of another user: %v", err)
		}
	}
	cmd := exec.Command("true")
	NewProcessGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	for {
		if _, runs := StartTime(cmd.Process.Pid); !runs {
			break
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if yes, known := Listens([]int{cmd.Process.Pid}, l.Addr().(*net.TCPAddr).Port); yes || !known {
		t.Errorf("a process that has ended: %v, %v", yes, known)
	}
}

// TestOutsider checks that Outsider finds a process that is connected to a port but belongs to none of
// the given groups. An example is a service's daemon.
func TestOutsider(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	own, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if conn, err := l.Accept(); err != nil {
		t.Fatal(err)
	} else {
		defer conn.Close()
	}
	if pid := Outsider(nil, port); pid != 0 {
		t.Errorf("process %d is connected, but only this program is", pid)
	}
	cmd := start(t, fmt.Sprintf(`exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; read -r <&3'`, port), NewProcessGroup)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if pid := Outsider(nil, port); pid != cmd.Process.Pid {
		t.Errorf("process %d is connected, want %d", pid, cmd.Process.Pid)
	}
	if pid := Outsider([]int{1 << 22, cmd.Process.Pid}, port); pid != 0 {
		t.Errorf("process %d is connected, but only the group's process is", pid)
	}
}
