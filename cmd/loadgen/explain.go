package main

import (
	"context"

	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/peers"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/fault"
)

// explanation explains one name in a headline and several labelled lines.
type explanation struct {
	head  string
	lines [][2]string
}

// explainer lists the names in one catalogue, and finds the explanation of one of them.
type explainer struct {
	what string
	all  func() []string
	find func(name string) (explanation, bool)
}

// explainers returns an explainer for each catalogue of names.
func explainers() []explainer {
	return []explainer{
		{"failure mode", func() []string { return namesOf(catalog.Modes, func(m catalog.Mode) string { return m.ID }) }, explainMode},
		{"fault", func() []string {
			return namesOf(catalog.Faults, func(f catalog.FaultEntry) string { return string(f.Name) })
		}, explainFault},
		{"property", func() []string { return namesOf(catalog.Properties, func(p catalog.Property) string { return p.Name }) }, explainProperty},
		{"strategy", strategyNames, explainStrategy},
		{"library with options", optionNames, explainOptions},
		{"case", caseNames, explainCase},
		{"verdict", func() []string {
			return namesOf(catalog.Verdicts, func(v catalog.VerdictEntry) string { return string(v.Verdict) })
		}, explainVerdict},
		{"word", wordNames(catalog.Words), explainWord(catalog.Words)},
		{"heading or mark", wordNames(catalog.Columns), explainWord(catalog.Columns)},
		{"strike point", func() []string { return nil }, explainPoint},
		{"command", func() []string { return namesOf(shownCommands(), func(c command) string { return c.name }) }, explainSubcommand},
	}
}

func parseExplain(args []string) ([]string, error) {
	line, err := flags.Parse(nil, args)
	switch {
	case err != nil:
		return nil, err
	case len(line.Args) == 0:
		return nil, flags.Usage("explain: the name is missing: give one, as in loadgen explain F11; -h lists them")
	}
	return line.Args, nil
}

// explainAll prints the explanation of each name, separated by empty lines.
func explainAll(names []string, _ context.Context, stdout, _ io.Writer) error {
	var all []explanation
	for _, name := range names {
		found, err := explain(name)
		if err != nil {
			return flags.Usage("%w", err)
		}
		all = append(all, found...)
	}
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		e.print(stdout)
	}
	return nil
}

func explainHelp(w io.Writer, _ string) {
	fmt.Fprint(w, `Usage: loadgen explain NAME…

Explains a failure mode, fault, property, strategy, verdict or strike point, or a word, heading
or mark of the tables. If a name has several meanings, it explains each. It explains a whole
entry of a table, such as 'unsafe 3/11·2 ✗safe', part by part.
`)
	for _, k := range explainers() {
		if names := k.all(); len(names) > 0 {
			fmt.Fprintf(w, "\n%s\n", k.what)
			flags.PrintTable(w, [][2]string{{"", flags.Join(names)}})
		}
	}
}

// explain returns the explanations of a name from all catalogues. If no catalogue has the name, it
// is explained as the entry of a table. If that fails too, the error suggests a similar name.
func explain(name string) (found []explanation, err error) {
	var known []string
	for _, k := range explainers() {
		known = append(known, k.all()...)
		if e, ok := k.find(name); ok {
			found = append(found, e)
		}
	}
	if found == nil {
		found = explainParts(cellPart.FindAllString(name, -1))
	}
	if found == nil && modeID.MatchString(name) {
		last := catalog.Modes[len(catalog.Modes)-1].ID
		return nil, fmt.Errorf("there is no failure mode %q; they are %s to %s: -h lists them", name, catalog.Modes[0].ID, last)
	}
	if found == nil {
		return nil, fmt.Errorf("there is no %q%s", name, catalog.Hint(strings.ToLower(name), known, "; -h lists what there is"))
	}
	return found, nil
}

