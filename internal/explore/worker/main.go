// Command worker is a child process of a search. It only executes schedules. loadgen
// rebuilds it when a user adds a lock of their own to package lock, because it has only a
// third of loadgen's code.
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
