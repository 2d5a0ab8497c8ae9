// Command worker is a child process of a search, which executes schedules, and
// nothing else. loadgen builds it with a lock of a user's own in package lock: it has
// a third of the code that the whole of loadgen would have to be compiled anew.
package main

import (
	"fmt"
	"os"

	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
)

func main() {
	os.Exit(bubble.Main(func(b explore.Bubble) int {
		if err := explore.Work(b); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}))
}
