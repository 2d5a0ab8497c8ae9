package lab_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
	"grablab/internal/present/report"
	"grablab/internal/testbed/load"

	"github.com/chromedp/chromedp/kb"
)

// badDay returns a run with several faults that has each kind of cell. The tests of package report
// write the file.
func badDay(t *testing.T) *experiment.Run {
	t.Helper()
	text, err := os.ReadFile("../report/testdata/badday.json")
	if err != nil {
		t.Fatal(err)
	}
	run := new(experiment.Run)
	if err := json.Unmarshal(text, run); err != nil {
		t.Fatal(err)
	}
	return run
}

// pageOf writes a page to a file, and returns its URL.
func pageOf(t *testing.T, render func(io.Writer) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	if err == nil {
		err = render(f)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

func htmlOf(r *experiment.Run) func(io.Writer) error {
	return func(w io.Writer) error { return report.HTML(w, r) }
}

func TestPages(t *testing.T) {
	browser := newBrowser(t)
	found := exploration(t, "setnx", catalog.OneWinner, 2, catalog.Pause)
	schedule := func(w io.Writer) error { return report.ExploredHTML(w, found) }

	t.Run("steps of a schedule", func(t *testing.T) {
		p := browser.Open(t, pageOf(t, schedule), Look{})
		p.Await("a drawing", `document.querySelector("figure.diagram svg .second")`)
		steps := found.Found().Failures[0].Drawing.Steps
		lost := slices.IndexFunc(steps, func(s diagram.Step) bool { return s.Lost })
		at := func(step int) {
			t.Helper()
			want := fmt.Sprintf("step %d of %d", step, len(steps))
			if got := eval[string](p, `document.querySelector(".stepper output").textContent`); got != want {
				t.Errorf("the page shows %s, want %s", got, want)
			}
		}
		at(lost + 1)
		p.Focus(".stepper")
		p.Press(kb.Home)
		p.Press(kb.ArrowRight)
		at(2)
		if got := eval[string](p, `document.querySelector(".now .new").textContent`); !strings.HasPrefix(got, "redis: grab:setnx:{1} = ") {
			t.Errorf("new at step 2 is %q", got)
		}
		p.Press("l")
		at(lost + 1)
		p.Press(kb.ArrowLeft)
		at(lost)
	})
	t.Run("cells of a run by keys", func(t *testing.T) {
		p := browser.Open(t, pageOf(t, htmlOf(badDay(t))), Look{Calm: true})
		p.Await("the filters", `!document.querySelector(".filters").hidden`)
		at := func() string {
			return eval[string](p, `decodeURIComponent(document.activeElement.hash || "")`)
		}
		if n := eval[int](p, `document.querySelectorAll(".matrix a[tabindex='0']").length`); n != 1 {
			t.Errorf("%d cells are in the order of the Tab key, want 1", n)
		}
		p.Focus(`.matrix a[tabindex="0"]`)
		p.Press(kb.ArrowDown)
		if got := at(); got != "#setnx/none" {
			t.Errorf("down: %s", got)
		}
		p.Press(kb.ArrowRight)
		p.Press(kb.Enter)
		p.Await("its drawing", `document.querySelector(".cell figure.diagram svg .gap")`)
		text := eval[string](p, `document.querySelector(".cell").innerText`)
		for _, want := range []string{
			"setnx under pause", "Unsafe, 6 extra grabs", "as expected", "F11: the lease expires, and its holder writes anyway", "cure", "a fencing token",
			"loadgen run '-out=a folder' -strategies=setnx -faults=pause", "writes itself as the winner: <b>|",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the details of the cell do not contain %q:\n%s", want, text)
			}
		}
		if got := eval[string](p, `document.querySelector(".cell figure.diagram svg").getAttribute("aria-label")`); got != "setnx/pause: order 3" {
			t.Errorf("the drawing's name is %q", got)
		}
		p.Press(kb.Escape)
		p.Await("the cell closed", `document.querySelector(".cell").hidden && decodeURIComponent(document.activeElement.hash) === "#setnx/pause"`)

		p.Focus(`[data-filter="stuck"]`)
		p.Press(kb.Enter)
		if got := eval[string](p, `[...document.querySelectorAll(".matrix td:not(.off) a")].map((a) => decodeURIComponent(a.hash)).join()`); got != "#setnx-nottl/crash" {
			t.Errorf("the filter leaves %s", got)
		}
	})
	t.Run("points and latencies", func(t *testing.T) {
		r := badDay(t)
		c := &r.Cells[slices.IndexFunc(r.Cells, func(c experiment.Cell) bool { return c.Strategy == "watchdog" })]
		c.Strikes = []experiment.Window{{FromMS: 12, ToMS: new(31.0)}, {FromMS: 40}}
		c.OverTime = &load.OverTime{
			SliceMS: 20, N: []int{300, 0, 200}, P50: []*float64{new(1.0), nil, new(2.0)}, P99: []*float64{new(9.0), nil, new(2000.0)},
			SentP50: []*float64{new(0.5), nil, new(2.0)}, SentP99: []*float64{new(8.0), nil, new(10.0)},
		}
		p := browser.Open(t, pageOf(t, htmlOf(r))+"#watchdog/pause", Look{})
		p.Await("charts", `document.querySelectorAll(".cell .charts figure").length === 2`)
		if got := eval[string](p, `[...document.querySelectorAll(".cell tbody tr")].slice(0, 3).map((r) => r.innerText.replace(/\s+/g, " ")).join("; ")`); !strings.Contains(got, "1 unsafe 1/1 1 0 1 0") {
			t.Errorf("points: %s", got)
		}
		if got := eval[string](p, `[...document.querySelectorAll(".cell details summary")].map((e) => e.textContent).filter((text) => /point/.test(text)).join()`); got != "1 point at which the fault did no harm" {
			t.Errorf("the heading over the points without harm is %q", got)
		}
		if got := eval[string](p, `[...document.querySelectorAll(".cell .charts text")].map((e) => e.textContent).filter((text) => /[a-z]{4}/.test(text)).join("; ")`); got != "latency, logarithmic; time since the load began; latency, logarithmic; percentile of the answers" {
			t.Errorf("the labels of the axes are %s", got)
		}
		if n := eval[int](p, `document.querySelectorAll(".cell .charts rect.fault").length`); n != 3 { // one of them is in the legend
			t.Errorf("%d bands of the fault, want 2 and one in the legend", n)
		}
		if n := eval[int](p, `document.querySelectorAll(".cell .charts circle").length`); n != 4*2+2*5 {
			t.Errorf("%d points on curves, want %d: a slice without requests has none, and 500 answers have no p99.9", n, 4*2+2*5)
		}
	})
	t.Run("a sale over time", func(t *testing.T) {
		r := badDay(t)
		c := &r.Cells[slices.IndexFunc(r.Cells, func(c experiment.Cell) bool { return c.Strategy == "watchdog" })]
		c.OverTime = &load.OverTime{SliceMS: 10, N: []int{9}, P50: []*float64{new(1.0)}, P99: []*float64{new(9.0)}, SentP50: []*float64{nil}, SentP99: []*float64{nil}}
		c.Sale = &experiment.Sale{Stock: 5, OverTime: &experiment.SoldOverTime{SliceMS: 2, Sold: []int{3, 0, 2}}}
		p := browser.Open(t, pageOf(t, htmlOf(r))+"#watchdog/pause", Look{})
		p.Await("charts", `document.querySelectorAll(".cell .charts figure").length === 2`)
		if got := eval[string](p, `[...document.querySelectorAll(".cell .charts figure")[0].querySelectorAll("circle title")].map((t) => t.textContent).join("; ")`); got != "0 by 0 ms; 3 by 2 ms; 3 by 4 ms; 5 by 6 ms" {
			t.Errorf("sold: %s", got)
		}
		if got := eval[string](p, `[...document.querySelectorAll(".cell .charts figcaption")].map((f) => f.textContent).join("; ")`); got != "Units sold over time; Distribution of latencies, 9 answers" {
			t.Errorf("charts: %s", got)
		}
	})
	looks := []Look{{Width: 390, Height: 844, Dark: true}}
	if os.Getenv("GRABLAB_SCREENSHOTS") != "" {
		looks = append(looks, Look{}, Look{Dark: true}, Look{Width: 390, Height: 844})
	}
	for _, look := range looks {
		of := ""
		if look.Width > 0 {
			of += "-390"
		}
		if look.Dark {
			of += "-dark"
		}
		drawn := func(p *Page, name string) {
			p.Await("a drawing", `document.querySelector("figure.diagram svg")`)
			p.Fits()
			p.Screenshot(name + of)
		}
		drawn(browser.Open(t, pageOf(t, schedule), look), "schedule")
		p := browser.Open(t, pageOf(t, htmlOf(badDay(t))), look)
		p.Fits()
		p.Screenshot("run" + of)
		eval[bool](p, `(location.hash = "#setnx/pause", true)`)
		drawn(p, "cell")
		eval[bool](p, `(location.hash = "#watchdog/pause", true)`)
		p.Await("points", `document.querySelector(".points td")`)
		if look.Width > 0 { // each point is a block, with a label before each value
			for _, left := range eval[[]string](p, `[...document.querySelectorAll(".points")].flatMap((box) => [
				...(box.scrollWidth > box.clientWidth ? ["scrolls sideways"] : []),
				...[...box.querySelectorAll("td")].filter((td) => getComputedStyle(td, "::before").content !== JSON.stringify(box.querySelectorAll("th")[td.cellIndex].textContent)).map((td) => "no label: " + td.textContent)])`) {
				t.Errorf("the points in %d px: %s", look.Width, left)
			}
		}
	}
	t.Run("a hostile run", func(t *testing.T) { testHostileRun(t, browser) })
}

// hostile fills v with text that tries to escape from its context, and with extreme numbers.
func hostile(v reflect.Value, n *int) {
	texts := []string{
		`</script><script>document.title="run"</script>`, `"><img src=x onerror=document.title="run">`, "javascript:alert(1)", `{{.}}`, "'; rm -rf ~; '",
		"\u2028\u2029\x00\xff", strings.Repeat("wide ", 30), "__proto__", `</style><style>*{display:none}`, "#\"%zz",
	}
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[*n%len(texts)])
	case reflect.Float64:
		v.SetFloat([]float64{-1, 1e300, 5e-324, math.MaxFloat64}[*n%4])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{-1, math.MaxInt64, math.MinInt64, 3}[*n%4])
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		hostile(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			hostile(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		hostile(key, n)
		hostile(value, n)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				hostile(v.Field(i), n)
			}
		}
	}
}

