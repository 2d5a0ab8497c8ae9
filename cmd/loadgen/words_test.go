package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/compare"
	"grablab/internal/present/report"
	"grablab/internal/testbed/load"
)

// sentences lists the headings of columns that contain sentences, which explain need not know.
var sentences = []string{
	"what happened", "what the driver believed", "what was true", "why", "in the stores", "believes", "holds",
	"A (instance 1)", "B (instance 2)", "rates tried, p99 in ms",
}

// tableOf is a printed table.
type tableOf struct {
	headings []string
	rows     [][]string
}

// markdownTables returns the tables of a Markdown document, and its list items.
func markdownTables(text string) (tables []tableOf, items []string) {
	unescape := strings.NewReplacer(`\|`, "\x00", `\*`, "*", `\[`, "[", `\_`, "_", "\\`", "`", "&lt;", "<", "&amp;", "&")
	inside := false
	for line := range strings.Lines(text) {
		line = unescape.Replace(strings.TrimSpace(line))
		if item, ok := strings.CutPrefix(line, "- "); ok {
			items = append(items, item)
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		switch {
		case !inside:
			tables, inside = append(tables, tableOf{headings: cells}), true
		case strings.HasPrefix(line, "|--"):
		default:
			tables[len(tables)-1].rows = append(tables[len(tables)-1].rows, cells)
		}
	}
	return tables, items
}

var twoSpaces = regexp.MustCompile(` {2,}`)

// textTables returns the tables of a text. At least two spaces separate their columns. Empty entries
// are lost, so an entry may be at the index of another heading.
func textTables(text string, heading *regexp.Regexp) (tables []tableOf) {
	inside := false
	for line := range strings.Lines(text) {
		cells := twoSpaces.Split(strings.TrimSpace(line), -1)
		switch {
		case heading.MatchString(line):
			tables, inside = append(tables, tableOf{headings: cells}), true
		case strings.TrimSpace(line) == "":
			inside = false
		case inside:
			tables[len(tables)-1].rows = append(tables[len(tables)-1].rows, cells)
		}
	}
	return tables
}

// numeric matches entries that are figures and need no explanation.
var numeric = regexp.MustCompile(`^[\d\s.,\[\]%+–-]*\d[\d\s.,\[\]%+–-]*(ms|s|µs|m)?$`)

// asker looks up each word of some tables with explain. The map explained is shared by all askers, so
// that each word is looked up only once.
type asker struct {
	t         *testing.T
	where     string
	asked     map[string]bool
	explained map[string]bool
}

func (a *asker) ask(what, entry string) {
	if entry == "" || numeric.MatchString(entry) || a.asked[entry] {
		return
	}
	a.asked[entry] = true
	if a.explained[entry] {
		return
	}
	a.explained[entry] = true
	if _, err := explain(entry); err != nil {
		a.t.Errorf("%s: explain: %s %q: %v", a.where, what, entry, err)
	}
}

func (a *asker) tables(tables []tableOf) {
	for _, table := range tables {
		for _, h := range table.headings {
			a.ask("heading", h)
		}
		for _, row := range table.rows {
			for i, entry := range row {
				if len(row) == len(table.headings) && slices.Contains(sentences, table.headings[i]) {
					continue
				}
				for _, part := range strings.Split(entry, "; ") { // an entry can be a list
					a.ask("entry", part)
				}
			}
		}
	}
}

// These patterns match the words and marks that the lines below a table explain, as in "ledger: rows
// in the database".
var (
	legendWord = regexp.MustCompile(`(?:^|; )([A-Za-z][A-Za-z/ ]{0,17}):`)
	legendMark = regexp.MustCompile(`(?:^|, |; )([✓✗°·≥▶~*?-]\??) `)
)

// legends looks up the words that the lines explain. It skips lines about a strategy or a cell.
func (a *asker) legends(lines []string) {
	for _, line := range lines {
		first, _, _ := strings.Cut(strings.ReplaceAll(line, "/", " "), " ")
		if slices.Contains(catalog.Map(everyStrategy(), nameOf), strings.Trim(first, ",:")) || strings.HasPrefix(line, "run ") {
			continue
		}
		for _, found := range append(legendWord.FindAllStringSubmatch(line, -1), legendMark.FindAllStringSubmatch(line, -1)...) {
			if a.isAside(found[1]) {
				continue
			}
			a.ask("legend", found[1])
		}
	}
}

// isAside reports whether the word only begins a remark and is not a word that the line explains.
func (a *asker) isAside(word string) bool {
	return slices.Contains([]string{
		"old", "new", "cure", "Promised", "also", "again", "on local", "on embedded", "rush", "article", "peak", // at the beginning of reports
		"told apart by the answer", "every word and mark of these tables", "run", "seed",
	}, word)
}

func rendered[T any](t *testing.T, render func(w *bytes.Buffer, x T) error, x T) string {
	t.Helper()
	var b bytes.Buffer
	if err := render(&b, x); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "loadgen explain WORD") {
		t.Errorf("the text does not refer to loadgen explain:\n%.600s", b.String())
	}
	return b.String()
}

