package main

import (
	"context"
	"errors"
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
	"grablab/internal/testbed/fault"
)

// explanation is the text that the explain command prints for one name.
type explanation struct {
	head  string
	lines [][2]string
}

// explainer looks up explanations for one kind of name, such as the names of strategies.
type explainer struct {
	what string
	all  []string
	find func(name string) (explanation, bool)
}

// explainers returns one explainer for each kind of name that the explain command knows.
func explainers() []explainer {
	one := func(s lock.Strategy) []string { return []string{s.Name} }
	return []explainer{
		explainerOf("failure mode", catalog.Modes, func(m catalog.Mode) []string { return []string{m.ID} }, explainMode),
		{"fault", catalog.Map(catalog.Faults, func(f catalog.FaultEntry) string { return string(f.Name) }), func(name string) (explanation, bool) {
			f, ok := catalog.FindFault(name)
			return explainFault(f), ok
		}},
		{"property", catalog.Map(catalog.Properties, func(p catalog.Property) string { return p.Name }), func(name string) (explanation, bool) {
			p, ok := catalog.FindProperty(name)
			return explainProperty(p), ok
		}},
		explainerOf("strategy", everyStrategy(), one, explainStrategy),
		explainerOf("library with options", peers.WithOptions, one, func(s lock.Strategy) explanation {
			return explanation{s.Name + ", a library's lock with options: " + s.Title, [][2]string{{"source", s.Source}}}
		}),
		explainerOf("case", lockbench.Cases, func(c lockbench.Case) []string { return []string{c.Name} }, func(c lockbench.Case) explanation {
			return explanation{c.Name + ", a case of the benchmark: " + c.About, nil}
		}),
		explainerOf("verdict", catalog.Verdicts, func(v catalog.VerdictEntry) []string { return []string{string(v.Verdict)} }, func(v catalog.VerdictEntry) explanation {
			return explanation{string(v.Verdict) + ", a verdict: " + v.When, nil}
		}),
		explainerOf("word", catalog.Words, namesOfWord, explainWord),
		explainerOf("heading or mark", catalog.Columns, namesOfWord, explainWord),
		{"strike point", nil, explainPoint},
		explainerOf("command", shownCommands(), func(c command) []string { return []string{c.name} }, func(c command) explanation {
			return explanation{c.name + ", a command: " + c.about, [][2]string{{"help", "loadgen " + c.name + " -h"}}}
		}),
	}
}

// explainerOf returns an explainer for the elements of list. A user can look up an element by any
// of the names that the function names returns for it.
func explainerOf[T any](what string, list []T, names func(T) []string, explain func(T) explanation) explainer {
	return explainer{what, slices.Concat(catalog.Map(list, names)...), func(wanted string) (e explanation, ok bool) {
		i := slices.IndexFunc(list, func(x T) bool { return slices.Contains(names(x), wanted) })
		if i < 0 {
			return e, false
		}
		return explain(list[i]), true
	}}
}

func namesOfWord(w catalog.Word) []string { return append([]string{w.Name}, w.Aliases...) }

func explainWord(w catalog.Word) explanation {
	kind := "word"
	if !strings.ContainsFunc(w.Name, unicode.IsLetter) {
		kind = "mark"
	}
	return explanation{fmt.Sprintf("%s, a %s of the tables and documents: %s", w.Name, kind, w.Meaning), nil}
}

var parseExplain = parseShow(nil, 1, "explain: no name was given: add one, as in loadgen explain F11; -h lists all names")

// explain prints the explanation of each name that the user gave, separated by empty lines.
func (s showSettings) explain(_ context.Context, stdout, _ io.Writer) error {
	var all []explanation
	var unknown []error
	for _, name := range s.names {
		found, err := explain(name)
		if err != nil {
			unknown = append(unknown, err)
		}
		all = append(all, found...)
	}
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		e.print(stdout)
	}
	if unknown != nil {
		return flags.Usage("%w", errors.Join(unknown...))
	}
	return nil
}

func explainHelp(w io.Writer, topic string) {
	help("explain", nil)(w, topic)
	for _, k := range explainers() {
		if len(k.all) > 0 {
			printSections(w, []section{{k.what, [][2]string{{"", flags.Join(k.all)}}}})
		}
	}
}

// explain returns the explanations of a name, or of a cell in the result table. If there are none,
// the error suggests a similar name.
func explain(name string) (found []explanation, err error) {
	if modeID.MatchString(name) {
		name = strings.ToUpper(name)
	}
	var known []string
	for _, k := range explainers() {
		known = append(known, k.all...)
		if e, ok := k.find(name); ok {
			found = append(found, e)
		}
	}
	if found == nil {
		found = explainParts(cellPart.FindAllString(name, -1))
	}
	if found == nil {
		return nil, fmt.Errorf("nothing is called %q%s", name, catalog.Hint(strings.ToLower(name), known, "; -h lists all names"))
	}
	return found, nil
}

