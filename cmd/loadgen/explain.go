package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/nearest"
	"grablab/internal/workshop"
)

// explanation is what there is to say of a name: a head, and lines of a label and a text.
type explanation struct {
	head  string
	lines [][2]string
}

// explainers find a name in one catalogue each.
var explainers = []struct {
	what string
	all  func() []string
	find func(name string) (explanation, bool)
}{
	{"failure mode", func() []string { return namesOf(catalog.Modes, func(m catalog.Mode) string { return m.ID }) }, explainMode},
	{"fault", func() []string {
		return namesOf(catalog.Faults, func(f catalog.FaultEntry) string { return string(f.Name) })
	}, explainFault},
	{"property", func() []string { return namesOf(catalog.Properties, func(p catalog.Property) string { return p.Name }) }, explainProperty},
	{"strategy", strategyNames, explainStrategy},
	{"verdict", func() []string {
		return namesOf(catalog.Verdicts, func(v catalog.VerdictEntry) string { return string(v.Verdict) })
	}, explainVerdict},
	{"word", wordNames, explainWord},
}

// explainCommand is loadgen explain ID….
func explainCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("loadgen explain", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	ids, err := interspersed(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		explainHelp(stdout)
		return exitDone
	case err != nil:
		return complain(stderr, fmt.Errorf("%w: %s", errUsage, flagError(err, fs)))
	case len(ids) == 0:
		return complain(stderr, fmt.Errorf("%w: explain needs a name, as in loadgen explain F11; -h lists them", errUsage))
	}
	var all [][]explanation
	for _, id := range ids {
		found, err := explain(id)
		if err != nil {
			return complain(stderr, fmt.Errorf("%w: %w", errUsage, err))
		}
		all = append(all, found)
	}
	first := true
	for _, e := range slices.Concat(all...) {
		if !first {
			fmt.Fprintln(stdout)
		}
		first = false
		e.print(stdout)
	}
	return exitDone
}

func explainHelp(w io.Writer) {
	fmt.Fprint(w, `Usage: loadgen explain ID…

Says what a failure mode, a fault, a property, a strategy, a verdict or a word of
the tables is. A name that is several of them is explained as each.
`)
	for _, k := range explainers {
		fmt.Fprintln(w)
		for _, line := range workshop.Wrap(k.what+": "+strings.Join(k.all(), ", "), 90) {
			fmt.Fprintln(w, line)
		}
	}
}

// explain finds a name in all catalogues, or says which may have been meant.
func explain(name string) (found []explanation, err error) {
	var known []string
	for _, k := range explainers {
		known = append(known, k.all()...)
		if e, ok := k.find(name); ok {
			found = append(found, e)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("there is no %q%s", name, nearest.Hint(strings.ToLower(name), known, "; -h lists what there is"))
	}
	return found, nil
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
	breaks := slices.DeleteFunc(slices.Concat(lock.Strategies, lock.KnownBroken), func(s lock.Strategy) bool { return !slices.Contains(s.Breaks, m.ID) })
	return explanation{m.ID + ", a failure mode: " + m.Name, [][2]string{
		{"steps", m.Steps},
		{"cure", m.Cure + " (" + m.In + ")"},
		{"shown by", m.ShownBy},
		{"strategies", strings.Join(namesOf(breaks, nameOf), ", ")},
		{"source", m.Source},
	}}, true
}

func explainFault(name string) (e explanation, ok bool) {
	f, note, ok := catalog.FindFault(name)
	if !ok {
		return e, false
	}
	expected := func(v catalog.Verdict) string {
		return strings.Join(namesOf(slices.DeleteFunc(slices.Clone(lock.Strategies), func(s lock.Strategy) bool { return s.Expected(f.Name) != v }), nameOf), ", ")
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
		{"source", st.Source},
	}}, true
}

func strategyNames() []string {
	return namesOf(slices.Concat(lock.Strategies, lock.KnownBroken), nameOf)
}

func explainVerdict(name string) (e explanation, ok bool) {
	for _, v := range catalog.Verdicts {
		if string(v.Verdict) == name {
			return explanation{name + ", a verdict: " + v.When, nil}, true
		}
	}
	return e, false
}

func explainWord(name string) (e explanation, ok bool) {
	for _, w := range catalog.Words {
		if w.Name == name || slices.Contains(w.Aliases, name) {
			return explanation{w.Name + ", a word of the tables: " + w.Meaning, nil}, true
		}
	}
	return e, false
}

func wordNames() []string {
	var names []string
	for _, w := range catalog.Words {
		names = append(append(names, w.Name), w.Aliases...)
	}
	return names
}
