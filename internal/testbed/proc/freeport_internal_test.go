package proc

import (
	"net"
	"strconv"
	"testing"
)

// TestFreeBelow checks that freeBelow never returns a port that is taken. It returns a port of its range if the range is
// large enough and has free ports. Otherwise, it lets the system choose, without looking at any other port.
func TestFreeBelow(t *testing.T) {
	for _, below := range []int{0, 1, lowest, lowest + 1, lowest + atLeast - 1, lowest + atLeast, 32_768} {
		for _, every := range []int{1, 2, 3, 1 << 20} { // every nth port is taken
			asked := map[string]bool{}
			taken := func(addr string) bool {
				_, text, _ := net.SplitHostPort(addr)
				port, _ := strconv.Atoi(text)
				if asked[addr] = true; port < lowest || port >= below {
					t.Errorf("below %d: looks at %s", below, addr)
				}
				return port%every == 0
			}
			for range 20 {
				addr, err := freeBelow(below, taken)
				large := below >= lowest+atLeast
				if every == 1 { // only the system can choose a port
					delete(asked, addr)
				}
				if err != nil || asked[addr] != (large && every > 1) || asked[addr] && taken(addr) || large != (len(asked) > 0) {
					t.Errorf("below %d, every %d: %s, %v, of %d ports", below, every, addr, err, len(asked))
				}
				clear(asked)
			}
		}
	}
}

// TestEphemeral reads ranges of ports in the form of /proc, and texts that contain none.
func TestEphemeral(t *testing.T) {
	for text, want := range map[string]int{"1024\t65000\n": 1024, "40000 60000": 40000, "": 32_768, "32": 32_768, "few many": 32_768} {
		if got := ephemeral(text); got != want {
			t.Errorf("%q: the range begins at %d, want %d", text, got, want)
		}
	}
}