// cellPart matches one part of a cell in the result table: a mark, a fraction or a word.
var (
	cellPart = regexp.MustCompile(`·\?|[·✗✓°*≥▶~?<→]|\d+/\d+|[\pL/][^\s·✗✓°*≥▶~?<→]*|\S+`)
	modeID   = regexp.MustCompile(`^[fF]\d+$`)
	fraction = regexp.MustCompile(`^\d+/\d+$`)
	number   = regexp.MustCompile(`^\d[\d.,]*$`)
)

// explainParts explains each part of a cell in the result table. It returns nil if any part has no
// explanation.
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
	for _, line := range catalog.Wrap(e.head, 100) {
		fmt.Fprintln(w, line)
	}
	flags.PrintTable(w, slices.DeleteFunc(e.lines, func(l [2]string) bool { return l[1] == "" }))
}

func explainMode(m catalog.Mode) explanation {
	breaks := slices.DeleteFunc(everyStrategy(), func(s lock.Strategy) bool { return !slices.Contains(s.Breaks, m.ID) })
	return explanation{m.ID + ", a failure mode: " + m.Name, [][2]string{
		{"steps", m.Steps},
		{"cure", m.Cure + " (" + m.In + ")"},
		{"shown by", m.ShownBy},
		{"strategies", catalog.Join(breaks, ", ", nameOf)},
		{"source", m.Source},
	}}
}

// shownCommands returns the commands that the help lists: all except those for internal use.
func shownCommands() []command {
	return slices.DeleteFunc(commands(), func(c command) bool { return c.about == "" })
}

func explainFault(f catalog.FaultEntry) explanation {
	expected := func(v catalog.Verdict) string {
		return catalog.Join(catalog.Filter(slices.Concat(lock.Strategies, lock.Peers), func(s lock.Strategy) bool { return expectedInRun(s, f.Name) == v }), ", ", nameOf)
	}
	return explanation{string(f.Name) + ", a fault: " + f.About, [][2]string{
		{"other names", strings.Join(f.Aliases, ", ")},
		{"played by", "loadgen " + strings.Join(f.By.Commands(), ", loadgen ")},
		{"unsafe under it", expected(catalog.Unsafe)},
		{"stuck under it", expected(catalog.Stuck)},
	}}
}

// expectedInRun returns the verdict that we expect when loadgen run tests a strategy under a fault.
// It is n/a if the fault affects nothing that the strategy uses.
func expectedInRun(s lock.Strategy, name catalog.Fault) catalog.Verdict {
	if f, err := fault.Find(name); err == nil && !f.Touches(s) {
		return catalog.NA
	}
	return s.Expected(name)
}

func explainProperty(p catalog.Property) explanation {
	return explanation{p.Name + ", a property: " + p.About, [][2]string{
		{"other names", strings.Join(p.Aliases, ", ")},
		{"checked by", "loadgen " + strings.Join(p.By.Commands(), ", loadgen ")},
	}}
}

// explainStrategy returns the explanation of a strategy, including the faults under which the
// strategy is expected to fail.
func explainStrategy(st lock.Strategy) explanation {
	under := func(v catalog.Verdict) string {
		return flags.Join(catalog.Filter(catalog.RunFaults, func(f catalog.Fault) bool { return expectedInRun(st, f) == v }))
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
		{"depends on chance under", under(catalog.Unknown)},
		{"breaks by", strings.Join(breaks, "; ")},
		{"-ttl is", st.Lease},
		{"fails checks", checks(st.Fails)},
		{"sometimes fails", checks(st.Flaky)},
		{"not explored", st.Unexplorable},
		{"source", st.Source},
	}}
}

// checks lists the conformance tests that a strategy is known to fail, each with the reason.
func checks(failing map[string]string) string {
	return catalog.Join(slices.Sorted(maps.Keys(failing)), "; ", func(check string) string { return fmt.Sprintf("%q (%s)", check, failing[check]) })
}

// everyStrategy returns all strategies, including locks from other libraries and strategies that
// are broken on purpose.
func everyStrategy() []lock.Strategy {
	return slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken)
}

func explainPoint(name string) (e explanation, ok bool) {
	p, err := fault.ParsePoint(name)
	if err != nil {
		return e, false
	}
	who := map[fault.Role]string{
		fault.Alone:       "no other driver has come yet",
		fault.Waiting:     "the driver arrived while another one had the lock",
		fault.HandingOver: "the driver releases the lock to a waiting driver",
	}[p.Role]
	return explanation{name + ", a strike point: a place in a grab at which a fault is injected", [][2]string{
		{"driver", who},
		{"place", strings.TrimPrefix(name, string(p.Role)+": ") + ": \"before\" means that the call was not sent yet, and \"after\" that its reply has arrived. The number counts the remote calls in this phase of a grab. \"before claim 1\" comes after the last check of the lease"},
	}}, true
}
