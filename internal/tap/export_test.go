package tap

import (
	"fmt"
	"io"
)

// CountRESP counts the commands of a stream that comes in pieces.
func CountRESP(pieces ...[]byte) (n uint64) {
	var c respCounter
	for _, p := range pieces {
		n += c.feed(p)
	}
	return n
}

// WriteCommand writes one command as a client does.
func WriteCommand(w io.Writer, args ...[]byte) {
	fmt.Fprintf(w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(a), a)
	}
}
