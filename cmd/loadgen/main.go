// Command loadgen tests locks with an order-grabbing service: many drivers try to grab the same
// orders, and each order must have one winner. It also explores schedules, benchmarks locks, and
// shows and compares results.
//
// To read the code, start at commands and run. Most commands have three steps: they parse flags
// into settings, check that the flags fit together, and call the package that does the work. The
// run command fills a table. Each cell of the table is the test of one strategy under one fault.
// flags.go defines its flags, and validate.go checks that they fit together, by the rules in rules.json.
// command.go contains what all commands share.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"grablab/internal/flags"
	_ "grablab/internal/grab/lock/peers" // registers lock.Peers
	"grablab/internal/measure/lockbench"
	"grablab/internal/service/instance"
	"grablab/internal/service/version"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	stack.BeHelper()
	logging.Disable() // otherwise, go-redis logs errors about servers that a fault has stopped
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(conclude(err, os.Stderr))
}

type command struct {
	name  string
	about string // one line for the help, which hides a command without this line
	// run executes the command with the arguments after its name.
	run func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands returns all subcommands, with the default first.
func commands() []command {
	return []command{
		{"run", "run every chosen strategy under every chosen fault, and check the ledger", subcommand(parseRun, runHelp, (*runSettings).execute)},
		{"check", "test your own service with a few grabs, and list what to fix in its target file", subcommand(parseCheck, help("check", checkFlags()), (*runSettings).check)},
		{"init", "ask about your own service, test it with a few grabs, and write its target file", subcommand(parseInit, help("init", new(initSettings).flags()), (*initSettings).execute)},
		{"explore", "search for the shortest sequence of steps (schedule) that breaks a strategy", subcommand(parseExplore, help("explore", newExploreSettings().flags()), (*exploreSettings).execute)},
		{"bench", "measure what each lock costs by itself", subcommand(parseBench, benchHelp, (*benchSettings).execute)},
		{"report", "print the reports of result folders again", subcommand(parseReport, help("report", new(showSettings).flags(formatNames(runFormats))), showSettings.report)},
		{"merge", "combine the shard results of one run", subcommand(parseMerge, help("merge", defaults("").flagsOfMerge()), (*runSettings).merge)},
		{"compare", "show what changed between two runs", subcommand(parseCompare, help("compare", new(showSettings).flags(formatNames(compareFormats))), showSettings.compare)},
		{"baseline", "write the verdicts of result folders to a file for run -baseline", subcommand(parseBaseline, help("baseline", nil), showSettings.baseline)},
		{"explain", "explain a failure mode, fault, property, strategy or table word", subcommand(parseExplain, explainHelp, showSettings.explain)},
		{"lab", "serve a live web page with load, faults, diagrams and the workshop", subcommand(parseLab, help("lab", newLabSettings().flags()), (*labSettings).execute)},
		{"workshop", "list the twelve exercises, or run one and judge the answer", subcommand(parseWorkshop, help("workshop", newWorkshopSettings().flags()), (*workshopSettings).execute)},
		{exploreWorkerCommand, "", exploreWorkerMain},
		{fleet.Command, "", asCommand(instance.Main)},
		{lockbench.WorkerCommand, "", asCommand(lockbench.WorkerMain)},
	}
}

// asCommand adapts the main function of another package, which returns an exit code, to a command.
func asCommand(main func(context.Context, []string, io.Writer, io.Writer) int) func(context.Context, []string, io.Writer, io.Writer) error {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		return exitCode(main(ctx, args, stdout, stderr))
	}
}

// run executes the command that the first argument names. If it names none, run executes the
// default command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch line := strings.Join(args, " "); {
	case slices.Contains([]string{"-version", "--version"}, line):
		fmt.Fprintln(stdout, version.Line("loadgen"))
		return nil
	case slices.Contains([]string{"-h", "-help", "--help", "help"}, line):
		overview(stdout)
		return nil
	case len(args) == 0 || strings.HasPrefix(args[0], "-"):
		args = append([]string{commands()[0].name}, args...)
	case args[0] == "help":
		args = slices.Insert(args[1:], 1, "-h")
	}
	var visible []string
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
		if c.about != "" {
			visible = append(visible, c.name)
		}
	}
	return flags.Usage("%w", flags.Unknown("command", args[0], visible))
}
