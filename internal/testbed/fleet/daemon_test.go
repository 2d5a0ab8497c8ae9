package fleet

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/wire"
)

// TestDaemon checks that checkReach returns an error if a process outside the instance's process groups,
// such as a daemon of the service, uses its proxy. Signals to the instance would not reach that process.
func TestDaemon(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reveals which process has a connection")
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p, err := wire.Listen(wire.Config{Server: "redis", Protocol: wire.RESP, Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", server.Addr().String()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, port, _ := net.SplitHostPort(p.Addr())
	cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+"; echo PING >&3; read -r <&3")
	proc.NewProcessGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := &wires{proxies: []*wire.Proxy{p}}
	if err := w.checkReach([]int{cmd.Process.Pid}); err != nil {
		t.Errorf("a process in a group of the instance: %v", err)
	}
	if err := w.checkReach(nil); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", cmd.Process.Pid)) {
		t.Errorf("a process in another group: %v", err)
	}
}
