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
	"grablab/internal/testbed/target"
)

// files maps the path of each fully generated document to the function that renders it.
var files = map[string]func() (string, error){
	"docs/failure-modes.md": fromTemplate("failure-modes"),
	"docs/strategies.md":    fromTemplate("strategies"),
	"docs/handout.md":       fromLesson("handout", "en"),
	"docs/handout.zh.md":    fromLesson("handout", "zh"),
	"docs/handout.ja.md":    fromLesson("handout", "ja"),
	"docs/which-lock.md":    fromResults(whichlock.Write),

	"docs/target.schema.json":       func() (string, error) { return target.FileSchema, nil },
	"docs/expectations.schema.json": func() (string, error) { return target.ExpectationsSchema, nil },
	"docs/run.schema.json":          func() (string, error) { return experiment.RunSchema, nil },

	// Package whichlock embeds the measurements behind docs/which-lock.md.
	"internal/present/whichlock/facts.json": fromResults(whichlock.FactsOf),
}

// blocks maps the name of each generated section to the function that renders it. Documents refer to a
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
	"costs":        costs,
	"verdicts":     fromTemplate("verdicts"),
	"words":        fromTemplate("words"),
	"libraries":    fromTemplate("libraries"),

	"target-file":  fencedFile("docs/target.yaml"),
	"expectations": fencedFile("docs/expectations.yaml"),
	"examples":     exampleVerdicts,

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

// fromResults returns a function that passes the recommended locks' measured results to render.
func fromResults(render func(whichlock.Sources) (string, error)) func() (string, error) {
	return func() (string, error) {
		sources, err := whichlock.Load(root)
		if err != nil {
			return "", err
		}
		return render(sources)
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

// measuredLine matches a line in which a test has logged a measurement.
var measuredLine = regexp.MustCompile(`(?m)_test\.go:\d+: (.+)$`)

// costs returns what the program itself costs, as logged by two parts of make prove.
func costs() (string, error) {
	var lines []string
	for _, part := range []string{"costs", "million"} {
		text, err := read("results/prove/" + part + ".txt")
		if err != nil {
			return "", err
		}
		for _, line := range measuredLine.FindAllStringSubmatch(text, -1) {
			lines = append(lines, line[1])
		}
	}
	return fenced(strings.Join(lines, "\n")), nil
}
