package archtest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"
	"grablab/internal/present/whichlock"
	"grablab/internal/testbed/fault"
)

var update = flag.Bool("update", false, "write what is generated in README.md and docs/ anew")

const updateCommand = "go test ./internal/archtest -run TestDocs -update"

// generatedFiles are those without a word typed by hand.
var generatedFiles = map[string]func() (string, error){
	"docs/failure-modes.md": func() (string, error) { return failureModes(), nil },
	"docs/strategies.md":    func() (string, error) { return strategies(), nil },
	"docs/handout.md":       func() (string, error) { return handout("en"), nil },
	"docs/handout.zh.md":    func() (string, error) { return handout("zh"), nil },
	"docs/handout.ja.md":    func() (string, error) { return handout("ja"), nil },
	"docs/which-lock.md":    whichLock,
}

var generatedBlock = regexp.MustCompile(`(?s)<!-- generated: (\S+) -->\n(.*?)<!-- end -->`)

// What follows from the catalogues and from the result files stands in the
// documents as it follows. With -update it is written there.
func TestDocsAreGenerated(t *testing.T) {
	for path, generate := range generatedFiles {
		text, err := generate()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		compareOrWrite(t, path, "<!-- Generated from the catalogues by: "+updateCommand+" -->\n\n"+text)
	}
	text, err := facts()
	if err != nil {
		t.Error(err)
	}
	compareOrWrite(t, "internal/present/whichlock/facts.json", text)
	used := map[string]bool{}
	for _, path := range documents(t) {
		compareOrWrite(t, path, generatedBlock.ReplaceAllStringFunc(readDocument(t, path), func(block string) string {
			name := generatedBlock.FindStringSubmatch(block)[1]
			used[name] = true
			generate, ok := blocks[name]
			if !ok {
				t.Errorf("%s: nothing generates a block %q", path, name)
				return block
			}
			text, err := generate()
			if err != nil {
				t.Errorf("%s: block %s: %v", path, name, err)
				return block
			}
			return fmt.Sprintf("<!-- generated: %s -->\n%s<!-- end -->", name, text)
		}))
	}
	for name := range blocks {
		if !used[name] {
			t.Errorf("block %q stands in no document", name)
		}
	}
}

// compareOrWrite compares a document with what it must be, or writes that.
func compareOrWrite(t *testing.T, path, want string) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join(root, path))
	if string(old) == want {
		return
	}
	if *update {
		err = os.WriteFile(filepath.Join(root, path), []byte(want), 0o644)
	}
	if err != nil || !*update {
		t.Errorf("%s is stale (%v): %s", path, err, updateCommand)
	}
}

// blocks is everything that stands in the documents between marks, with what
// generates it from the catalogues and the files in results/.
var blocks = map[string]func() (string, error){
	"rush":         func() (string, error) { return rendered("reference-rush-embedded") },
	"article":      func() (string, error) { return rendered("reference-article-local") },
	"matrix":       matrix,
	"choose":       choose,
	"faults":       faults,
	"properties":   properties,
	"mutants":      mutants,
	"mutate":       mutate,
	"wider":        wider,
	"bench-bounds": benchBounds,
	"costs":        costs,
	"verdicts":     verdicts,
	"words":        words,
	"libraries":    libraries,

	"target-file":  func() (string, error) { return quoted("docs/target.yaml") },
	"expectations": func() (string, error) { return quoted("docs/expectations.yaml") },
	"spring":       beside,

	"workshop-times":   workshopTimes,
	"workshop-answers": workshopAnswers,
}

// quoted is a file as it is.
func quoted(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return "```text\n" + string(text) + "```\n", err
}

// verdicts and words are the tables that loadgen explain reads, too.
func verdicts() (string, error) {
	var b strings.Builder
	b.WriteString("| verdict | when |\n|---|---|\n")
	for _, v := range catalog.Verdicts {
		fmt.Fprintf(&b, "| **%s** | %s |\n", v.Verdict, v.When)
	}
	return b.String(), nil
}

