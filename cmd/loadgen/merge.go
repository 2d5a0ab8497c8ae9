package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/shard"
	"grablab/internal/present/report"
	"grablab/internal/service/version"
	"grablab/internal/testbed/load"
)

// mergeFlags lists the flags that merge accepts. All other settings come from the recorded runs.
var mergeFlags = append([]string{"ledger-query", "target-file", "expectations", "assert", "baseline", "junit", "out", "format", "quiet"}, flags.Secrets...)

func (s *settings) flagsOfMerge() []flags.Flag {
	return slices.DeleteFunc(s.flags(), func(f flags.Flag) bool { return !slices.Contains(mergeFlags, f.Name) })
}

// parseMerge parses the flags and reads the results to merge. It returns the settings that all of
// these results share.
func parseMerge(args []string) (*settings, error) {
	line, err := flags.Parse(defaults(experiment.Scenarios[0].Name).flagsOfMerge(), args)
	switch {
	case err != nil:
		return nil, err
	case len(line.Args) == 0:
		return nil, flags.Usage("merge: no result folders were given: name those of all shards, as in loadgen merge -db DSN results/shard-*")
	case !line.Given("db"):
		return nil, flags.Usage("merge: the database address is missing: add -db DSN")
	}
	s, err := mergeFolders(line)
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return nil, flags.Usage("%w", err)
	}
	return s, nil
}

// mergeFolders reads the result folders and returns the settings that they share, together with the
// flags on the command line.
func mergeFolders(line *flags.Line) (*settings, error) {
	var (
		recorded []string // flags that all shards have in common
		count    int
		parts    []shard.Part
		broken   []string // folders that have no result
		lost     = map[int]string{}
		from     = map[int]string{} // maps the number of each shard to its folder
	)
	for _, dir := range line.Args {
		run, err := report.Load(dir)
		if err != nil {
			broken = append(broken, withoutPrefix(err, report.ErrNoRun).Error())
			continue
		}
		share, args, err := shareOf(run)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if count == 0 {
			count, recorded = share.Count, args
		}
		if share.Count != count || !slices.Equal(args, recorded) {
			return nil, fmt.Errorf("%s: this shard's flags differ from those of %s: merge shards of the same run", dir, line.Args[0])
		}
		if from[share.Index] != "" {
			return nil, fmt.Errorf("%s: shard %d is also in %s: leave out one of the two folders", dir, share.Index, from[share.Index])
		}
		from[share.Index] = dir
		switch done := run.Complete && len(run.Cells) == 1; {
		case done && run.Cells[0].Shard != nil:
			parts = append(parts, shard.Part{Record: *run.Cells[0].Shard, Answers: filepath.Join(dir, experiment.AnswersFile(&run.Cells[0], ""))})
		case done:
			lost[share.Index] = fmt.Sprintf("%s (%s)", run.Cells[0].Reason, dir)
		default:
			lost[share.Index] = fmt.Sprintf("the shard was interrupted (%s)", dir)
		}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("no shard has a result to merge: %s: run these shards again", strings.Join(append(broken, shard.New(count, nil, lost).Lost...), "; "))
	}
	for _, arg := range recorded {
		if isUntrusted(arg, line.Flags) {
			return nil, fmt.Errorf("%s: this shard used the flag %s, which runs commands or SQL: if you trust it, add this flag to your command too", line.Args[0], arg)
		}
	}
	recorded = slices.DeleteFunc(recorded, func(arg string) bool { return strings.HasPrefix(arg, "-shard-start=") })
	s, err := parseWithScenario(append(recorded, line.Flags...))
	if err != nil {
		return nil, fmt.Errorf("the flags recorded in %s: %w", line.Args[0], withoutPrefix(err, flags.ErrUsage))
	}
	s.Merge, s.Args = shard.New(count, parts, lost), nil
	s.Merge.Lost = append(s.Merge.Lost, broken...)
	return s, nil
}

// shareOf returns a process's share of the load, and the other flags of its command line. It
// returns an error if that run did not use -shard.
func shareOf(run *experiment.Run) (share load.Share, args []string, err error) {
	err = errors.New("this folder is not the result of a shard: name folders that loadgen run -shard has written")
	for _, arg := range run.Config.Args {
		if text, ok := strings.CutPrefix(arg, "-shard="); ok {
			share, err = shard.Parse(text)
		} else {
			args = append(args, arg)
		}
	}
	if here := version.Commit(); err == nil && run.Environment.Commit != here {
		err = fmt.Errorf("loadgen commit %s ran this shard, but you run commit %s: merge with the same version", run.Environment.Commit, here)
	}
	return share, args, err
}

// merge combines several results into one and judges the combined result. It returns an error if
// recorded responses are missing.
func (s *settings) merge(ctx context.Context, stdout, stderr io.Writer) error {
	err := s.execute(ctx, stdout, stderr) // may add to Lost
	return incomplete(err, s.Merge.Lost, stderr)
}

// incomplete prints why recorded responses were lost. If any were, it returns exitFailed, unless err
// already reports a more serious failure.
func incomplete(err error, lost []string, stderr io.Writer) error {
	if err == nil || errors.Is(err, exitAssert) {
		for _, why := range lost {
			fmt.Fprintf(stderr, "loadgen: incomplete: %s\n", why)
			err = exitFailed
		}
	}
	return err
}
