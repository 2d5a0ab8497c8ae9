package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/present/whichlock"
)

// files returns a generator function for each document that is fully generated.
func (g generator) files() map[string]func() (string, error) {
	return map[string]func() (string, error){
		"docs/failure-modes.md": g.template("failure-modes"),
		"docs/strategies.md":    g.template("strategies"),
		"docs/handout.md":       func() (string, error) { return g.handout("en") },
		"docs/handout.zh.md":    func() (string, error) { return g.handout("zh") },
		"docs/handout.ja.md":    func() (string, error) { return g.handout("ja") },
		"docs/which-lock.md":    g.whichLock,
	}
}

// blocks returns a generator function for each generated section of other documents.
func (g generator) blocks() map[string]func() (string, error) {
	return map[string]func() (string, error){
		"rush":         func() (string, error) { return g.runText("reference-rush-embedded") },
		"article":      func() (string, error) { return g.runText("reference-article-local") },
		"matrix":       g.matrix,
		"choose":       g.choose,
		"faults":       g.template("faults"),
		"properties":   g.template("properties"),
		"mutate":       func() (string, error) { return g.fencedFile("results/mutate.txt") },
		"wider":        g.template("wider"),
		"bench-bounds": g.benchBounds,
		"costs":        g.template("costs"),
		"verdicts":     g.template("verdicts"),
		"words":        g.template("words"),
		"libraries":    g.template("libraries"),

		"target-file":  func() (string, error) { return g.fencedFile("docs/target.yaml") },
		"expectations": func() (string, error) { return g.fencedFile("docs/expectations.yaml") },

		"workshop-times":   g.workshopBlock("workshop-times"),
		"workshop-answers": g.workshopBlock("workshop-answers"),
	}
}

func fenced(text string) string { return "```text\n" + strings.Trim(text, "\n") + "\n```\n" }

func (g generator) read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(g.root, path))
	return string(text), err
}

func (g generator) fencedFile(path string) (string, error) {
	text, err := g.read(path)
	return fenced(text), err
}

func (g generator) loadRun(folder string) (*experiment.Run, error) {
	return report.Load(filepath.Join(g.root, "results", folder))
}

// runText returns the text report of a reference run.
func (g generator) runText(folder string) (string, error) {
	run, err := g.loadRun(folder)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = report.Text(&b, run)
	return fenced(b.String()), err
}

// matrix returns the table of verdicts and its legend, as loadgen prints them.
func (g generator) matrix() (string, error) {
	text, err := g.runText("reference-matrix-local")
	if err != nil {
		return "", err
	}
	_, text, _ = strings.Cut(text, "\n\n")
	text, _, found := strings.Cut(text, "\n\nUnder no fault")
	if !found {
		return "", fmt.Errorf("want a matrix that ends before \"Under no fault\", got %.80q", text)
	}
	return fenced(text), nil
}

// choose returns the README's table of recommended strategies.
func (g generator) choose() (string, error) {
	sources, err := whichlock.Load(g.root)
	if err != nil {
		return "", err
	}
	return whichlock.Short(sources), nil
}

// facts returns the content of factsFile.
func (g generator) facts() (string, error) {
	sources, err := whichlock.Load(g.root)
	if err != nil {
		return "", err
	}
	text, err := whichlock.FactsOf(sources)
	return string(text), err
}

func (g generator) whichLock() (string, error) {
	sources, err := whichlock.Load(g.root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = whichlock.Write(&b, sources)
	return b.String(), err
}

// benchBounds returns the list of limits that the benchmark report checks.
func (g generator) benchBounds() (string, error) {
	const report = "results/reference-bench-local/report.txt"
	text, err := g.read(report)
	if err != nil {
		return "", err
	}
	_, text, found := strings.Cut(text, "\nBounds ")
	if !found {
		return "", fmt.Errorf("%s has no line that begins with \"Bounds\"", report)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	return fenced("Bounds " + text), nil
}

// cost is a measured figure from results/prove.txt, with its limit.
type cost struct{ What, pattern, Bound, Measured string }

// costs reads the figures in results/prove.txt. If several lines match a pattern, the last one
// counts.
func (g generator) costs() ([]cost, error) {
	costs := []cost{
		{What: "acquire and release of `setnx`, divided by the time of the same two commands alone", pattern: `setnx/raw ([\d.]+ \[[^]]+\])`, Bound: "1.05"},
		{What: "time from a release until a waiter of `watchdog` holds the lock, in round trips", pattern: `in round trips ([\d.]+ \[[^]]+\])`, Bound: "3"},
		{What: "CPU time of `loadgen` for a request, divided by that of vegeta", pattern: `ours/bare vegeta: ([\d.]+ \[[^]]+\])`, Bound: "1.15"},
		{What: "grabs per second through two instances, divided by the same SQL without a service", pattern: `two instances/bare SQL: ([\d.]+ \[[^]]+\])`, Bound: "0.50"},
		{What: "grabs per second of the store, divided by the same SQL without the store", pattern: `store/bare: ([\d.]+ \[[^]]+\])`},
		{What: "peak memory of `loadgen` over 1,000,000 requests", pattern: `peak memory of loadgen (\d+ MiB)`, Bound: "200 MiB"},
		{What: "CPU time for recording all events of a grab", pattern: `CPU time of recording one grab: ([\d.]+ us, [\d.]+ to [\d.]+)`},
	}
	text, err := g.read("results/prove.txt")
	if err != nil {
		return nil, err
	}
	for i, c := range costs {
		found := regexp.MustCompile(c.pattern).FindAllStringSubmatch(text, -1)
		if found == nil {
			return nil, fmt.Errorf("results/prove.txt has no match for %s: %s", c.What, c.pattern)
		}
		costs[i].Measured = found[len(found)-1][1]
	}
	return costs, nil
}
