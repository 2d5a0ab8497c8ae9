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
)

// runner runs the steps of an exercise.
type runner struct {
	session *Session  // says how to run commands
	facts   Facts     // values for the commands; receives the measured values
	out     io.Writer // receives the commands and their output
}

func (s *Session) runner(f Facts, out io.Writer) runner { return runner{s, f, out} }

// run runs the steps, and stores the measured values.
func (r runner) run(ctx context.Context, steps []Step) error {
	for _, step := range steps {
		args := r.arguments(step)
		fmt.Fprintf(r.out, "%s%s %s\n\n", Prompt, r.session.Program, strings.Join(args, " "))
		o, err := r.session.Do(ctx, args, r.out)
		if err != nil {
			return err
		}
		fmt.Fprintln(r.out)
		if err := step.Measure(o, r.facts); err != nil {
			return err
		}
	}
	return nil
}

// Prompt precedes each command in the output.
const Prompt = "$ "

// command returns a step's command line. It replaces unknown values with "…".
func (r runner) command(step Step) string {
	text := strings.Join(append([]string{r.session.Program}, r.words(step)...), " ")
	return slots.ReplaceAllString(text, "…")
}

// words splits a command into words. If the user wants real servers, it adds -stack local.
func (r runner) words(step Step) []string {
	args := arguments(step.Run, r.facts)
	if r.session.Local && args[0] != "explore" {
		args = append(args, "-stack", "local")
	}
	return args
}

// arguments splits a command into words, and adds the output folder.
func (r runner) arguments(step Step) []string {
	args := r.words(step)
	switch {
	case args[0] != "explore":
		args = append(args, "-out", fresh(r.facts["dir"]))
	case !slices.Contains(args, "-replay"):
		args = append(args, "-out", r.facts["dir"])
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
