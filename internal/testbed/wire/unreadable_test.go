package wire_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/testbed/wire"
)

// fakeMySQL answers the login and every command with OK, and PREPARE with a statement of two
// parameters.
func fakeMySQL(conn net.Conn, greeting []byte) {
	defer conn.Close()
	packet := func(seq byte, payload ...byte) []byte {
		return append([]byte{byte(len(payload)), byte(len(payload) >> 8), 0, seq}, payload...)
	}
	ok := []byte{0, 0, 0, 2, 0, 0, 0}
	if _, err := conn.Write(packet(0, greeting...)); err != nil {
		return
	}
	for n := byte(0); ; n = 1 {
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		payload := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return
		}
		if n == 0 && payload[3]&0x08 != 0 { // the server would expect query attributes
			return
		}
		answer := packet(2-n, ok...)
		if n > 0 && payload[0] == 0x16 {
			answer = slices.Concat(packet(1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0), packet(2, 3, 100, 101, 102), packet(3, 3, 100, 101, 102), packet(4, 0xfe, 0, 0, 2, 0))
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// fakeRedis answers each command with OK.
func fakeRedis(conn net.Conn, _ []byte) {
	defer conn.Close()
	buf := make([]byte, 4096)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
		if _, err := conn.Write([]byte("+OK\r\n")); err != nil {
			return
		}
	}
}

// TestReadsOrSaysWhyNot checks that the proxy reads the requests of each client, or tells the user why
// it cannot.
func TestReadsOrSaysWhyNot(t *testing.T) {
	text, err := os.ReadFile("testdata/mysql2.hex") // recorded from npm mysql2 3.24.6: greeting, login, commands
	if err != nil {
		t.Fatal(err)
	}
	var recorded [][]byte
	for l := range strings.Lines(string(text)) {
		b, err := hex.DecodeString(strings.TrimSpace(l))
		if err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, b)
	}
	greeting := recorded[0]
	login := func(add, remove byte, at int) [][]byte {
		l := slices.Clone(recorded[1])
		l[4+at] = l[4+at]&^remove | add
		return [][]byte{l}
	}
	then := func(login [][]byte, packets ...string) [][]byte {
		for _, p := range packets {
			login = append(login, append([]byte{byte(len(p)), byte(len(p) >> 8), 0, 0}, p...))
		}
		return login
	}
	without := func(g []byte, upper byte) []byte { // removes some of the capabilities 24 to 31 from a greeting
		g = slices.Clone(g)
		g[bytes.IndexByte(g, 0)+1+4+8+1+2+1+2+1] &^= upper
		return g
	}
	lines := func(all ...string) (sent [][]byte) {
		for _, l := range all {
			sent = append(sent, []byte(l))
		}
		return sent
	}
	for _, tt := range []struct {
		name     string
		protocol wire.Protocol
		greeting []byte
		sent     [][]byte
		events   string
		why      string // part of what Unreadable returns
	}{
		{"npm mysql2", wire.MySQL, greeting, recorded[1:], "UPDATE orders, INSERT wins, PREPARE DELETE orders, DELETE orders, PING", ""},
		{"several statements", wire.MySQL, greeting, then(slices.Clone(recorded[1:2]), "\x03BEGIN; UPDATE orders SET a = 1; COMMIT"), "BEGIN + UPDATE orders + COMMIT", ""},
		{"a file", wire.MySQL, greeting, then(slices.Clone(recorded[1:2]), "\x03LOAD DATA INFILE '/a' INTO TABLE wins"), "LOAD DATA", ""},
		{"compressed", wire.MySQL, greeting, login(1<<5, 0, 0), "", "compresses its packets"},
		{"compressed with zstd", wire.MySQL, greeting, login(0x04, 0, 3), "", "compresses its packets"},
		{"compression that the server does not offer", wire.MySQL, without(greeting, 0x04), then(login(0x04, 0, 3), "\x03UPDATE orders SET a = 1"), "UPDATE orders", ""},
		{"results without columns", wire.MySQL, greeting, then(login(0x02, 0, 3), "\x03UPDATE orders SET a = 1"), "UPDATE orders", ""},
		{"TLS", wire.MySQL, greeting, [][]byte{{32, 0, 0, 1, 0x05, 0xae, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, "", "requires TLS"},
		{"the protocol from before 4.1", wire.MySQL, greeting, login(0, 0x02, 1), "", "older than version 4.1"},
		{"replication", wire.MySQL, greeting, then(slices.Clone(recorded[1:2]), "\x12\x04\x00\x00\x00\x00\x00\x01\x00\x00\x00"), "", "command 0x12"},

		{"inline", wire.RESP, nil, lines("set lock:61 t nx\r\n", "get lock:61\r\n"), "SET lock:61 NX, GET lock:61", ""},
		{"TLS to Redis", wire.RESP, nil, lines("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03\n"), "", "uses TLS"},
		{"binary", wire.RESP, nil, lines("\x80\x01\n"), "", "begins with the unexpected byte 0x80"},
		{"no replies", wire.RESP, nil, lines("CLIENT REPLY OFF\r\n"), "", "after the command CLIENT REPLY"},
		{"monitor", wire.RESP, nil, lines("*1\r\n$7\r\nMONITOR\r\n"), "", "after the command MONITOR"},
		{"replica", wire.RESP, nil, lines("PSYNC ? -1\r\n"), "", "after the command PSYNC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rec recorder
			serve := fakeRedis
			if tt.greeting != nil {
				serve = fakeMySQL
			}
			var p *wire.Proxy
			say := func(text string) { // Unreadable must already know the reason, and must not block
				asked := make(chan string, 1)
				go func() { asked <- p.Unreadable() }()
				select {
				case why := <-asked:
					if why != text {
						t.Errorf("the proxy tells the user %q, but Unreadable returns %q", text, why)
					}
				case <-time.After(5 * time.Second):
					t.Error("Unreadable blocks while the proxy tells the user the reason")
				}
			}
			p, err := wire.Listen(wire.Config{Server: "db", Protocol: tt.protocol, Say: say, Dial: func(context.Context) (net.Conn, error) {
				client, server := net.Pipe()
				go serve(server, tt.greeting)
				return client, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			p.Use(rec.tap)
			conn, r := dial(t, p.Addr())
			if tt.greeting != nil {
				skipPacket(t, r)
			}
			for i, b := range tt.sent {
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
				last := i == len(tt.sent)-1
				if last && tt.why != "" {
					break
				}
				if tt.greeting == nil {
					line(t, r)
					continue
				}
				skipPacket(t, r)
				if len(b) > 4 && i > 0 && b[4] == 0x16 {
					for range 3 {
						skipPacket(t, r)
					}
				}
			}
			for end := time.Now().Add(5 * time.Second); tt.why != "" && p.Unreadable() == "" && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if why := p.Unreadable(); (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) {
				t.Errorf("unreadable: %q, want %q", why, tt.why)
			}
			if events := strings.Join(rec.seen(), ", "); events != tt.events {
				t.Errorf("events %q, want %q", events, tt.events)
			}
		})
	}
}

func skipPacket(t *testing.T, r io.Reader) {
	t.Helper()
	head := make([]byte, 4)
	_, err := io.ReadFull(r, head)
	if err == nil {
		_, err = io.CopyN(io.Discard, r, int64(head[0])|int64(head[1])<<8|int64(head[2])<<16)
	}
	if err != nil {
		t.Fatal(err)
	}
}
