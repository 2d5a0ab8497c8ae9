package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
)

func parseCheck(args []string) (*runSettings, error) {
	s, err := parseRun(args)
	if err == nil && !s.TestsService() {
		err = flags.Usage("check: no service is named: add -target-file FILE, -service COMMAND or -targets URL,URL")
	}
	return s, err
}

// printNote prints the note about the service, if there is one.
func (s *runSettings) printNote(stderr io.Writer) {
	if s.note != "" {
		fmt.Fprintln(stderr, s.note)
	}
}

func checkFlags() []flags.Flag {
	return slices.DeleteFunc(new(runSettings).targetFlags(), func(f flags.Flag) bool { return f.Name == "probe-drivers" })
}

// check sends a few test requests to the user's service and prints the findings.
func (s *runSettings) check(ctx context.Context, stdout, stderr io.Writer) error {
	s.printNote(stderr)
	s.Log = stderr
	var failed error
	err := experiment.Inspect(ctx, s.Config, func(p experiment.Preflight) {
		printPreflight(stdout, p)
		for _, problem := range p.Problems {
			fmt.Fprintf(stdout, "  ! %s\n", s.problem(problem))
			failed = exitUsage
		}
		fmt.Fprintln(stdout)
	})
	if err != nil {
		return orInterrupted(s.refusal(err), stderr, "")
	}
	if failed == nil {
		fmt.Fprintln(stdout, "nothing to correct")
	}
	return failed
}

// checkPreflight returns an error if the test requests have shown a problem that would make all tests
// of the strategy useless. A problem that affects only tests with a fault is accepted if the run also has
// tests without one. experiment.Execute calls it through Config.Inspected.
func (s *runSettings) checkPreflight(p experiment.Preflight) error {
	for _, problem := range p.Problems {
		if !problem.Faults || !s.anyCell(func(f catalog.Fault) bool { return f == catalog.NoFault }) {
			return &problem
		}
	}
	return nil
}

// refusal turns errors that the user can fix, such as a problem with the service, into usage
// errors. It returns other errors unchanged.
func (s *runSettings) refusal(err error) error {
	if problem, ok := errors.AsType[*experiment.Problem](err); ok {
		return flags.Usage("%s", s.problem(*problem))
	}
	return asUsageError(err)
}

// problem returns a message about p that names the flag, or the line of the target file, to
// correct.
func (s *runSettings) problem(p experiment.Problem) string {
	switch {
	case s.places[p.Key] != "":
		return strings.TrimPrefix(s.line.Label(p.Key), "-target-file: ") + ": " + p.Text
	case s.targetFile != "" && !s.given(p.Key):
		return fmt.Sprintf("%s: %s is not set: %s", s.targetFile, p.Key, p.Text)
	}
	return "-" + p.Key + ": " + p.Text
}

// printPreflight prints the service's responses to the test requests, and the remote calls that
// each fault can hit.
func printPreflight(w io.Writer, p experiment.Preflight) {
	fmt.Fprintf(w, "%s\n", p.Strategy)
	var rows [][2]string
	for _, a := range p.Answers {
		if a.Wrong {
			a.Question = "! " + a.Question
		}
		rows = append(rows, [2]string{a.Question, a.Answer + ": " + a.Meaning})
	}
	if p.Ledger != "" {
		rows = append(rows, [2]string{"ledger", p.Ledger})
	}
	for i, c := range p.Calls {
		rows = append(rows, [2]string{fmt.Sprintf("%3d %s", i+1, c.Role), c.Name})
	}
	flags.PrintTable(w, rows)
	flags.PrintTable(w, reaches(p.Reaches))
	if p.Output != "" {
		fmt.Fprintf(w, "  its output ends with\n    %s\n", strings.ReplaceAll(p.Output, "\n", "\n    "))
	}
}

// reaches returns a table of the calls that each fault can hit. Faults that can hit the same calls
// share a row.
func reaches(all []experiment.Reach) (rows [][2]string) {
	for _, r := range all {
		text := "nowhere: " + r.Why
		switch {
		case slices.Equal(r.Before, r.After) && r.Before != nil:
			text = "before and after " + ranges(r.Before)
		case r.Before != nil && r.After != nil:
			text = "before " + ranges(r.Before) + ", after " + ranges(r.After)
		case r.Before != nil:
			text = "before " + ranges(r.Before)
		case r.After != nil:
			text = "after " + ranges(r.After)
		}
		if i := slices.IndexFunc(rows, func(row [2]string) bool { return row[1] == text }); i >= 0 {
			rows[i][0] += ", " + string(r.Fault)
		} else {
			rows = append(rows, [2]string{string(r.Fault), text})
		}
	}
	slices.SortStableFunc(rows, func(a, b [2]string) int { return strings.Compare(a[1][:1], b[1][:1]) }) // sort rows that begin with "nowhere" last
	return rows
}

// ranges formats increasing numbers as ranges, such as "1-3, 5".
func ranges(numbers []int) string {
	var words []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		word := strconv.Itoa(numbers[i])
		if end > i {
			word += "-" + strconv.Itoa(numbers[end])
		}
		words, i = append(words, word), end+1
	}
	return strings.Join(words, ", ")
}
