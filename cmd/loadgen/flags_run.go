package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/shard"
	"grablab/internal/present/report"
	"grablab/internal/testbed/infile"
	"grablab/internal/testbed/target"

	"github.com/peterbourgon/ff/v3"
)

// parseRun parses the flags of the run command. It returns a flags.HelpError for -h, and an error
// that wraps flags.ErrUsage for invalid flags.
func parseRun(args []string) (*runSettings, error) {
	if share := shard.FromEnv(os.Getenv); share != "" {
		args = append([]string{"-shard=" + share}, args...)
	}
	s, err := parseWithScenario(args)
	if err != nil {
		return nil, err
	}
	if s.given("shard") {
		s.Shard = &s.shard
	}
	if s.resume != "" {
		if s, err = s.resumedSettings(); err != nil {
			return nil, flags.Usage("%w", err)
		}
	}
	if !s.given("seed") {
		s.Seed = uint64(rand.Uint32())
		s.Args = append(s.Args, fmt.Sprintf("-seed=%d", s.Seed))
	}
	if err := cmp.Or(s.validate(), s.sumFiles()); err != nil { // the files may be pipes, so validate must read them first
		return nil, flags.Usage("%w", err)
	}
	return s, nil
}

// sumFiles computes checksums of the files that some flags name, so that a resumed run can find out whether they have
// changed. It returns an error if one of them has.
func (s *runSettings) sumFiles() error {
	for name, path := range map[string]string{"target-file": s.targetFile, "expectations": s.expectations} {
		if path == "" {
			continue
		}
		text, err := infile.Read(path, infile.Small)
		if err != nil {
			return fmt.Errorf("-%s: %w", name, err)
		}
		if s.Files == nil {
			s.Files = map[string]string{}
		}
		s.Files[name] = fmt.Sprintf("%x", sha256.Sum256(text))
		if s.Resume == nil {
			continue
		}
		if before := s.Resume.Config.Files[name]; before != "" && before != s.Files[name] {
			return fmt.Errorf("-resume: the file %s of -%s has changed since the run began: restore it, or start a new run", path, name)
		}
	}
	return nil
}

// parseWithScenario parses the flags twice: first to find the scenario, and then again to override
// the defaults of that scenario.
func parseWithScenario(args []string) (*runSettings, error) {
	s := defaults(experiment.Scenarios[0].Name)
	if err := s.parse(args); err != nil {
		return nil, err
	}
	s = defaults(s.Scenario)
	return s, s.parse(args)
}

// parse reads the target file, if there is one, and then the command line, which overrides the
// file.
func (s *runSettings) parse(args []string) (err error) {
	s.line, err = flags.ParseFlags(s.flags(), args, ff.WithConfigFileVia(&s.targetFile), ff.WithConfigFileParser(s.readTargetFile))
	if err != nil {
		return err
	}
	s.line.Places = s.places
	for _, arg := range s.line.Flags {
		name := flagOf(arg)
		delete(s.places, name)
		if slices.Contains(unrecordedFlags, name) {
			s.unrecordedArgs = append(s.unrecordedArgs, arg)
		} else {
			s.Args = append(s.Args, arg)
		}
	}
	// Send most requests for an order at once. If all drivers arrived one by one, a slow service or a
	// low -rate would hide races.
	s.Together = s.TestsService() && s.Rate > 0
	return nil
}

// unrecordedFlags names the flags that run.json omits: secrets, flags for the output, and flags that
// each command line sets anew.
var unrecordedFlags = append([]string{"out", "resume", "format", "assert", "baseline", "budget-total", "junit", "quiet", "schedule"}, flags.Secrets...)

// readTargetFile calls set for each setting in the target file. The function set ignores settings
// that are also on the command line, because the command line takes precedence.
func (s *runSettings) readTargetFile(_ io.Reader, set func(name, value string) error) error {
	lines, err := target.ReadFile(s.targetFile)
	if err != nil {
		return fmt.Errorf("-target-file: %w", err)
	}
	for _, l := range lines {
		place := fmt.Sprintf("-target-file: %s:%d:%d", s.targetFile, l.Line, l.Column)
		if err := set(l.Key, l.Value); err != nil {
			return fmt.Errorf("%s: %s: %w", place, l.Key, cmp.Or(errors.Unwrap(err), err))
		}
		if s.places[l.Key] == "" {
			s.places[l.Key] = place
		}
	}
	return nil
}

// resumedSettings returns the settings recorded by the interrupted run, plus the flags of this
// command line that a run does not record, such as -format.
func (s *runSettings) resumedSettings() (*runSettings, error) {
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
	r.Resume = run
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
func (s *runSettings) resumeCommand(dir string) string {
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
func (s *runSettings) checkResume(run *experiment.Run) error {
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
		if !slices.Contains(recorded, arg) {
			return fmt.Errorf("%s: the run in %s began with other flags, and a resumed run keeps its settings: leave out this flag", arg, s.resume)
		}
	}
	return nil
}