// cellPart matches one part of a table entry, which is a mark, a fraction or a word.
var (
	cellPart = regexp.MustCompile(`·\?|[·✗✓°*≥▶~?<→]|\d+/\d+|[\pL/][^\s·✗✓°*≥▶~?<→]*|\S+`)
	modeID   = regexp.MustCompile(`^[fF]\d+$`)
	fraction = regexp.MustCompile(`^\d+/\d+$`)
	number   = regexp.MustCompile(`^\d[\d.,]*$`)
)

// explainParts explains a table entry part by part. At each position it takes the longest sequence
// of parts that has an explanation. It returns nil if a part has none.
func explainParts(parts []string) (found []explanation) {
	parts = slices.DeleteFunc(parts, func(part string) bool { return number.MatchString(part) })
	for len(parts) > 0 {
		most, here := 0, []explanation(nil)
		for n := len(parts); n > 0 && most == 0; n-- {
			name := strings.Join(parts[:n], " ")
			if fraction.MatchString(name) {
				name = "n/m"
			}
			for _, k := range explainers() {
				if e, ok := k.find(name); ok {
					most, here = n, append(here, e)
				}
			}
		}
		if most == 0 {
			return nil
		}
		found, parts = append(found, here...), parts[most:]
	}
	return found
}

func (e explanation) print(w io.Writer) {
	for _, line := range workshop.Wrap(e.head, 100) {
		fmt.Fprintln(w, line)
	}
	widest := 0
	for _, l := range e.lines {
		widest = max(widest, len(l[0]))
	}
	for _, l := range e.lines {
		if l[1] == "" {
			continue
		}
		for i, line := range workshop.Wrap(l[1], 100-widest-4) {
			label := l[0]
			if i > 0 {
				label = ""
			}
			fmt.Fprintf(w, "  %-*s  %s\n", widest, label, line)
		}
	}
}

func explainMode(name string) (e explanation, ok bool) {
	m, ok := catalog.FindMode(strings.ToUpper(name))
	if !ok {
		return e, false
	}
	breaks := slices.DeleteFunc(slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken), func(s lock.Strategy) bool { return !slices.Contains(s.Breaks, m.ID) })
	return explanation{m.ID + ", a failure mode: " + m.Name, [][2]string{
		{"steps", m.Steps},
		{"cure", m.Cure + " (" + m.In + ")"},
		{"shown by", m.ShownBy},
		{"strategies", strings.Join(namesOf(breaks, nameOf), ", ")},
		{"source", m.Source},
	}}, true
}

// shownCommands returns the commands that appear in the help.
func shownCommands() []command {
	return slices.DeleteFunc(commands(), func(c command) bool { return c.about == "" })
}

func explainSubcommand(name string) (e explanation, ok bool) {
	for _, c := range shownCommands() {
		if c.name == name {
			return explanation{name + ", a command: " + c.about, [][2]string{{"help", "loadgen " + name + " -h"}}}, true
		}
	}
	return e, false
}

func explainFault(name string) (e explanation, ok bool) {
	f, note, ok := catalog.FindFault(name)
	if !ok {
		return e, false
	}
	expected := func(v catalog.Verdict) string {
		return strings.Join(namesOf(slices.DeleteFunc(slices.Concat(lock.Strategies, lock.Peers), func(s lock.Strategy) bool { return s.Expected(f.Name) != v }), nameOf), ", ")
	}
	return explanation{string(f.Name) + ", a fault: " + f.About, [][2]string{
		{"name", note},
		{"played by", programsOf(f.By)},
		{"unsafe under it", expected(catalog.Unsafe)},
		{"stuck under it", expected(catalog.Stuck)},
	}}, true
}

func explainProperty(name string) (e explanation, ok bool) {
	p, note, ok := catalog.FindProperty(name)
	if !ok {
		return e, false
	}
	return explanation{p.Name + ", a property: " + p.About, [][2]string{
		{"name", note},
		{"checked by", programsOf(p.By)},
	}}, true
}

