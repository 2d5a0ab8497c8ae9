package instance

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestCommandsAreSentOnce checks that a client does not repeat a command whose connection breaks
// before the reply. A second SET NX would find the client's own key.
func TestCommandsAreSentOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var received, written atomic.Uint64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				command := make([]byte, 1024)
				for {
					n, err := conn.Read(command)
					if err != nil {
						return
					}
					if bytes.Contains(command[:n], []byte("token")) {
						received.Add(1)
						return
					}
					for range bytes.Count(command[:n], []byte("*")) { // the handshake of a connection
						_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
					}
				}
			}()
		}
	}()
	addr := listener.Addr().String()
	c, err := newClients(Config{Redis: []string{addr}, Redlock: []string{addr}, MinIdle: 1}, &written)
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []redis.UniversalClient{c.redis, c.redlock[0]} {
		received.Store(0)
		if ok, err := client.SetNX(t.Context(), "key", "token", time.Second).Result(); err == nil {
			t.Errorf("without a reply, SetNX returned %v and no error", ok)
		}
		if n := received.Load(); n != 1 {
			t.Errorf("the server received the command %d times", n)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
