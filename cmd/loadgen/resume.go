package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// resumedSettings returns the settings recorded by the interrupted run, plus the flags of this
// command line that a run does not record, such as -format.
func (s *settings) resumedSettings() (*settings, error) {
	run, err := report.Load(s.resume)
	if err != nil {
		return nil, err
	}
	if err := s.checkResume(run); err != nil {
		return nil, err
	}
	r, err := parseWithScenario(append(slices.Clone(run.Config.Args), s.unrecordedArgs...))
	if err != nil {
		return nil, fmt.Errorf("the flags recorded in %s: %w", s.resume, withoutPrefix(err, flags.ErrUsage))
	}
	r.Workers, r.Resume = s.Workers, run
	r.Out, err = filepath.Abs(s.resume)
	return r, err
}

// runsCommands lists the flags that contain commands or SQL. A resumed run uses them only if the
// user repeats them, because the result folder may come from someone else.
var runsCommands = []string{"service", "open-orders", "ledger-query", "migrate", "target-file"}

// isUntrusted reports whether a recorded flag contains a command or SQL and the user has not
// repeated the flag.
func isUntrusted(arg string, given []string) bool {
	return slices.Contains(runsCommands, flagOf(arg)) && !slices.Contains(given, arg)
}

// flagOf returns the name of the flag in an argument such as "-name=value".
func flagOf(arg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
	return name
}

// resumeCommand returns the command line that resumes the run in dir. It includes the flags that the
// user must repeat, with a placeholder for each secret.
func (s *settings) resumeCommand(dir string) string {
	command := "loadgen run -resume " + report.Quote(dir)
	for _, arg := range s.Args {
		if isUntrusted(arg, nil) {
			command += " " + report.Quote(arg)
		}
	}
	for _, arg := range s.unrecordedArgs {
		switch name := flagOf(arg); {
		case slices.Contains(flags.Secrets, name):
			command += " -" + name + "=…"
		case name != "out" && name != "resume":
			command += " " + report.Quote(arg)
		}
	}
	return command
}

// checkResume returns an error if this program cannot resume the run with the given flags.
func (s *settings) checkResume(run *experiment.Run) error {
	recorded := run.Config.Args // each has the form "-name=value"
	here := experiment.NewEnvironment("")
	switch commit := here.Commit; {
	case s.given("out"):
		return fmt.Errorf("%s: a resumed run writes to its own folder: leave out this flag", s.line.Label("out"))
	case len(recorded) == 0:
		return fmt.Errorf("-resume %s: the file run.json in this folder does not record the flags of the run: start a new run", s.resume)
	case run.Environment.Commit != commit:
		return fmt.Errorf("-resume %s: loadgen commit %s began this run, but you run commit %s: use the same version, or start a new run", s.resume, run.Environment.Commit, commit)
	}
	for _, d := range run.Environment.Differences(here) {
		return fmt.Errorf("-resume %s: the finished part of this run was measured with %s: continue on the same system, or start a new run", s.resume, d)
	}
	for _, arg := range recorded {
		if isUntrusted(arg, s.Args) {
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
			return fmt.Errorf("-resume %s: this run used the flag -%s %q, which runs commands or SQL: if you trust it, add this flag to your command too", s.resume, name, value)
		}
	}
	for _, arg := range s.Args {
		if slices.Contains(recorded, arg) {
			continue
		}
		name, _, _ := strings.Cut(arg, "=")
		before := "without " + name
		if i := slices.IndexFunc(recorded, func(other string) bool { return strings.HasPrefix(other, name+"=") }); i >= 0 {
			before = "with " + recorded[i]
		}
		return fmt.Errorf("%s: the run in %s began %s, and a resumed run keeps its settings: leave out this flag", arg, s.resume, before)
	}
	return nil
}
