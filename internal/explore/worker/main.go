// Command worker executes schedules in a child process of a search. It is small, so that loadgen
// can quickly rebuild it with a user's own lock.
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
