package archtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const mutantsDir = "internal/explore/testdata/mutants"

// mutants is the table of the mistakes that were put into the locks, by what finds
// each: it stands in the heads of their patches, which a test of the explorer holds to
// the truth.
func mutants() (string, error) {
	var seen, unseen []string
	counts := map[string]int{}
	for _, dir := range []string{mutantsDir, mutantsDir + "/unseen"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.patch"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			head, err := headOf(file)
			if err != nil {
				return "", err
			}
			by, how := foundBy(head)
			counts[by]++
			line := fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", strings.TrimSuffix(filepath.Base(file), ".patch"), head["strategy"], cell(head["mistake"]), how)
			if by == "explorer" {
				seen = append(seen, line)
			} else {
				unseen = append(unseen, line)
			}
		}
	}
	return fmt.Sprintf("%d mutants: found by the explorer %d, by another test %d; equivalent %d; surviving %d.\n\n"+
		"| mutant | strategy | the mistake | found by |\n|---|---|---|---|\n%s",
		len(seen)+len(unseen), counts["explorer"], counts["test"], counts["equivalent"], counts["survives"],
		strings.Join(slices.Concat(seen, unseen), "")), nil
}

// headOf reads the lines before the diff of a patch.
func headOf(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines, _, _ := strings.Cut(string(text), "\n\n")
	head := map[string]string{}
	for line := range strings.Lines(lines) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is no line of a head", file, line)
		}
		head[key] = value
	}
	return head, nil
}

// foundBy says by what a mistake is found: explorer, test, equivalent or survives; and how.
func foundBy(head map[string]string) (by, how string) {
	switch {
	case head["test"] != "":
		folder, test, _ := strings.Cut(head["test"], " ")
		return "test", fmt.Sprintf("`%s` of `%s`", test, folder)
	case head["equivalent"] != "":
		return "equivalent", "equivalent: " + cell(head["equivalent"])
	case head["survives"] != "":
		return "survives", "**survives**: " + cell(head["survives"])
	}
	how = "`" + head["property"] + "`"
	if head["steps"] != "" {
		how += " in " + head["steps"] + " steps"
	}
	bounds := []string{"actors: " + cmp.Or(head["actors"], "2"), "preemptions: " + cmp.Or(head["preemptions"], "0")}
	if head["faults"] != "" {
		bounds = append(bounds, "faults: "+head["faults"])
	}
	for _, key := range []string{"instances", "ttl", "wait", "work"} {
		if head[key] != "" {
			bounds = append(bounds, key+": "+head[key])
		}
	}
	return "explorer", how + " (" + strings.Join(bounds, ", ") + ")"
}
