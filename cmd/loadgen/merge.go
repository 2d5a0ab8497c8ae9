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

func (s *runSettings) flagsOfMerge() []flags.Flag {
	return slices.DeleteFunc(s.flags(), func(f flags.Flag) bool { return !slices.Contains(mergeFlags, f.Name) })
}

// parseMerge parses the flags and reads the results to merge. It returns the settings that all of
// these results share.
func parseMerge(args []string) (*runSettings, error) {
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

// foundShards holds the results that a merge has read so far.
type foundShards struct {
	first  string   // the first folder with a result
	args   []string // flags that all shards have in common
	count  int
	parts  []shard.Part
	broken []string       // for each folder without a result, the reason
	lost   map[int]string // maps the number of each shard without a complete result to the reason
	from   map[int]string // maps the number of each shard to its folder
}

// add adds the result in a folder. It returns an error if the folder does not fit the others.
func (s *foundShards) add(dir string) error {
	run, err := report.Load(dir)
	if err != nil {
		s.broken = append(s.broken, err.Error())
		return nil
	}
	share, args, err := shareOf(run)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if s.count == 0 {
		s.first, s.count, s.args = dir, share.Count, args
	}
	if share.Count != s.count || !slices.Equal(args, s.args) {
		return fmt.Errorf("%s: this shard's flags differ from those of %s: merge shards of the same run", dir, s.first)
	}
	if s.from[share.Index] != "" {
		return fmt.Errorf("%s: shard %d is also in %s: leave out one of the two folders", dir, share.Index, s.from[share.Index])
	}
	s.from[share.Index] = dir
	switch done := run.Complete && len(run.Cells) == 1; {
	case done && run.Cells[0].Shard != nil:
		s.parts = append(s.parts, shard.Part{Record: *run.Cells[0].Shard, Answers: filepath.Join(dir, experiment.AnswersFile(&run.Cells[0], ""))})
	case done:
		s.lost[share.Index] = fmt.Sprintf("%s (%s)", run.Cells[0].Reason, dir)
	default:
		s.lost[share.Index] = fmt.Sprintf("the shard was interrupted (%s)", dir)
	}
	return nil
}

// mergeFolders reads the result folders and returns the settings that they share, together with the
// flags on the command line.
func mergeFolders(line *flags.Line) (*runSettings, error) {
	found := foundShards{lost: map[int]string{}, from: map[int]string{}}
	for _, dir := range line.Args {
		if err := found.add(dir); err != nil {
			return nil, err
		}
	}
	merged := shard.New(found.count, found.parts, found.lost)
	merged.Lost = append(merged.Lost, found.broken...)
	if len(found.parts) == 0 {
		return nil, fmt.Errorf("no shard has a result to merge: %s: run these shards again", strings.Join(merged.Lost, "; "))
	}
	for _, arg := range found.args {
		if isUntrusted(arg, line.Flags) {
			return nil, fmt.Errorf("%s: this shard used the flag %s, which runs commands or SQL: if you trust it, add this flag to your command too", found.first, arg)
		}
	}
	recorded := slices.DeleteFunc(found.args, func(arg string) bool { return strings.HasPrefix(arg, "-shard-start=") })
	s, err := parseWithScenario(append(recorded, line.Flags...))
	if err != nil {
		return nil, fmt.Errorf("the flags recorded in %s: %w", found.first, withoutPrefix(err, flags.ErrUsage))
	}
	s.Merge, s.Args = merged, nil
	return s, nil
}

// shareOf returns a shard's share of the load, and the other flags of its command line. It returns an
// error if the run did not use -shard, or if another version of loadgen made it.
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

// merge combines the results of the shards into one, and judges the combined result. It returns an
// error if a shard, or some of its responses, are missing.
func (s *runSettings) merge(ctx context.Context, stdout, stderr io.Writer) error {
	err := s.execute(ctx, stdout, stderr) // may add to Lost
	return incomplete(err, s.Merge.Lost, stderr)
}

// incomplete prints which shards or responses are missing, and why. If any are, it returns exitFailed,
// unless err already reports a more serious failure.
func incomplete(err error, lost []string, stderr io.Writer) error {
	if err == nil || errors.Is(err, exitAssert) {
		for _, why := range lost {
			fmt.Fprintf(stderr, "loadgen: incomplete: %s\n", why)
			err = exitFailed
		}
	}
	return err
}
