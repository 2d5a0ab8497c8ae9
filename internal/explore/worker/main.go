// Command worker executes schedules in a child process of a search. If a user adds a lock, loadgen
// rebuilds only this small program.
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
