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
	atLeast = 1_000 // the least number of ports below the system's range; otherwise that range is used
	tries   = 100
)

// FreeAddr returns a loopback address with a free port. The port lies below the range from
// which the system takes ports by itself. Therefore no connection occupies it while a killed
// server is started again on it. Two callers can get the same port if neither listens yet.
func FreeAddr() (string, error) {
	if below := ephemeral(); below >= lowest+atLeast {
		for range tries {
			addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(below-lowest)))
			if listen(addr) == nil {
				return addr, nil
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("proc: find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// listen returns an error if no one can listen on addr.
func listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// ephemeral returns the first port that the system assigns by itself. If the system does not
// say, it returns the default of Linux, which is lower than that of IANA and macOS
// (49152).
func ephemeral() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var first, last int
	if err == nil {
		_, err = fmt.Sscan(string(text), &first, &last)
	}
	if err != nil {
		return 32_768
	}
	return first
}