func loadRun(t *testing.T, name string) *experiment.Run {
	t.Helper()
	r, err := report.Load(references + name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestExplainAnswersForEveryWord checks that explain knows every heading, entry and mark of every table.
func TestExplainAnswersForEveryWord(t *testing.T) {
	explained := map[string]bool{}
	matrix, rush := loadRun(t, "reference-matrix-local"), loadRun(t, "reference-rush-local")
	repeated := loadRun(t, "reference-rush-local")
	for i := range repeated.Cells {
		c := &repeated.Cells[i]
		for range 2 {
			c.Repetitions = append(c.Repetitions, experiment.Repetition{Verdict: c.Verdict, Latency: c.Latency, LatencySent: c.LatencySent, CompletedRPS: c.CompletedRPS})
		}
	}
	notHeld := false
	repeated.Cells[0].LoadHeld, repeated.Cells[1].LowerBound, repeated.Cells[1].Expected = &notHeld, true, new(catalog.Safe)
	repeated.Cells[2].Exclusive, repeated.Cells[2].ExpectedExclusive = nil, new(experiment.Yes)
	repeated.Cells[3].Exclusive = new(experiment.No)
	repeated.Cells[4].Grabs, repeated.Cells[4].DoubleGrabs = nil, nil
	repeated.Config.Rules = nil
	peak := loadRun(t, "reference-rush-local")
	for i, limit := range []string{experiment.ByGenerator, experiment.ByInstances, experiment.ByLock, ""} {
		peak.Cells[i].Peak = &experiment.Peak{HeldRPS: 400, LimitedBy: limit, LimitReason: "so it is", Steps: []experiment.PeakStep{{RPS: 400, Held: true}, {RPS: 800}}}
	}
	peak.Bare = &experiment.Bare{Endpoint: "GET /healthz", Peak: experiment.Peak{LimitedBy: experiment.ByGenerator}}

	for name, run := range map[string]*experiment.Run{"matrix": matrix, "rush": rush, "repeated": repeated, "peak": peak, "article": loadRun(t, "reference-article-local")} {
		tables, items := markdownTables(rendered(t, func(w *bytes.Buffer, r *experiment.Run) error { return report.Markdown(w, r) }, run))
		if len(tables) == 0 {
			t.Errorf("%s: no table", name)
		}
		a := &asker{t, name, map[string]bool{}, explained}
		a.tables(tables)
		a.legends(items)
		if name == "matrix" && len(a.asked) < 100 {
			t.Errorf("the test found only %d words in the matrix", len(a.asked))
		}
	}

	changed := loadRun(t, "reference-rush-local")
	changed.Cells[0].Verdict, changed.Environment.Redis = catalog.Unknown, "other"
	for i := range changed.Cells {
		changed.Cells[i].Latency = &load.Latency{P50: 1e3, P99: 1e4}
		changed.Cells[i].Repetitions = nil
		for k := range 8 {
			changed.Cells[i].Repetitions = append(changed.Cells[i].Repetitions, experiment.Repetition{Latency: &load.Latency{P50: 1e3 + float64(k), P99: 1}, CompletedRPS: new(float64(1 + k%2))})
			repeated.Cells[i].Repetitions = append(repeated.Cells[i].Repetitions, experiment.Repetition{Latency: &load.Latency{P50: 1 + float64(k), P99: 9e3 + float64(k)}, CompletedRPS: new(float64(1 + k%3))})
		}
	}
	bench, err := lockbench.Load(references + "reference-bench-local")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]bool{}
	for name, c := range map[string]*compare.Comparison{
		"compare runs": compare.Runs("a", repeated, "b", changed), "compare itself": compare.Runs("a", rush, "a", rush),
		"compare once": compare.Runs("a", rush, "b", loadRun(t, "reference-rush-embedded")),
	} {
		tables, items := markdownTables(rendered(t, func(w *bytes.Buffer, c *compare.Comparison) error { return report.ComparedMarkdown(w, c) }, c))
		a := &asker{t, name, map[string]bool{}, explained}
		for i := range tables { // in these tables, only the first column has words; the others have sentences
			if slices.Contains(tables[i].headings, "cell") {
				for k, row := range tables[i].rows {
					tables[i].rows[k] = []string{strings.ReplaceAll(row[0], "/", " ")}
				}
			}
		}
		a.tables(tables)
		a.legends(items)
		for word := range a.asked {
			answers[word] = true
		}
	}
	for _, answer := range []compare.Answer{compare.Slower, compare.Faster, compare.Same, compare.NotShown, compare.NotKnown} {
		if !answers[string(answer)] {
			t.Errorf("no comparison of this test has the answer %q", answer)
		}
	}

	text := rendered(t, func(w *bytes.Buffer, r *lockbench.Result) error { return lockbench.Text(w, r) }, bench)
	tables := textTables(text, regexp.MustCompile(`^ +ops/s`))
	if len(tables) != len(bench.Config.Cases) {
		t.Errorf("%d tables of %d cases", len(tables), len(bench.Config.Cases))
	}
	a := &asker{t, "bench", map[string]bool{}, explained}
	a.tables(tables)
	for _, b := range bench.Bounds {
		a.ask("verdict of a bound", b.Verdict)
		a.ask("case", b.Case)
	}
	for _, bounds := range regexp.MustCompile(`(at most|at least) `).FindAllStringSubmatch(text, -1) {
		a.ask("bound", bounds[1])
	}
	a.legends(strings.Split(strings.ReplaceAll(text[strings.LastIndex(text, "\n\n"):], ". ", "; "), "\n"))

	code, stdout, stderr := output(t, loadgen(t, strings.Fields("explore -strategies none,mutex,setnx -faults pause -seed 1 -seconds 20 -quiet")...))
	if code != int(exitDone) {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	text = rendered(t, func(w *bytes.Buffer, s string) error { _, err := w.WriteString(s); return err }, stdout)
	tables = textTables(text, regexp.MustCompile(`^strategy +verdict`))
	steps := textTables(text, regexp.MustCompile(`^ +step +time`))
	if len(tables) != 1 || len(steps) == 0 || len(tables[0].rows) < 2 {
		t.Errorf("no tables in\n%s", text)
	}
	a = &asker{t, "explore", map[string]bool{}, explained}
	a.tables(tables)
	for _, s := range steps { // the entries of these tables are sentences
		a.tables([]tableOf{{headings: s.headings}})
	}
	a.legends(strings.Split(text, "\n"))
}

// TestAskerSeesUnknownWords checks that the helpers of TestExplainAnswersForEveryWord find unknown words:
// explain refuses them, the parser returns them, and numeric does not match them.
func TestAskerSeesUnknownWords(t *testing.T) {
	for _, entry := range []string{"frobs", "unsafe frob", "⊕", "safe ⊕"} {
		if _, err := explain(entry); err == nil {
			t.Errorf("%q is explained", entry)
		}
	}
	tables, items := markdownTables("# x\n- a: b\n\n| frobs | n |\n|---|--:|\n| safe\\*  | 7 |\n")
	if len(tables) != 1 || len(items) != 1 || tables[0].headings[0] != "frobs" || tables[0].rows[0][0] != "safe*" {
		t.Errorf("markdownTables: %+v %q", tables, items)
	}
	for entry, want := range map[string]bool{"12": true, "4.38 [0.89, 8.63]": true, "340ms": true, "+12.3 %": true, "-": false, "3/11": false, "safe": false, "≥5": false, "<0.001": false} {
		if numeric.MatchString(entry) != want {
			t.Errorf("%q is numeric: %v", entry, !want)
		}
	}
}
