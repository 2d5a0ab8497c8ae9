package proc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

const (
	lowest  = 10_000
	atLeast = 1_000 // if fewer ports than this lie below the system's range, FreeAddr uses that range
	tries   = 100
)

// FreeAddr returns a loopback address with a free port. The system does not use that port for
// outgoing connections, so a killed server can restart there. Two callers may get the same port.
func FreeAddr() (string, error) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // exists only on Linux
	return freeBelow(ephemeral(string(text)), Taken)
}

// freeBelow returns an address with a free port that is lower than below. If there are too few such ports, or all of
// those that it tries are taken, the system chooses the port.
func freeBelow(below int, taken func(addr string) bool) (string, error) {
	if below >= lowest+atLeast {
		for range tries {
			addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(below-lowest)))
			if !taken(addr) {
				return addr, nil
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("proc: cannot find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Taken reports whether addr is unavailable because another process listens on it.
func Taken(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return true
	}
	_ = l.Close()
	return false
}

// ephemeral returns the first port of the system's range for outgoing connections. If the text does not
// contain that range, it returns the Linux default.
func ephemeral(text string) int {
	var first, last int
	if _, err := fmt.Sscan(text, &first, &last); err != nil {
		return 32_768
	}
	return first
}