func words() (string, error) {
	var b strings.Builder
	b.WriteString("| word | meaning |\n|---|---|\n")
	for _, w := range catalog.Words {
		fmt.Fprintf(&b, "| %s | %s |\n", w.Name, w.Meaning)
	}
	return b.String(), nil
}

// mutate is what make mutate printed.
func mutate() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "results", "mutate.txt"))
	return fenced(string(text)), err
}

// libraries are the locks of others, at the versions that go.mod names.
func libraries() (string, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	versions := whichlock.Versions(string(mod))
	var b strings.Builder
	b.WriteString("| strategy | is | module | version | used as in |\n|---|---|---|---|---|\n")
	for _, s := range lock.Peers {
		version, ok := versions[s.Module]
		if !ok {
			return "", fmt.Errorf("go.mod names no module of %s", s.Name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | [its documentation](%s) |\n", s.Name, cell(s.Title), s.Module, version, s.Source)
	}
	return b.String(), nil
}

func fenced(text string) string { return "```text\n" + strings.Trim(text, "\n") + "\n```\n" }

// rendered is a reference run as loadgen prints it.
func rendered(folder string) (string, error) {
	run, err := loadRun(folder)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = report.Text(&b, run)
	return fenced(b.String()), err
}

func loadRun(folder string) (*experiment.Run, error) {
	return report.Load(filepath.Join(root, "results", folder))
}

// loadMatrix is the reference matrix, with the strategies that have one of their own.
func loadMatrix() (*experiment.Run, error) {
	run, err := loadRun("reference-matrix-local")
	if err != nil {
		return nil, err
	}
	stock, err := loadRun("reference-stock-local")
	if err != nil {
		return nil, err
	}
	for _, c := range stock.Cells {
		if !slices.ContainsFunc(run.Cells, func(o experiment.Cell) bool { return o.Strategy == c.Strategy && o.Fault == c.Fault }) {
			run.Cells = append(run.Cells, c)
		}
	}
	return run, nil
}

// matrix is the table of verdicts with its legend, of all that is printed.
func matrix() (string, error) {
	text, err := rendered("reference-matrix-local")
	if err != nil {
		return "", err
	}
	_, text, _ = strings.Cut(text, "\n\n")
	text, _, found := strings.Cut(text, "\n\nUnder no fault")
	if !found {
		return "", fmt.Errorf("it is no matrix: %.80s", text)
	}
	return fenced(text), nil
}

// choose has a line for each strategy that one may reasonably take.
func choose() (string, error) {
	run, err := loadRun("reference-matrix-local")
	if err != nil {
		return "", err
	}
	bench, err := lockbench.Load(filepath.Join(root, "results", "reference-bench-local"))
	if err != nil {
		return "", err
	}
	return whichlock.Short(run, bench), nil
}

// facts are what the program itself knows of docs/which-lock.md.
func facts() (string, error) {
	sources, err := whichlock.Load(root)
	if err != nil {
		return "", err
	}
	text, err := whichlock.FactsOf(sources)
	return string(text), err
}

// whichLock is docs/which-lock.md.
func whichLock() (string, error) {
	sources, err := whichlock.Load(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = whichlock.Write(&b, sources)
	return b.String(), err
}

func faults() (string, error) {
	var b strings.Builder
	b.WriteString("| fault | what goes wrong | strike points | played by |\n|---|---|---|---|\n")
	for _, f := range catalog.Faults {
		if f.Name == catalog.NoFault {
			continue
		}
		points := "every step"
		if f.By&catalog.Run != 0 {
			struck, err := fault.Find(f.Name)
			if err != nil {
				return "", err
			}
			points = "all"
			if struck.Reach != nil {
				points = "some: " + struck.Reach.Why
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, cell(f.About), cell(points), programs(f.By))
	}
	return b.String(), nil
}

func properties() (string, error) {
	var b strings.Builder
	b.WriteString("| property | what holds | checked by |\n|---|---|---|\n")
	for _, p := range catalog.Properties {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, cell(p.About), programs(p.By))
	}
	return b.String(), nil
}

func programs(by catalog.Programs) string {
	var names []string
	for _, p := range []struct {
		bit  catalog.Programs
		name string
	}{{catalog.Run, "`run`"}, {catalog.Explore, "`explore`"}, {catalog.Replay, "`run -schedule`"}} {
		if by&p.bit != 0 {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}

// cell keeps text from being read as Markdown.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }

// benchBounds is what loadgen bench printed of its bounds.
func benchBounds() (string, error) {
	b, err := os.ReadFile(filepath.Join(root, "results", "reference-bench-local", "report.txt"))
	if err != nil {
		return "", err
	}
	_, text, found := strings.Cut(string(b), "\nBounds ")
	if !found {
		return "", fmt.Errorf("report.txt tells of no bounds")
	}
	text, _, _ = strings.Cut(text, "\n\n")
	return fenced("Bounds " + text), nil
}

// measured is what make prove measures, and how it says so. The last line of
// prove.txt that does is what counts.
var measured = []struct{ what, says, bound string }{
	{"`setnx` acquire + release, over the same two commands sent raw", `setnx/raw ([\d.]+ \[[^]]+\])`, "1.05"},
	{"a `watchdog` waiter holds the lock, after the call of the release, in round trips", `in round trips ([\d.]+ \[[^]]+\])`, "3"},
	{"CPU time of `loadgen` for a request, over bare vegeta's", `ours/bare vegeta: ([\d.]+ \[[^]]+\])`, "1.15"},
	{"grabs/s through two instances (`none`, work 0, every request wins), over the same SQL alone", `two instances/bare SQL: ([\d.]+ \[[^]]+\])`, "0.50"},
	{"the store's grabs/s, over the same SQL alone", `store/bare: ([\d.]+ \[[^]]+\])`, ""},
	{"peak memory of `loadgen` over 1,000,000 requests", `peak memory of loadgen (\d+ MiB)`, "200 MiB"},
	{"CPU time of recording all events of a grab", `CPU time of recording one grab: ([\d.]+ us, [\d.]+ to [\d.]+)`, ""},
}

func costs() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "results", "prove.txt"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| what | measured | bound |\n|---|---|---|\n")
	for _, m := range measured {
		found := regexp.MustCompile(m.says).FindAllSubmatch(text, -1)
		if found == nil {
			return "", fmt.Errorf("results/prove.txt says nothing of %s (%s)", m.what, m.says)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.what, found[len(found)-1][1], m.bound)
	}
	return b.String(), nil
}

func modeLink(id string) string {
	return fmt.Sprintf("[%s](failure-modes.md#%s)", id, strings.ToLower(id))
}

func failureModes() string {
	var b strings.Builder
	b.WriteString("# Failure modes\n\nEvery way in which a lock is known to let two drivers win, or none. A, B and C are\ndrivers after one order. *Shown by* says what it takes to see it: plain load, faults\n([faults.md](faults.md)), the explorer ([explore.md](explore.md)), or a test of the lock\nby itself.\n")
	for _, m := range catalog.Modes {
		fmt.Fprintf(&b, "\n## %s\n\n**%s.**\n\n", m.ID, cell(m.Name))
		fmt.Fprintf(&b, "- Steps: %s.\n- Shown by: %s.\n- Cure: %s (`%s`).\n", modeID.ReplaceAllStringFunc(cell(m.Steps), modeLink), m.ShownBy, cell(m.Cure), m.In)
		if m.Source != "" {
			fmt.Fprintf(&b, "- Source: %s.\n", strings.TrimSuffix(m.Source, "."))
		}
		var known []string
		for _, s := range slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken) {
			if slices.Contains(s.Breaks, m.ID) {
				known = append(known, "`"+s.Name+"`")
			}
		}
		if known != nil {
			fmt.Fprintf(&b, "- Known of: %s.\n", strings.Join(known, ", "))
		}
		if file := schedules + m.ID + ".txt"; exists(file) {
			fmt.Fprintf(&b, "- Shortest schedule: [%s.txt](../%s), for `loadgen explore -replay`.\n", m.ID, file)
		}
	}
	return b.String()
}

const schedules = "internal/explore/testdata/"

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

// wider is where the explorer's faults reach further than those of run.
func wider() (string, error) {
	var b strings.Builder
	b.WriteString("| fault | of strategies on | is also | because |\n|---|---|---|---|\n")
	for _, w := range explore.Wider {
		on := "one Redis"
		if w.Of == lock.RedisQuorum {
			on = "Redlock's nodes"
		}
		if w.Strategies != nil {
			on = strings.Join(w.Strategies, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", w.Fault, on, w.As, w.Why)
	}
	b.WriteString("\nAnd it does not reach as far here:\n\n| fault | of | because |\n|---|---|---|\n")
	for _, n := range explore.Narrower {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", n.Fault, strings.Join(n.Strategies, ", "), n.Why)
	}
	return b.String(), nil
}

func strategies() string {
	var b strings.Builder
	b.WriteString("# Strategies\n\nA strategy is a lock and the guard with which the winner is written. `-strategies all`\ntakes every one, `core` (the default) the first five. What it is expected to do under a\nfault that is not listed is to be safe; `GET /strategies` of an instance says the same.\n\n")
	strategyTable(&b, lock.Strategies)
	b.WriteString("\n## Expected under faults\n\n| name | order grabbed twice | order can no longer be grabbed |\n|---|---|---|\n")
	for _, s := range lock.Strategies {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, expected(s, catalog.Unsafe), expected(s, catalog.Stuck))
	}
	b.WriteString("\n## Known-broken variants\n\nDeliberately wrong variants of correct locks, found by name only: what a test or the\nexplorer must catch.\n\n")
	strategyTable(&b, lock.KnownBroken)
	b.WriteString("\n## Libraries\n\nOther people's locks with their defaults: `-strategies peers`, or by name; never in `all`.\nWhat they fall short of, with the steps: [libraries.md](libraries.md).\n\n")
	strategyTable(&b, lock.Peers)
	b.WriteString("\n| name | order grabbed twice | order can no longer be grabbed | chance decides | `-ttl` is |\n|---|---|---|---|---|\n")
	for _, s := range lock.Peers {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name,
			expected(s, catalog.Unsafe), expected(s, catalog.Stuck), expected(s, catalog.Unknown), cell(s.Lease))
	}
	b.WriteString("\nChecks of the contract of a lock (package `conformtest`) that they fail:\n\n| name | check | because |\n|---|---|---|\n")
	for _, s := range lock.Peers {
		for _, check := range slices.Sorted(maps.Keys(s.Fails)) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, check, cell(s.Fails[check]))
		}
		for _, check := range slices.Sorted(maps.Keys(s.Flaky)) {
			fmt.Fprintf(&b, "| `%s` | %s, at times | %s |\n", s.Name, check, cell(s.Flaky[check]))
		}
	}
	b.WriteString("\n## Sources\n\n")
	for _, s := range slices.Concat(lock.Strategies, lock.Peers) {
		fmt.Fprintf(&b, "- `%s`: %s\n", s.Name, s.Source)
	}
	return b.String()
}

func strategyTable(b *strings.Builder, strategies []lock.Strategy) {
	b.WriteString("The failure modes are those that the code is known for. What a run has shown, of the lock as well as of the\norder, is in [which-lock.md](which-lock.md) and may be more.\n\n")
	b.WriteString("| name | is | guard of its write | known failure modes |\n|---|---|---|---|\n")
	for _, s := range strategies {
		var modes []string
		for _, id := range s.Breaks {
			modes = append(modes, modeLink(id))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.Name, cell(s.Title), s.Guard, strings.Join(modes, " "))
	}
}

func expected(s lock.Strategy, v catalog.Verdict) string {
	var under []string
	if s.Expect[catalog.NoFault] == v {
		under = append(under, "no fault")
	}
	for _, f := range fault.Faults {
		if f.Touches(s) && s.Expect[f.Name] == v {
			under = append(under, string(f.Name))
		}
	}
	return strings.Join(under, ", ")
}
