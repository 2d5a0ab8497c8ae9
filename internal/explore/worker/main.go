// Command worker executes schedules as a child process of a search. loadgen rebuilds it when a user
// adds a lock, because it is much smaller than loadgen.
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
