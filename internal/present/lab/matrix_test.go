package lab_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/lab"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"

	"github.com/chromedp/chromedp/kb"
)

// fill returns a function that runs real cells. They are small, and each fault is injected at only one point.
func fill(t *testing.T) func(context.Context, lab.Table, io.Writer, func(string, *experiment.Run)) error {
	at, err := fault.ParsePoint("before claim 1")
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, table lab.Table, progress io.Writer, add func(string, *experiment.Run)) error {
		cfg := experiment.Config{
			Scenario: "rush", Load: load.Config{Orders: 5, Drivers: 4, Rate: 500, Timeout: 30 * time.Second, MaxWorkers: 100},
			Work: 5 * time.Millisecond, TTL: 30 * time.Second, Wait: 2 * time.Second, Budget: time.Minute, OnLost: grab.Abort,
			Stack: stack.Config{Kind: stack.Embedded}, Instances: 2, Exe: exe, Workers: 2, Seed: 1, Out: t.TempDir(), At: &at, Faults: table.Faults,
		}
		for _, name := range table.Strategies {
			s, err := lock.Find(name)
			if err != nil {
				return err
			}
			cfg.Strategies = append(cfg.Strategies, s)
		}
		_, err := experiment.Execute(ctx, cfg, func(run *experiment.Run) error {
			fmt.Fprintln(progress, "a cell is done")
			add("results/of-the-test", run)
			return nil
		})
		return err
	}
}

// testMatrix fills a matrix with the keyboard only. It checks that the cells appear one by one, and that each
// cell opens its details.
func testMatrix(t *testing.T, browser *Browser) {
	url := start(t, lab.Config{Fill: fill(t)})
	p := browser.Open(t, url+"#matrix/setnx/pause", Look{})
	p.Await("the lab", `!document.getElementById("fill").disabled && /The matrix is empty/.test(document.getElementById("matrix-answer").textContent)`)
	p.Fits()
	p.Focus("#table summary")
	p.Press(kb.Enter)
	choose := func(name string, want ...string) {
		for _, v := range eval[[]string](p, `[...document.querySelectorAll("#table [name=`+name+`]:checked")].map((i) => i.value)`) {
			if !strings.Contains(strings.Join(want, " "), v) {
				eval[bool](p, `(document.querySelector('#table [name=`+name+`][value="`+v+`"]').click(), true)`)
			}
		}
	}
	p.Focus(`#table [name=row][value="none"]`)
	p.Press(" ") // deselect the row
	choose("row", "setnx", "setnx-fenced")
	choose("column", "none", "pause")
	p.Await("the choice", `document.getElementById("rows").textContent === "setnx, setnx-fenced" && document.getElementById("fill").textContent === "Fill 4 cells"`)
	p.Focus("#fill")
	p.Press(kb.Enter)
	p.Await("some cells, and not all", `(() => { const n = document.querySelectorAll("#heat td a").length; return n > 0 && n < 4 && document.querySelectorAll("#heat td").length === 4 && !document.getElementById("stop-filling").disabled; })()`)
	p.Await("all cells", `document.getElementById("matrix-answer").textContent.startsWith("4 cells were measured, and no verdict was expected. In 1 cell, an order was grabbed more than once")`)
	p.Await("what the address names", `document.querySelector("#matrix .cell figure.diagram svg .second") && document.activeElement.className === "cell"`)
	text := eval[string](p, `document.querySelector("#matrix .cell").innerText`)
	for _, want := range []string{
		"setnx under pause", "Unsafe at 1 of the 1 point", "F11: the lease expires, and its holder writes anyway", "Points at which the fault should strike: 1", "before claim 1",
		"Latency over time", "loadgen run -strategies=setnx -faults=pause",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the details of the cell do not contain %q:\n%s", want, text)
		}
	}
	if got := eval[string](p, `document.getElementById("kept").textContent`); !strings.Contains(got, "results/of-the-test") {
		t.Errorf("the page names the result folder as %q", got)
	}
	if got := eval[string](p, `document.querySelector("#heat .marks").innerText`); !strings.Contains(got, "✗ an order was grabbed twice") || !strings.Contains(got, "⇄ the lock let two holders in") {
		t.Errorf("the legend is %q", got)
	}
	if got := eval[string](p, `document.querySelector("#heat thead").innerText`); !strings.Contains(got, "no fault") {
		t.Errorf("the columns are %q", got)
	}
	p.Screenshot("matrix")
	p.Press(kb.Escape)
	p.Await("the cell closed", `document.querySelector("#matrix .cell").hidden && location.hash === "#matrix" && decodeURIComponent(document.activeElement.hash) === "#matrix/setnx/pause"`)
	p.Press(kb.ArrowDown)
	p.Press(kb.Enter)
	p.Await("the cell below", `document.querySelector("#matrix .cell h2").textContent === "setnx-fenced under pause" && decodeURIComponent(location.hash) === "#matrix/setnx-fenced/pause"`)
	p.Await("the refused write of a safe cell", `document.querySelector("#matrix .cell figure.diagram svg .refused") && document.querySelector("#matrix .cell").innerText.includes("on which the database refused a late write")`)
	setLanguage(p, "zh")
	for selector, want := range map[string]string{
		"#matrix-answer": "1 格有订单被抢不止一次", ".cell h2": "pause 下的 setnx-fenced", ".cell .answer": "安全：故障击中的 1 个点中有 1 个", ".cell .charts": "负载开始以来的时间",
	} {
		if got := eval[string](p, `document.querySelector("#matrix `+selector+`, `+selector+`").textContent`); !strings.Contains(got, want) {
			t.Errorf("in Chinese, the text of %s is %q, want …%s…", selector, got, want)
		}
	}
	noEnglish(t, p)
	p.Screenshot("matrix-zh")
	setLanguage(p, "en")
	p.Press(kb.Escape)
	p.Press("/")
	p.Press(kb.Enter)
	if got := eval[string](p, `[...document.querySelectorAll("#heat td:not(.off) a")].map((a) => decodeURIComponent(a.hash)).join()`); got != "#matrix/setnx/pause" {
		t.Errorf("the filter leaves %s", got)
	}

	for _, look := range []Look{{Width: 390, Height: 844, Dark: true, Calm: true}} {
		narrow := browser.Open(t, url+"#matrix/setnx/pause", look)
		narrow.Await("the cell", `document.querySelector("#matrix .cell figure.diagram svg .second")`)
		narrow.Fits()
		if n := eval[int](narrow, `[...document.querySelectorAll("#heat td.safe a")].filter((a) => a.offsetHeight > 0).length`); n != 3 {
			t.Errorf("%d safe cells are shown, want 3", n)
		}
		narrow.Screenshot("matrix-390-dark")
	}
}

