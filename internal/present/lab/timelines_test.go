package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/present/diagram"
	"grablab/internal/present/lab"
)

// refusals lists the reasons that a history gives for a failed call.
var refusals = []error{order.ErrStale, order.ErrTaken, order.ErrLimit, lock.ErrBusy, lock.ErrLost, lock.ErrUnreachable, context.DeadlineExceeded}

// anyTimeline returns the timeline of a random history of three drivers at two instances. It returns false if
// nothing went wrong in that history.
func anyTimeline(r *rand.Rand) (check.Timeline, check.Case, bool) {
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	c := check.Case{
		Order: 1, Units: 1 + r.IntN(3), Lease: time.Duration(r.IntN(2)*10) * time.Millisecond,
		Property: pick(catalog.OneWinner, catalog.HoldersExclusive, catalog.StuckOrder),
		Excludes: []catalog.Exclusion{catalog.NoExclusion, catalog.PerProcess, catalog.Global}[r.IntN(3)],
	}
	var events []history.Event
	var ledger []order.Grab
	incarnation := map[string]int{}
	for i := range 5 + r.IntN(25) {
		driver := 1 + r.IntN(3)
		instance := []string{"8004", "8005"}[driver%2]
		if r.IntN(10) == 0 {
			incarnation[instance]++
		}
		e := history.Event{
			T: time.Duration(i+1) * time.Millisecond, Order: 1, Driver: int64(driver), Instance: instance, Token: fmt.Sprint("t", driver),
			Incarnation: incarnation[instance], Op: pick(history.Grab, history.Acquire, history.Acquire, history.Read, history.Claim, history.Release, history.Lost, history.Strike),
			Kind: []history.Kind{history.Invoke, history.OK, history.OK, history.Fail, history.Info}[r.IntN(5)], Fence: uint64(r.IntN(2) * i),
		}
		switch {
		case e.Op == history.Grab:
			e.Kind = history.Invoke
		case e.Op == history.Lost:
			e.Kind = history.Info
		case e.Kind == history.Info && e.Op != history.Claim && e.Op != history.Strike:
			e.Kind, e.Code = history.OK, history.Open // only the result of a write can be unknown
		case e.Op == history.Strike:
			e.Kind, e.Note = []history.Kind{history.OK, history.Info}[r.IntN(2)], pick("before claim 1", "after read")
		case e.Kind == history.Fail:
			e.Code = []history.Code{history.Busy, history.Taken, history.Stale, history.LeaseLost}[r.IntN(4)]
			e.Note = refusals[r.IntN(len(refusals))].Error()
		case e.Op == history.Read:
			e.Code = []history.Code{history.Open, history.Taken, ""}[r.IntN(3)]
		}
		events = append(events, e)
		if e.Op == history.Claim && e.Kind == history.OK {
			ledger = append(ledger, order.Grab{Order: 1, Driver: e.Driver, Instance: e.Instance, Token: e.Token})
		}
	}
	t, ok := check.Explain(events, ledger, c)
	return t, c, ok
}

// partsOf returns the string literals in a Go file, split at the verbs of format strings.
func partsOf(t *testing.T, path string) (parts []string) {
	t.Helper()
	file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == gotoken.STRING {
			text, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range verb.Split(text, -1) {
				if strings.TrimSpace(part) != "" {
					parts = append(parts, part)
				}
			}
		}
		_, isImport := n.(*ast.ImportSpec)
		return !isImport
	})
	return parts
}

// TestTimelinesAreTranslated checks that the page completely translates each sentence that a timeline can
// contain. Only terms and the names of points may stay in English.
func TestTimelinesAreTranslated(t *testing.T) {
	found := map[string]bool{}
	digits := regexp.MustCompile(`\d+`)
	kinds := map[string]bool{} // the sentences, without regard to numbers
	add := func(text string) {
		if kind := digits.ReplaceAllString(text, "1"); !kinds[kind] {
			kinds[kind], found[text] = true, true
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		timeline, c, ok := anyTimeline(r)
		if !ok {
			continue
		}
		for _, s := range timeline.Steps {
			add("believes: " + s.Believed)
			add("true: " + s.True)
			add(s.Event)
			add(fmt.Sprintf("driver %d (%s) %s", s.Driver, s.Instance, s.Event))
		}
		d := diagram.OfRun(diagram.Run{Timeline: timeline, Excludes: c.Excludes, Outlives: true})
		for _, l := range d.Lanes {
			for _, row := range l.Rows {
				for _, m := range row.Marks {
					add(m.Text)
				}
			}
		}
	}
	sentences := []string{}
	for text := range found {
		sentences = append(sentences, text)
	}
	slices.Sort(sentences)
	t.Logf("%d sentences", len(sentences))
	for _, part := range partsOf(t, "../../check/timeline_state.go") {
		if !slices.ContainsFunc(sentences, func(s string) bool { return strings.Contains(s, part) }) {
			t.Errorf("no sentence contains %q: make anyTimeline generate a history in which it occurs", part)
		}
	}
	texts, err := json.Marshal(sentences)
	if err != nil {
		t.Fatal(err)
	}
	p := newBrowser(t).Open(t, start(t, lab.Config{}), Look{})
	for _, left := range eval[[]string](p, fmt.Sprintf(`import("./translate.js").then(({ translate }) => %s.flatMap((text) => ["zh", "ja"].map((lang) => [text, translate(text, lang) ?? text]))
		.filter(([, to]) => /[a-z]{2}/i.test(to.replaceAll("fencing token", "").replace(/(claim 1|read)(?= [之の])/g, ""))).map(([text, to]) => text + " → " + to))`, texts)) {
		t.Error(left)
	}
}
