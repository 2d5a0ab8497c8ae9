package workshop

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
)

// Prompt precedes each command in the output.
const Prompt = "$ "

// run runs the steps of an exercise, and writes the commands and their output to out. f contains
// values for the commands, and receives the measured values.
func (s *Session) run(ctx context.Context, steps []Step, f Facts, out io.Writer) error {
	for _, step := range steps {
		args := s.arguments(step, f)
		fmt.Fprintf(out, "%s%s %s\n\n", Prompt, s.Program, strings.Join(args, " "))
		o, err := s.Do(ctx, args, out)
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
		for _, store := range step.measures {
			if err := store(o, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// command returns a step's command line. It replaces unknown values with "…".
func (s *Session) command(step Step, f Facts) string {
	text := strings.Join(append([]string{s.Program}, s.words(step, f)...), " ")
	return slots.ReplaceAllString(text, "…")
}

// words splits a command into words, and fills in values from f. A value with spaces stays one word.
// If the user wants real servers, words adds -stack local.
func (s *Session) words(step Step, f Facts) []string {
	args := catalog.Map(strings.Fields(step.command), f.fill)
	if s.Local && args[0] != "explore" {
		args = append(args, "-stack", "local")
	}
	return args
}

// arguments splits a command into words, and adds the output folder.
func (s *Session) arguments(step Step, f Facts) []string {
	args := s.words(step, f)
	switch {
	case args[0] != "explore":
		args = append(args, "-out", fresh(f["dir"]))
	case !slices.Contains(args, "-replay"):
		args = append(args, "-out", f["dir"])
	}
	return append(args, "-quiet")
}

// fresh returns a path in dir that does not exist yet.
func fresh(dir string) string {
	for n := 1; ; n++ {
		path := filepath.Join(dir, "run-"+strconv.Itoa(n))
		if _, err := os.Stat(path); err != nil {
			return path
		}
	}
}