func programsOf(by catalog.Programs) string {
	var names []string
	for _, p := range []struct {
		program catalog.Programs
		name    string
	}{{catalog.Run, "loadgen run"}, {catalog.Explore, "loadgen explore"}, {catalog.Replay, "loadgen run -schedule"}} {
		if by&p.program != 0 {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}

func explainStrategy(name string) (e explanation, ok bool) {
	st, err := lock.Find(name)
	if err != nil {
		return e, false
	}
	under := func(v catalog.Verdict) string {
		var faults []string
		for _, f := range catalog.RunFaults {
			if st.Expected(f) == v {
				faults = append(faults, string(f))
			}
		}
		return strings.Join(faults, ", ")
	}
	var breaks []string
	for _, id := range st.Breaks {
		m, _ := catalog.FindMode(id)
		breaks = append(breaks, id+" ("+m.Name+")")
	}
	return explanation{st.Name + ", a strategy: " + st.Title, [][2]string{
		{"guard", string(st.Guard)},
		{"excludes", string(st.Excludes)},
		{"unsafe under", under(catalog.Unsafe)},
		{"stuck under", under(catalog.Stuck)},
		{"by chance under", under(catalog.Unknown)},
		{"breaks by", strings.Join(breaks, "; ")},
		{"-ttl is", st.Lease},
		{"fails checks", checks(st.Fails)},
		{"at times fails", checks(st.Flaky)},
		{"not explored", st.Unexplorable},
		{"source", st.Source},
	}}, true
}

// checks formats the checks that a strategy is expected to fail in the conformance suite, each
// with the reason.
func checks(failing map[string]string) string {
	var all []string
	for _, check := range slices.Sorted(maps.Keys(failing)) {
		all = append(all, fmt.Sprintf("%q (%s)", check, failing[check]))
	}
	return strings.Join(all, "; ")
}

func strategyNames() []string {
	return namesOf(slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken), nameOf)
}

func explainVerdict(name string) (e explanation, ok bool) {
	for _, v := range catalog.Verdicts {
		if string(v.Verdict) == name {
			return explanation{name + ", a verdict: " + v.When, nil}, true
		}
	}
	return e, false
}

func explainWord(words []catalog.Word) func(name string) (explanation, bool) {
	return func(name string) (e explanation, ok bool) {
		for _, w := range words {
			if w.Name == name || slices.Contains(w.Aliases, name) {
				what := ", a word of the tables: "
				if !strings.ContainsFunc(w.Name, unicode.IsLetter) {
					what = ", a mark of the tables: "
				}
				return explanation{w.Name + what + w.Meaning, nil}, true
			}
		}
		return e, false
	}
}

func wordNames(words []catalog.Word) func() []string {
	return func() (names []string) {
		for _, w := range words {
			names = append(append(names, w.Name), w.Aliases...)
		}
		return names
	}
}

func optionNames() []string { return namesOf(peers.WithOptions, nameOf) }

// explainOptions explains a library's lock that is configured with options. Only the benchmark
// measures such locks.
func explainOptions(name string) (e explanation, ok bool) {
	i := slices.IndexFunc(peers.WithOptions, func(s lock.Strategy) bool { return s.Name == name })
	if i < 0 {
		return e, false
	}
	s := peers.WithOptions[i]
	return explanation{name + ", a library's lock with options: " + s.Title, [][2]string{{"source", s.Source}}}, true
}

func explainCase(name string) (e explanation, ok bool) {
	for _, c := range lockbench.Cases {
		if c.Name == name {
			return explanation{name + ", a case of the benchmark: " + c.About, nil}, true
		}
	}
	return e, false
}

func explainPoint(name string) (e explanation, ok bool) {
	p, err := fault.ParsePoint(name)
	if err != nil {
		return e, false
	}
	who := map[fault.Role]string{
		fault.Alone:       "no other driver has come yet",
		fault.Waiting:     "the driver has come while another had the lock",
		fault.HandingOver: "the driver releases to another that waits",
	}[p.Role]
	return explanation{name + ", a strike point: a place in a grab at which a fault strikes", [][2]string{
		{"driver", who},
		{"place", strings.TrimPrefix(name, string(p.Role)+": ") + ": the number counts the remote calls of that phase of a grab; before, it is not sent yet; after, its reply has come; before claim 1 lies behind the last look at the lease"},
	}}, true
}
