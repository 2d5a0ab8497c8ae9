package main

import (
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/present/whichlock"
	"grablab/internal/testbed/fault"
)

//go:embed templates
var templateFiles embed.FS

// fromTemplate returns a function that executes the template with this name. Templates get their
// data by calling the functions below.
func fromTemplate(name string) func() (string, error) {
	return func() (string, error) { return execute(name, nil) }
}

func execute(name string, data any) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"verdicts":    func() any { return catalog.Verdicts },
	"words":       func() any { return catalog.Words },
	"properties":  func() any { return catalog.Properties },
	"modes":       func() any { return catalog.Modes },
	"faults":      func() any { return catalog.Faults },
	"wider":       func() any { return explore.Wider },
	"inSearch":    searchClaims,
	"ours":        func() any { return lock.Strategies },
	"peers":       func() any { return lock.Peers },
	"knownBroken": func() any { return lock.KnownBroken },

	"version":      version,
	"strikePoints": strikePoints,
	"serversOf":    serversOf,
	"expected":     expected,
	"entry":        entry,
	"programs":     func(by catalog.Programs) string { return quote(by.Commands()) },
	"quote":        quote[catalog.Fault],
	"modeLinks":    modeLinks,
	"linkModes":    linkModes,
	"numbered":     numbered,
	"brokenBy":     brokenBy,
	"scheduleFile": scheduleFile,
	"cell":         cell,
	"item":         item,
	"sentence":     catalog.Capital,
}).ParseFS(templateFiles, "templates/*.tmpl"))

// item formats text as a Markdown list entry, wrapped to 110 characters.
func item(mark, text string) string {
	lines := catalog.Wrap(text, 110-len(mark))
	return mark + strings.Join(lines, "\n"+strings.Repeat(" ", len(mark)))
}

// cell escapes text for a Markdown table.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }

var modeID = regexp.MustCompile(`\bF\d+\b`)

// linkModes turns failure mode IDs in a text, such as F12, into links.
func linkModes(text string) string { return modeID.ReplaceAllStringFunc(text, whichlock.ModeLink) }

func modeLinks(ids []string) string { return linkModes(catalog.List(ids)) }

// numbered turns a text into a numbered list with one entry per sentence.
func numbered(text string) string {
	var b strings.Builder
	for i, sentence := range strings.Split(text, ". ") {
		fmt.Fprintf(&b, "%d. %s.\n", i+1, sentence)
	}
	return b.String()
}

// version returns the module version that go.mod requires.
func version(module string) (string, error) {
	mod, err := read("go.mod")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^(?:require|\t)\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("go.mod does not require %s", module)
	}
	return found[1], nil
}

// scheduleFile returns a link to the file with the shortest schedule that shows a failure mode, or ""
// if there is none.
func scheduleFile(mode string) string {
	file := "internal/explore/testdata/" + mode + ".txt"
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		return ""
	}
	return fmt.Sprintf("[%s.txt](../%s)", mode, file)
}

func brokenBy(mode string) string {
	all := slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken)
	broken := catalog.Filter(all, func(s lock.Strategy) bool { return slices.Contains(s.Breaks, mode) })
	return quote(catalog.Map(broken, func(s lock.Strategy) string { return s.Name }))
}

// strikePoints returns a sentence that explains why a fault cannot strike at every point of a request.
// It returns "" if the fault can.
func strikePoints(f catalog.FaultEntry) string {
	injected := catalog.First(fault.Faults, func(i fault.Fault) bool { return i.Name == f.Name })
	if injected.Reach == nil {
		return ""
	}
	return " It cannot strike at every point, because " + injected.Reach.Why + "."
}

// quote puts each name in backquotes, and joins the names into a list such as "`a`, `b` and `c`".
func quote[T ~string](names []T) string {
	return catalog.List(catalog.Map(names, func(name T) string { return "`" + string(name) + "`" }))
}

// serversOf returns a phrase for the Redis servers that a search simulates.
func serversOf(servers lock.Backend) string {
	if servers == lock.RedisQuorum {
		return "Redlock's nodes"
	}
	return "a single Redis"
}

// searchRow describes a strategy for which we expect a search to find different failures than a run on
// real servers.
type searchRow struct{ Faults, Strategy, Finds, Why string }

// searchClaims lists the strategies for which we expect a search to find different failures than a run
// on real servers, and gives the reasons.
func searchClaims() (rows []searchRow) {
	for _, s := range slices.Concat(lock.Strategies, lock.Peers) {
		for _, c := range s.InSearch {
			finds := "also finds the failures that `run` finds under `" + string(c.As) + "`"
			if c.As == catalog.NoFault {
				finds = "finds no failure"
			}
			row := searchRow{quote(c.Faults), "`" + s.Name + "`", finds, c.Why}
			if last := len(rows) - 1; last >= 0 && rows[last].Why == row.Why {
				row.Strategy = rows[last].Strategy + " and " + row.Strategy
				rows = rows[:last]
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// entry summarizes in one line how a strategy can fail.
func entry(s lock.Strategy) string {
	fails := []string{}
	for _, v := range []catalog.Verdict{catalog.Unsafe, catalog.Stuck} {
		if faults := expected(s, v); faults != "" {
			fails = append(fails, string(v)+" "+faults)
		}
	}
	text := cmp.Or(strings.Join(fails, "; "), "safe under every fault")
	return fmt.Sprintf("`%s`: %s. Failure modes: %s.", s.Name, text, modeLinks(s.Breaks))
}

// expected names the faults under which we expect a strategy to get this verdict. It returns "" if
// there are none.
func expected(s lock.Strategy, v catalog.Verdict) string {
	matching := catalog.Filter(fault.Faults, func(f fault.Fault) bool { return f.Touches(s) && s.Expected(f.Name) == v })
	if len(matching) == 0 {
		return ""
	}
	names := quote(catalog.Map(matching, func(f fault.Fault) catalog.Fault { return f.Name }))
	if s.Expected(catalog.NoFault) == v {
		return "even without any fault, and under " + names
	}
	return "under " + names
}
