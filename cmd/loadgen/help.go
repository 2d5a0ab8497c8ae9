package main

import (
	"fmt"
	"io"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// overview prints what loadgen does, with examples and a list of its commands.
func overview(w io.Writer) {
	fmt.Fprint(w, `loadgen lets drivers fight for orders and counts in the database how often an order was
grabbed twice. Without flags, it compares five strategies on an embedded stack.

Usage: loadgen [COMMAND] [flags]     Without COMMAND, run is used.

Examples
  loadgen -strategies none,setnx               two strategies under load, without a fault
  loadgen -stack local -faults pause,crash     the same on real servers, with two faults
  loadgen explore -strategies setnx            the shortest schedule that breaks a strategy
  loadgen explain F11                          the meaning of a word in a table
  loadgen lab                                  a live page to try everything by hand

Commands
`)
	var rows [][2]string
	for _, c := range commands() {
		if c.about != "" {
			rows = append(rows, [2]string{c.name, c.about})
		}
	}
	flags.PrintTable(w, rows)
	fmt.Fprint(w, `
Read on: loadgen COMMAND -h lists the flags of a command. docs/running.md explains a run,
docs/your-service.md how to test a service of your own. loadgen -version prints the version.
`)
}

// commonFlags lists the most common flags of run, which are the only ones in the short help.
var commonFlags = []string{"scenario", "strategies", "faults", "stack", "targets", "orders", "rate", "repeat", "assert", "out"}

// runHelp prints the most common flags of run. For the topic "all", it prints every flag by group,
// and the names that flags accept.
func runHelp(w io.Writer, topic string) {
	s := defaults(experiment.Scenarios[0].Name)
	fmt.Fprint(w, `Usage: loadgen [run] [flags]

Starts servers and two instances, sends grabs with every chosen strategy under every chosen
fault, audits the ledger, prints a table and writes a result folder.

`)
	if topic != "all" {
		flags.Print(w, slices.DeleteFunc(s.flags(), func(f flags.Flag) bool { return !slices.Contains(commonFlags, f.Name) }))
		fmt.Fprint(w, "\nloadgen run -h all lists every flag, scenario, strategy and fault, and the exit codes.\n")
		return
	}
	for _, g := range s.groups() {
		fmt.Fprintf(w, "%s\n", g.title)
		flags.Print(w, g.flags)
		fmt.Fprintln(w)
	}
	var scenarios, faults [][2]string
	for _, sc := range experiment.Scenarios {
		scenarios = append(scenarios, [2]string{sc.Name, sc.About})
	}
	for _, f := range catalog.Faults {
		if f.By&catalog.Run != 0 {
			faults = append(faults, [2]string{string(f.Name), f.About})
		}
	}
	for _, section := range []struct {
		title string
		rows  [][2]string
	}{
		{"Scenarios", scenarios},
		{"Strategies", titles(lock.Strategies)},
		{"Peers: libraries with their default options. The word all does not include them", titles(lock.Peers)},
		{"Faults", faults},
		{"Exit codes", [][2]string{
			{"0", "done"},
			{"1", "loadgen itself failed"},
			{"2", "bad usage"},
			{"3", "an -assert did not hold; a cell is worse than in -baseline; or -schedule did not have the result that its file expects"},
			{"130", "interrupted; the results so far are kept"},
		}},
	} {
		fmt.Fprintf(w, "%s\n", section.title)
		flags.PrintTable(w, section.rows)
		fmt.Fprintln(w)
	}
}

func titles(strategies []lock.Strategy) (rows [][2]string) {
	for _, s := range strategies {
		rows = append(rows, [2]string{s.Name, s.Title})
	}
	return rows
}