// TestMatrixIsAlone checks that a matrix and a live run cannot run at the same time, and that a stopped matrix
// keeps its finished cells.
func TestMatrixIsAlone(t *testing.T) {
	t.Parallel()
	url := start(t, lab.Config{Fill: fill(t)})
	ticks := stream(t, url+"/api/events")
	await(t, "ready", ticks, isIdle)
	tok := map[string]string{"X-Lab-Token": token(t, url)}
	do := func(path, body string, want int, says string) {
		t.Helper()
		if status, text := post(t, url+path, body, tok); status != want || !strings.Contains(text, says) {
			t.Errorf("POST %s: status %d %s, want %d …%s…", path, status, text, want, says)
		}
	}
	do("/api/matrix/start", `{"strategies":["setnx"],"faults":[]}`, http.StatusBadRequest, "choose at least one strategy and one fault")
	do("/api/matrix/start", `{"strategies":["etcd"],"faults":["none"]}`, http.StatusBadRequest, "etcd: needs -stack local")
	do("/api/matrix/start", `{"strategies":["setnx"],"faults":["failover"]}`, http.StatusBadRequest, "use -stack local")
	do("/api/matrix/start", `{"strategies":["x"],"faults":["none"]}`, http.StatusBadRequest, "there is no strategy")
	const live, table = `{"strategy":"setnx","fault":"none","rate":10}`, `{"strategies":["setnx"],"faults":["none","pause","slow"]}`
	do("/api/start", live, http.StatusOK, "")
	do("/api/matrix/start", table, http.StatusConflict, "a live run (view Live) is still running")
	do("/api/stop", `{}`, http.StatusOK, "")
	do("/api/matrix/start", table, http.StatusOK, "")
	do("/api/start", live, http.StatusConflict, "a matrix (view Matrix) is still running")
	await(t, "the first cell", ticks, func(tick lab.Tick) bool { return tick.Status.Doing == "a cell is done" })
	do("/api/matrix/stop", `{}`, http.StatusOK, "")
	await(t, "the end", ticks, func(tick lab.Tick) bool { return !tick.Status.Matrix.Running && tick.Status.Busy == "" })
	for _, tt := range []struct {
		path   string
		status int
		says   []string
	}{
		{"", http.StatusOK, []string{`The run is not complete.`, `setnx%2fnone`}},
		{"/setnx/none", http.StatusOK, []string{`"sentence":"Safe`}},
		{"/setnx/crash", http.StatusNotFound, []string{"has not been run"}},
	} {
		status, text := get(t, url+"/api/matrix"+tt.path)
		for _, says := range tt.says {
			if status != tt.status || !strings.Contains(text, says) {
				t.Errorf("after a stopped matrix, /api/matrix%s: %d %s, want %d …%s…", tt.path, status, text, tt.status, says)
			}
		}
	}
	do("/api/start", live, http.StatusOK, "")
}
