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

// helpTexts contains the help text of each command, in which {flags} stands for the tables of
// flags.
//
//go:embed help
var helpTexts embed.FS

// help returns a function that prints the help of a command, with {flags} replaced by tables of the
// flags.
func help(command string, all []flags.Flag) func(w io.Writer, topic string) {
	return func(w io.Writer, _ string) { printHelp(w, command, func() { flags.Print(w, all) }) }
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

type section struct {
	title string
	rows  [][2]string
}

func printSections(w io.Writer, sections []section) {
	for _, s := range sections {
		fmt.Fprintf(w, "\n%s\n", s.title)
		flags.PrintTable(w, s.rows)
	}
}

// overview prints what loadgen does, with examples and a list of commands.
func overview(w io.Writer) {
	rows := catalog.Map(shownCommands(), func(c command) [2]string { return [2]string{c.name, c.about} })
	printHelp(w, "overview", func() { flags.PrintTable(w, rows) })
}

// commonFlags lists the flags that the short help of the run command shows.
var commonFlags = []string{"scenario", "strategies", "faults", "stack", "targets", "orders", "rate", "repeat", "assert", "out"}

// runHelp prints the common flags of the run command. For the topic "all", it prints all flags and
// the names that they accept.
func runHelp(w io.Writer, topic string) {
	s := defaults(experiment.Scenarios[0].Name)
	printHelp(w, "run", func() {
		if topic == "all" {
			printSections(w, helpSections(s.groups()))
			printHelp(w, "run-exit-codes", nil)
			return
		}
		fmt.Fprintln(w)
		flags.Print(w, slices.DeleteFunc(s.flags(), func(f flags.Flag) bool { return !slices.Contains(commonFlags, f.Name) }))
		fmt.Fprint(w, "\nloadgen run -h all lists every flag, scenario, strategy and fault, and the exit codes.\n")
	})
}

// helpSections returns tables of all flags of the run command and of the names that these flags
// accept.
func helpSections(groups []flagGroup) []section {
	all := catalog.Map(groups, func(g flagGroup) section { return section{g.title, flags.Rows(g.flags)} })
	title := func(s lock.Strategy) [2]string { return [2]string{s.Name, s.Title} }
	faults := catalog.Filter(catalog.Faults, func(f catalog.FaultEntry) bool { return f.By&catalog.Run != 0 })
	return append(all,
		section{"Scenarios", catalog.Map(experiment.Scenarios, func(sc experiment.Scenario) [2]string { return [2]string{sc.Name, sc.About} })},
		section{"Strategies", catalog.Map(lock.Strategies, title)},
		section{"Peers: locks of libraries with their default options. The word all does not include peers", catalog.Map(lock.Peers, title)},
		section{"Faults", catalog.Map(faults, func(f catalog.FaultEntry) [2]string { return [2]string{string(f.Name), f.About} })},
	)
}
