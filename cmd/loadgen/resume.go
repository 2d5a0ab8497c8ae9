package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// resumed are the settings of the run in the folder that -resume names, with
// those of s that may be given anew.
func (s *settings) resumed() (*settings, error) {
	run, err := report.Load(s.resume)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), report.ErrNoRun.Error()+": "))
	}
	if err := s.contradicts(run); err != nil {
		return nil, err
	}
	r, err := parseWithScenario(append(slices.Clone(run.Config.Args), s.unrecorded...))
	if err != nil {
		return nil, fmt.Errorf("the flags that %s was run with: %s", s.resume, strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
	}
	r.Workers, r.Resume = s.Workers, run
	r.Out, err = filepath.Abs(s.resume)
	return r, err
}

// contradicts says why the run cannot be resumed with the flags of s; nil: it can.
func (s *settings) contradicts(run *experiment.Run) error {
	had := run.Config.Args // as "-name=value"
	switch commit := experiment.NewEnvironment("").Commit; {
	case s.given["out"]:
		return errors.New("-out cannot be combined with -resume, which goes on in the folder of the run")
	case len(had) == 0:
		return fmt.Errorf("-resume %s: it does not say with which flags it was run", s.resume)
	case run.Environment.Commit != commit:
		return fmt.Errorf("-resume %s: it was run by commit %s, and this program is %s: their cells make no table", s.resume, run.Environment.Commit, commit)
	}
	for _, arg := range s.Args {
		if slices.Contains(had, arg) {
			continue
		}
		name, _, _ := strings.Cut(arg, "=")
		i := slices.IndexFunc(had, func(other string) bool { return strings.HasPrefix(other, name+"=") })
		if i < 0 {
			return fmt.Errorf("%s contradicts %s, which was run without %s", arg, s.resume, name)
		}
		return fmt.Errorf("%s contradicts %s, which was run with %s", arg, s.resume, had[i])
	}
	return nil
}
