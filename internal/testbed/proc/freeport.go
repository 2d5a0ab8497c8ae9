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
	atLeast = 1_000 // below the system's range, else that is used
	tries   = 100
)

// FreeAddr returns a loopback address with a port that nobody has. It lies below those that the
// system gives to connections and to listeners without a port of their own: so none of
// them has it while a server that was killed is started again there. Two callers can be
// given the same one before either listens.
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

// listen says whether one can listen there.
func listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// ephemeral is the first port that the system gives away by itself: as Linux says, else
// Linux's default, which lies below that of IANA, macOS and Windows (49152).
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
