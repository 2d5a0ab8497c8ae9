// Command loadgen is the load generator and everything around it: a literal table
// of subcommands over the packages that do the work.
//
// run starts a stack and two instances, fires at every chosen strategy, audits the
// ledger, and writes a result folder; explore searches for the shortest schedule
// that breaks a lock; bench measures each lock by itself; report renders result
// folders again, compare says what differs between two; lab serves a live page, workshop
// teaches by exercises, explain says what a word means. Each command is flags to settings
// (flags.go, bench.go, explore.go, over options.go), checks of how they go together
// (validate.go), one call of a package, and an exit code. Begin at commands, then
// runCommand and invoke.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	_ "grablab/internal/grab/lock/peers" // as lock.Peers
	"grablab/internal/measure/lockbench"
	"grablab/internal/service/instance"
	"grablab/internal/service/version"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	stack.BeHelper()
	logging.Disable() // of go-redis, which cannot know that a server is meant to be down
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1 // the harness itself
	exitUsage       = 2
	exitAssert      = 3 // an -assert did not hold
	exitInterrupted = 130
)

// errUsage marks what the caller can put right by calling differently.
var errUsage = errors.New("bad usage")

// command is one subcommand. It gets the arguments after its name.
type command struct {
	name  string
	about string // "": not in the help
	run   func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// commands is every subcommand, the default first. (A function, because the
// help, which a subcommand prints, reads it.)
func commands() []command {
	return []command{
		{"run", "start the stack and two instances, fire at every chosen strategy, audit the ledger", runCommand},
		{"bench", "measure each lock by itself, against two PINGs and the libraries", benchCommand},
		{"explore", "look for the shortest schedule that breaks a lock, or say how far was searched", exploreCommand},
		{"report", "render result folders again", reportCommand},
		{"compare", "what differs between two results: verdicts, and whether anything is slower", compareCommand},
		{"explain", "what a failure mode, a fault, a property, a strategy or a word of the tables is", explainCommand},
		{"lab", "a live page: grabs at a rate or by hand, faults, drawings, schedules, the workshop", labCommand},
		{"workshop", "twelve exercises: predict, run, look, answer", workshopCommand},
		{exploreWorkerCommand, "", exploreWorkerMain},
		{stepCommand, "", stepMain},
		{fleet.Command, "", instance.Main},
		{lockbench.WorkerCommand, "", lockbench.WorkerMain},
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if slices.Contains([]string{"-version", "--version"}, strings.Join(args, " ")) {
		fmt.Fprintln(stdout, version.Line("loadgen"))
		return exitDone
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return commands()[0].run(ctx, args, stdout, stderr)
	}
	var names []string
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
		if c.about != "" {
			names = append(names, c.name)
		}
	}
	if args[0] == "help" {
		runHelp(stdout)
		return exitDone
	}
	return complain(stderr, fmt.Errorf("%w: there is no command %q; there are %s", errUsage, args[0], strings.Join(names, ", ")))
}

// complain says in one line what went wrong, and returns the exit code for it.
func complain(stderr io.Writer, err error) int {
	if errors.Is(err, errUsage) {
		text := strings.TrimPrefix(err.Error(), errUsage.Error()+": ")
		fmt.Fprintf(stderr, "loadgen: %s\n", strings.ReplaceAll(text, "\n", "; "))
		return exitUsage
	}
	fmt.Fprintf(stderr, "loadgen: %v\n", err)
	return exitFailed
}
