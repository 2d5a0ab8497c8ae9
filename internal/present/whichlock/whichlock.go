// Package whichlock writes docs/which-lock.md, the page that helps readers choose a lock. The page
// starts with a short decision list. It then shows what breaks each lock, what each lock costs, and
// how common claims compare with our measurements. The package also recommends locks to users of
// the web page ([Facts]).
//
// To read the code, start with [Write] and the page template, which-lock.tmpl. All figures come
// from recorded test runs. Each sentence about the runs has a condition. If a new run no longer
// supports a sentence, Write fails and quotes it.
package whichlock

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"
)

// Sources contains the test results and files behind docs/which-lock.md.
type Sources struct {
	Matrix    *experiment.Run   // results of our strategies under all faults
	Unique    *experiment.Run   // results of mysql-unique under all faults
	Libraries *experiment.Run   // results of the libraries under all faults
	Ignoring  *experiment.Run   // results with -on-lost ignore, for strategies that notice a lost lock
	Bench     *lockbench.Result // the benchmark of each lock on its own
	Claims    string            // the output of .ci/claims
}

// These folders and files in results/ are the sources of docs/which-lock.md.
const (
	matrixFolder    = "reference-matrix-local"
	uniqueFolder    = "reference-unique-local"
	librariesFolder = "reference-peers-local"
	ignoringFolder  = "reference-ignore-local"
	benchFolder     = "reference-bench-local"
	claimsFile      = "claims.txt"
)

// sourceRun is one of the test runs behind docs/which-lock.md. Folder is its name in results/.
type sourceRun struct {
	What, Folder string
	Run          **experiment.Run // points to the field in Sources
}

// Runs lists the runs among the sources.
func (s *Sources) Runs() []sourceRun {
	return []sourceRun{
		{"our strategies under all faults", matrixFolder, &s.Matrix},
		{"`mysql-unique` under all faults", uniqueFolder, &s.Unique},
		{"the libraries under all faults", librariesFolder, &s.Libraries},
		{"with `-on-lost ignore`", ignoringFolder, &s.Ignoring},
	}
}

// Load reads the sources from the repository at root.
func Load(root string) (s Sources, err error) {
	results := filepath.Join(root, "results")
	for _, source := range s.Runs() {
		if *source.Run, err = report.Load(filepath.Join(results, source.Folder)); err != nil {
			return s, err
		}
	}
	if s.Bench, err = lockbench.Load(filepath.Join(results, benchFolder)); err != nil {
		return s, err
	}
	claims, err := os.ReadFile(filepath.Join(results, claimsFile))
	s.Claims = string(claims)
	return s, err
}

// Choices lists the strategies that we recommend. All others only demonstrate mistakes.
var Choices = []string{
	"mysql-cas", "mysql-unique", "mysql-getlock", "mysql-forupdate", "setnx", "setnx-fenced", "watchdog", "watchdog-fenced", "handoff",
	"redlock", "zookeeper", "zookeeper-fenced", "etcd", "etcd-fenced",
}

//go:embed which-lock.tmpl
var pageTemplate string

// Write returns the page as Markdown. If the test results do not support a sentence on the page, it
// returns an error instead.
func Write(s Sources) (string, error) { return execute(s, "page") }

// Short returns the README table of recommended strategies, which shows what breaks each one and
// what it costs.
func Short(s Sources) (string, error) { return execute(s, "short") }

// execute executes a template of which-lock.tmpl.
func execute(s Sources, name string) (string, error) {
	p := &page{Sources: s}
	parsed, err := template.New("").Funcs(template.FuncMap{
		"claim":    p.claim,
		"figure":   figureOf,
		"modeLink": ModeLink,
		"names":    QuoteNames,
		"guide":    func() any { return Guide },
		"join":     strings.Join,
		"list":     func(names ...string) []string { return names },
	}).Parse(pageTemplate)
	if err != nil {
		return "", fmt.Errorf("whichlock: %w", err)
	}
	for _, name := range p.Names() {
		if unknown := p.faults(name, isUnknown); len(unknown) > 0 {
			p.fail("the verdict of %s is unknown under %s", name, QuoteNames(unknown))
		}
	}
	var b strings.Builder
	if err := parsed.ExecuteTemplate(&b, name, p); err != nil {
		p.fail("%w", err)
	}
	if err := errors.Join(p.problems...); err != nil {
		return "", err
	}
	return b.String(), nil
}

// page provides the template's data: the template which-lock.tmpl calls its exported methods. The
// methods collect problems, so that Write can report all of them together.
type page struct {
	Sources
	problems []error
}

func (p *page) fail(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("whichlock: "+format, args...))
}

// claim returns a sentence in bold. If the condition is false, the test results no longer support
// the sentence, so claim records a problem.
func (p *page) claim(condition any, sentence string) string {
	if holds, _ := template.IsTrue(condition); !holds {
		p.fail("the runs no longer show: %s", sentence)
	}
	return "**" + sentence + "**"
}

// strategy returns the strategy with this name. If there is none, it records a problem, which makes
// Write fail.
func (p *page) strategy(name string) lock.Strategy {
	s, err := lock.Find(name)
	if err != nil {
		p.fail("%w", err)
	}
	return s
}
