package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// runHelp lists the commands, and the flags of run by topic.
func runHelp(w io.Writer) {
	fmt.Fprint(w, `loadgen lets drivers fight for orders, and counts in the database how often an
order was grabbed twice. Without arguments it does so on an embedded stack.

Usage: loadgen [run] [flags]
       loadgen COMMAND [arguments]
       loadgen -version

Commands
`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer tw.Flush()
	for _, c := range commands() {
		if c.about != "" {
			fmt.Fprintf(tw, "  %s\t%s\n", c.name, c.about)
		}
	}
	s := defaults(experiment.Scenarios[0].Name)
	for _, t := range s.topics() {
		fmt.Fprintf(tw, "\n%s\n", t.title)
		printOptions(tw, t.options)
	}
	fmt.Fprintf(tw, "\nScenarios\n")
	for _, sc := range experiment.Scenarios {
		fmt.Fprintf(tw, "  %s\t%s\n", sc.Name, sc.About)
	}
	fmt.Fprintf(tw, "\nStrategies\n")
	for _, st := range lock.Strategies {
		fmt.Fprintf(tw, "  %s\t%s\n", st.Name, st.Title)
	}
	fmt.Fprintf(tw, "\nPeers: libraries with their defaults, by name or as peers; never in all\n")
	for _, st := range lock.Peers {
		fmt.Fprintf(tw, "  %s\t%s\n", st.Name, st.Title)
	}
	fmt.Fprintf(tw, "\nFaults\n")
	for _, f := range catalog.Faults {
		if f.By&catalog.Run != 0 {
			fmt.Fprintf(tw, "  %s\t%s\n", f.Name, f.About)
		}
	}
	fmt.Fprint(tw, `
Exit codes
  0	done
  1	loadgen itself failed
  2	bad usage
  3	an -assert did not hold; explore: a verdict is not the expected one;
  	compare: a verdict changed, or something is slower;
  	-schedule: its property was kept, or by another strategy violated
  130	interrupted; results so far are written
`)
}
