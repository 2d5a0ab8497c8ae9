package experiment

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
)

// TestProgressLines shows the progress of two workers. Each line names the number of the test, and its fault if it has
// one. Within a test, there is at most one line every 5 s.
func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		p := newProgress(Config{Log: &b})
		p.total = 3
		one, two := &workerProgress{progress: p}, &workerProgress{progress: p}
		one.begin(&cellSpec{CellName: CellName{"setnx", catalog.NoFault}})
		two.begin(&cellSpec{CellName: CellName{"none", catalog.Pause}})
		for n := range 3 {
			one.step("%d requests", n)
			two.step("%d drivers", n)
			time.Sleep(2500 * time.Millisecond)
		}
		two.step("%d drivers", 3)
		p.say("%d file is lost", 1)
		two.begin(&cellSpec{CellName: CellName{"none", catalog.NoFault}})
		want := "[1/3] setnx\n[2/3] none/pause\n[1/3] setnx  2 requests\n1 file is lost\n[3/3] none\n"
		if got := b.String(); got != want {
			t.Errorf("progress is %q, want %q", got, want)
		}
	})
}