// testHostileRun checks that a manipulated result file does not break the page, and that its content stays
// text.
func testHostileRun(t *testing.T, browser *Browser) {
	for seed := range 2 {
		r := new(experiment.Run)
		hostile(reflect.ValueOf(r).Elem(), &seed)
		if seed%2 == 0 { // use known names, so that the page shows the content of the cells
			for i := range r.Cells {
				r.Cells[i].Strategy, r.Cells[i].Fault, r.Cells[i].Verdict = "setnx", catalog.RunFaults[i], catalog.Unsafe
				for j := range r.Cells[i].Timeline.Events {
					e := &r.Cells[i].Timeline.Events[j]
					e.Kind, e.Op, e.Driver = history.OK, []string{history.Acquire, history.Strike, history.Claim}[j], 1
				}
			}
		}
		url := pageOf(t, htmlOf(r))
		p := browser.Open(t, url, Look{Width: 390})
		p.Await("the matrix", `document.querySelector(".matrix td a")`)
		for i := range len(r.Cells) {
			eval[bool](p, fmt.Sprintf(`(location.hash = (document.querySelectorAll(".matrix td a")[%d] || document.querySelector(".matrix td a")).hash, true)`, i))
			p.Await("the cell", `!document.querySelector(".cell").hidden && document.querySelector(".cell h2")`)
			p.Fits()
		}
		if got := eval[string](p, `[document.images.length, document.scripts.length, document.querySelectorAll("style").length, document.title === "run"].join()`); got != "0,2,1,false" {
			t.Errorf("images, scripts, style sheets, title: %s", got)
		}
	}
}
