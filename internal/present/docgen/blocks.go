package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"grablab/internal/present/report"
	"grablab/internal/present/whichlock"
)

// files maps the path of each fully generated document to the function that writes it.
var files = map[string]func() (string, error){
	"docs/failure-modes.md": fromTemplate("failure-modes"),
	"docs/strategies.md":    fromTemplate("strategies"),
	"docs/handout.md":       fromLesson("handout", "en"),
	"docs/handout.zh.md":    fromLesson("handout", "zh"),
	"docs/handout.ja.md":    fromLesson("handout", "ja"),
	"docs/which-lock.md":    fromResults(whichlock.Write),
}

// blocks maps the name of each generated section to the function that writes it. Documents refer to a
// section by this name.
var blocks = map[string]func() (string, error){
	"rush":         func() (string, error) { return runText("reference-rush-embedded") },
	"article":      func() (string, error) { return runText("reference-article-local") },
	"matrix":       matrix,
	"choose":       fromResults(whichlock.Short),
	"faults":       fromTemplate("faults"),
	"properties":   fromTemplate("properties"),
	"mutate":       fencedFile("results/mutate.txt"),
	"wider":        fromTemplate("wider"),
	"bench-bounds": benchBounds,
	"costs":        fromTemplate("costs"),
	"verdicts":     fromTemplate("verdicts"),
	"words":        fromTemplate("words"),
	"libraries":    fromTemplate("libraries"),

	"target-file":  fencedFile("docs/target.yaml"),
	"expectations": fencedFile("docs/expectations.yaml"),

	"workshop-times":   fromLesson("workshop-times", "en"),
	"workshop-answers": fromLesson("workshop-answers", "en"),
}

func fenced(text string) string { return "```text\n" + strings.Trim(text, "\n") + "\n```\n" }

func read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return string(text), err
}

func fencedFile(path string) func() (string, error) {
	return func() (string, error) {
		text, err := read(path)
		return fenced(text), err
	}
}

// runText returns the text report of a reference run.
func runText(folder string) (string, error) {
	run, err := report.Load(filepath.Join(root, "results", folder))
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = report.Text(&b, run)
	return fenced(b.String()), err
}

// matrix returns the verdict table and its legend, as loadgen prints them.
func matrix() (string, error) {
	text, err := runText("reference-matrix-local")
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

// fromResults returns a function that passes the recommended locks' measured results to write.
func fromResults(write func(whichlock.Sources) (string, error)) func() (string, error) {
	return func() (string, error) {
		sources, err := whichlock.Load(root)
		if err != nil {
			return "", err
		}
		return write(sources)
	}
}

// benchBounds returns the part of the benchmark report that compares each cost with its bound.
func benchBounds() (string, error) {
	const report = "results/reference-bench-local/report.txt"
	text, err := read(report)
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

// cost is a measured cost of the program, such as its CPU time per request, with the limit that it must
// not exceed.
type cost struct{ What, pattern, Bound, Measured string }

// costs reads the measured costs from the results of two parts of make prove.
func costs() ([]cost, error) {
	costs := []cost{
		{What: "time of a `setnx` acquire and release, divided by the time of the same two commands alone", pattern: `setnx/raw ([\d.]+ \[[^]]+\])`, Bound: "1.05"},
		{What: "time from a release until a `watchdog` waiter holds the lock, in round trips", pattern: `in round trips ([\d.]+ \[[^]]+\])`, Bound: "3"},
		{What: "`loadgen` CPU time per request, divided by vegeta's", pattern: `ours/bare vegeta: ([\d.]+ \[[^]]+\])`, Bound: "1.15"},
		{What: "grabs per second through two instances, divided by the same SQL without a service", pattern: `two instances/bare SQL: ([\d.]+ \[[^]]+\])`, Bound: "0.50"},
		{What: "grabs per second through the store, divided by the same SQL without the store", pattern: `store/bare: ([\d.]+ \[[^]]+\])`},
		{What: "`loadgen` peak memory over 1,000,000 requests", pattern: `peak memory of loadgen (\d+ MiB)`, Bound: "200 MiB"},
		{What: "CPU time for recording all events of a grab", pattern: `CPU time of recording one grab: ([\d.]+ us, [\d.]+ to [\d.]+)`},
	}
	var measured string
	for _, part := range []string{"costs", "million"} {
		text, err := read("results/prove/" + part + ".txt")
		if err != nil {
			return nil, err
		}
		measured += text
	}
	for i, c := range costs {
		found := regexp.MustCompile(c.pattern).FindStringSubmatch(measured)
		if found == nil {
			return nil, fmt.Errorf("results/prove has no match for %s: %s", c.What, c.pattern)
		}
		costs[i].Measured = found[1]
	}
	return costs, nil
}
