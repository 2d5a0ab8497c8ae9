package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
)

// A mutant is a deliberate mistake in a lock. Each is a patch whose first lines say what finds
// it; a test of the explorer checks that they are true.
type mutant struct{ Name, Strategy, Mistake, How string }

// mutants returns the table of mutants: those that the explorer must find, then the others.
func (g generator) mutants() (string, error) {
	var table struct {
		Rows  []mutant
		Count map[string]int // by what finds the mutant
	}
	table.Count = map[string]int{}
	var others []mutant
	const dir = "internal/explore/testdata/mutants"
	for _, pattern := range []string{dir + "/*.patch", dir + "/unseen/*.patch"} {
		files, err := filepath.Glob(filepath.Join(g.root, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			header, err := g.patchHeader(file)
			if err != nil {
				return "", err
			}
			by, how := foundBy(header)
			table.Count[by]++
			m := mutant{strings.TrimSuffix(filepath.Base(file), ".patch"), header["strategy"], header["mistake"], how}
			if by == "explorer" {
				table.Rows = append(table.Rows, m)
			} else {
				others = append(others, m)
			}
		}
	}
	table.Rows = append(table.Rows, others...)
	return g.execute("mutants", table)
}

// patchHeader reads the lines "key: value" before the diff of a patch.
func (g generator) patchHeader(file string) (map[string]string, error) {
	path, err := filepath.Rel(g.root, file)
	if err != nil {
		return nil, err
	}
	text, err := g.read(path)
	if err != nil {
		return nil, err
	}
	lines, _, _ := strings.Cut(text, "\n\n")
	header := map[string]string{}
	for line := range strings.Lines(lines) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not of the form \"key: value\"", path, line)
		}
		header[key] = value
	}
	return header, nil
}

// foundBy returns what finds a mutant (explorer, test, equivalent or survives), and a
// description of how.
func foundBy(header map[string]string) (by, how string) {
	switch {
	case header["test"] != "":
		folder, test, _ := strings.Cut(header["test"], " ")
		return "test", fmt.Sprintf("`%s` of `%s`", test, folder)
	case header["equivalent"] != "":
		return "equivalent", "equivalent: " + cell(header["equivalent"])
	case header["survives"] != "":
		return "survives", "**survives**: " + cell(header["survives"])
	}
	how = "`" + header["property"] + "`"
	if header["steps"] != "" {
		how += " in " + header["steps"] + " steps"
	}
	bounds := []string{"actors: " + cmp.Or(header["actors"], "2"), "preemptions: " + cmp.Or(header["preemptions"], "0")}
	for _, key := range []string{"faults", "instances", "ttl", "wait", "work"} {
		if header[key] != "" {
			bounds = append(bounds, key+": "+header[key])
		}
	}
	return "explorer", how + " (" + strings.Join(bounds, ", ") + ")"
}
