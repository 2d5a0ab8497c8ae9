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

// lacks reports whether the step's servers are missing, so that the steps in Instead must run.
func (r runner) lacks(step Step) bool { return step.Servers && r.session.Servers != nil }

// run runs the steps, and stores the measured values.
func (r runner) run(ctx context.Context, steps []Step) error {
	for _, step := range steps {
		var err error
		if r.lacks(step) {
			r.explainInstead(step)
			err = r.run(ctx, step.Instead)
		} else {
			err = r.runStep(ctx, step)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// explainInstead says that the step's servers are missing.
func (r runner) explainInstead(step Step) {
	texts := r.session.Texts
	printTo(r.out, "", texts.Say("ui.noservers", Facts{"command": r.command(step)}))
	if step.Instead != nil {
		printTo(r.out, "", texts.Say("ui.instead", nil))
	}
	fmt.Fprintln(r.out)
}

func (r runner) runStep(ctx context.Context, step Step) error {
	args := r.arguments(step)
	if args[0] != "run" {
		args = append(args, "-quiet")
	}
	fmt.Fprintf(r.out, "%s%s %s\n\n", Prompt, r.session.Program, strings.Join(args, " "))
	o, err := r.session.Do(ctx, args, r.out)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.out)
	return step.Measure(o, r.facts)
}

// Prompt precedes each command in the output.
const Prompt = "$ "

// command returns a step's command line. It replaces unknown values with "…".
func (r runner) command(step Step) string {
	text := strings.Join(append([]string{r.session.Program}, r.words(step)...), " ")
	return slots.ReplaceAllString(text, "…")
}

// commands returns the command lines that run will execute. They depend on the installed servers.
func (r runner) commands(steps []Step) (all []string) {
	for _, step := range steps {
		if r.lacks(step) {
			all = append(all, r.commands(step.Instead)...)
		} else {
			all = append(all, r.command(step))
		}
	}
	return all
}

// words splits a command into words. If the user wants real servers, it adds -stack local.
func (r runner) words(step Step) []string {
	args := arguments(step.Run, r.facts)
	if r.session.Local && !slices.Contains([]string{"explore", "run"}, args[0]) && !slices.Contains(args, "-stack") {
		args = append(args, "-stack", "local")
	}
	return args
}

// arguments splits a command into words, and adds the output folder.
func (r runner) arguments(step Step) []string {
	args := r.words(step)
	switch args[0] {
	case "run":
		return args
	case "explore":
		if slices.Contains(args, "-replay") {
			return args
		}
		return append(args, "-out", r.facts["dir"])
	default:
		return append(args, "-out", fresh(r.facts["dir"]))
	}
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
