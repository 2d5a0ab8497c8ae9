package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// helpTexts contains the help text of each command, without the tables of flags, which are
// generated.
//
//go:embed help
var helpTexts embed.FS

// help returns a function that prints the help of a command. The function replaces {flags} in the
// text with tables of the flags.
func help(command string, all func() []flags.Flag) func(w io.Writer, topic string) {
	return func(w io.Writer, _ string) { printHelp(w, command, func() { flags.Print(w, all()) }) }
}

func printHelp(w io.Writer, name string, table func()) {
	text, err := helpTexts.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic(err) // cannot happen, because the text is embedded
	}
	before, after, found := strings.Cut(string(text), "{flags}\n")
	fmt.Fprint(w, before)
	if found {
		table()
	}
	fmt.Fprint(w, after)
}

// overview prints what loadgen does, with examples and a list of commands.
func overview(w io.Writer) {
	var rows [][2]string
	for _, c := range shownCommands() {
		rows = append(rows, [2]string{c.name, c.about})
	}
	printHelp(w, "overview", func() { flags.PrintTable(w, rows) })
}

// commonFlags lists the flags of run that the short help shows.
var commonFlags = []string{"scenario", "strategies", "faults", "stack", "targets", "orders", "rate", "repeat", "assert", "out"}

// runHelp prints the common flags of the run command. For the topic "all", it prints all flags and
// the names that they accept.
func runHelp(w io.Writer, topic string) {
	s := defaults(experiment.Scenarios[0].Name)
	fmt.Fprint(w, `Usage: loadgen [run] [flags]

Starts servers and two instances, sends grabs with every chosen strategy under every chosen
fault, checks the ledger, prints a table and writes a result folder.

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
		{"Peers: locks of libraries with their default options. The word all does not include peers", titles(lock.Peers)},
		{"Faults", faults},
		{"Exit codes", [][2]string{
			{"0", "done"},
			{"1", "loadgen itself failed"},
			{"2", "bad usage"},
			{"3", "an -assert did not hold, a cell is worse than in -baseline, or the schedule did not have the result that its file expects"},
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
