package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/lockbench"
	"grablab/internal/order"
	"grablab/internal/testbed/stack"
)

// option is one flag, as it is parsed and as the help shows it.
type option struct {
	name, arg, about string
	value            flag.Value
}

// printOptions lists flags for the help, with their defaults.
func printOptions(w io.Writer, options []option) {
	for _, o := range options {
		about := o.about
		if v := o.value.String(); v != "" {
			about += fmt.Sprintf(" (default %s)", v)
		}
		fmt.Fprintf(w, "  -%s %s\t%s\n", o.name, o.arg, about)
	}
}

// serverOptions are the flags that name servers which loadgen does not start.
func serverOptions(c *stack.Config) []option {
	return []option{
		{"db", "DSN", "database, with -stack external, or of -targets; for a service that is not ours with -ledger-query", one(&c.DSN, nonEmpty)},
		{"redis", "ADDR", "the single Redis, with -stack external", one(&c.Redis, nonEmpty)},
		{"redlock", "ADDR,ADDR,…", "the Redlock nodes, with -stack external; NAME@ADDR is the master NAME of the Sentinel at ADDR", one(&c.Redlock, parseList)},
		{"sentinel", "ADDR,ADDR,…", "Sentinels that know the Redis, instead of -redis", one(&c.Sentinel, parseList)},
		{"sentinel-master", "NAME", "the name of the master that they watch", one(&c.SentinelMaster, nonEmpty)},
		{"zk", "ADDR,ADDR,…", "the servers of a ZooKeeper, with -stack external", one(&c.ZooKeeper, parseList)},
		{"etcd", "ADDR,ADDR,…", "the members of an etcd, with -stack external", one(&c.Etcd, parseList)},
	}
}

// readFlags reads args, and says in given which flags are there. Its errors wrap
// errUsage, or flag.ErrHelp.
func readFlags(fs *flag.FlagSet, args []string, given map[string]bool) error {
	rest, err := interspersed(fs, args, given)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %q is no flag; flags begin with -", errUsage, rest[0])
	}
	return err
}

// readOptions is readFlags over the options of the named command.
func readOptions(command string, options []option, args []string) (given map[string]bool, err error) {
	given = map[string]bool{}
	return given, readFlags(flagSet(command, options), args, given)
}

// readArgs is readOptions for a command that takes other arguments, too, before, between
// and after its flags.
func readArgs(command string, options []option, args []string) (rest []string, given map[string]bool, err error) {
	given = map[string]bool{}
	rest, err = interspersed(flagSet(command, options), args, given)
	return rest, given, err
}

func flagSet(command string, options []option) *flag.FlagSet {
	fs := flag.NewFlagSet("loadgen "+command, flag.ContinueOnError)
	for _, o := range options {
		fs.Var(o.value, o.name, o.about)
	}
	return fs
}

// interspersed reads flags also between and after the other arguments, which it returns.
func interspersed(fs *flag.FlagSet, args []string, given map[string]bool) (rest []string, err error) {
	fs.SetOutput(io.Discard) // the caller says what is wrong, in one line
	for {
		err := fs.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w: %s", errUsage, flagError(err, fs))
		case fs.NArg() == 0:
			fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
			return rest, nil
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

// flagError is the text for an error of fs.Parse: for an unknown flag it names the
// one that may have been meant. (Package flag tells that by the text of the error alone.)
func flagError(err error, fs *flag.FlagSet) string {
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err.Error()
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if near := catalog.Nearest(name, known); near != "" {
		return fmt.Sprintf("there is no flag -%s; did you mean -%s?", name, near)
	}
	return fmt.Sprintf("there is no flag -%s; -h lists them", name)
}

// value is a flag whose parser says what would have been right.
type value[T any] struct {
	set   func(T)
	get   func() T // nil: the help shows no default
	parse func(string) (T, error)
}

// one is a flag with one value: if it is repeated, the last counts.
func one[T any](p *T, parse func(string) (T, error)) flag.Value {
	return value[T]{set: func(v T) { *p = v }, get: func() T { return *p }, parse: parse}
}

// many is a flag that may be repeated.
func many[T any](p *[]T, parse func(string) (T, error)) flag.Value {
	return value[T]{set: func(v T) { *p = append(*p, v) }, parse: parse}
}

func (v value[T]) Set(text string) error {
	x, err := v.parse(text)
	if err == nil {
		v.set(x)
	}
	return err
}

// String is the value as the help shows it; "" where there is nothing to show.
func (v value[T]) String() string {
	if v.get == nil { // also the zero value, which package flag makes
		return ""
	}
	switch x := any(v.get()).(type) {
	case []lock.Strategy:
		return "core"
	case []lockbench.Subject, []lockbench.Case:
		return "all"
	case string, int, float64, time.Duration, grab.OnLost, order.Guard:
		if text := fmt.Sprint(x); text != "0" && text != "0s" {
			return text
		}
	}
	return ""
}

// toggle is a flag without a value.
type toggle struct{ on *bool }

func (t toggle) IsBoolFlag() bool { return true }
func (t toggle) String() string   { return "" }

func (t toggle) Set(text string) (err error) {
	if *t.on, err = strconv.ParseBool(text); err != nil {
		return errors.New("want true or false")
	}
	return nil
}

func nonEmpty(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("want something that is not empty")
	}
	return text, nil
}

// checked is a parser of text in which check finds nothing wrong.
func checked(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

// bearer accepts what a header can carry.
func bearer(text string) (string, error) {
	text, err := nonEmpty(text)
	if err == nil {
		err = grab.CheckToken(text)
	}
	return text, err
}

// oneOf accepts these names alone.
func oneOf(names ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if !slices.Contains(names, text) {
			return "", fmt.Errorf("want one of %s", strings.Join(names, ", "))
		}
		return text, nil
	}
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("want a duration, as in 30s, 500ms or 1m30s")
	}
	return d, nil
}

func atLeast(least time.Duration) func(string) (time.Duration, error) {
	return between(least, math.MaxInt64)
}

func between(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := parseDuration(text)
		switch {
		case err != nil:
			return 0, err
		case d < least:
			return 0, fmt.Errorf("want %v or more", least)
		case d > most:
			return 0, fmt.Errorf("want %v or less", most)
		}
		return d, nil
	}
}

// wholeNumber parses a number between the two, both included.
func wholeNumber(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		return n, nil
	}
}

func parseSeed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, errors.New("want a whole number, 0 or more")
	}
	return n, nil
}

// parseList splits at commas. No element is empty.
func parseList(text string) ([]string, error) {
	list := strings.Split(text, ",")
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, errors.New("want names or addresses with commas between them, none of them empty")
		}
	}
	return list, nil
}

// parseEach reads names with commas between them. find says what one of them
// stands for, and each thing counts once.
func parseEach[T any](text string, name func(T) string, find func(string) ([]T, error)) (chosen []T, err error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for _, word := range list {
		found, err := find(word)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if !slices.ContainsFunc(chosen, func(o T) bool { return name(o) == name(x) }) {
				chosen = append(chosen, x)
			}
		}
	}
	return chosen, nil
}

// noSuch is the error for a name that is not in known. It says what may have been
// meant: one of those, or of the words that stand for several, as "all" does.
func noSuch(kind, name string, known []string, words ...string) error {
	return fmt.Errorf("there is no %s %q%s", kind, name, catalog.Hint(name, append(words, known...), "; there are "+strings.Join(known, ", ")))
}

// format is one way to write a T down.
type format[T any] struct {
	name   string
	render func(io.Writer, T) error
}

func formatNames[T any](formats []format[T]) []string {
	return namesOf(formats, func(f format[T]) string { return f.name })
}

func namesOf[T any](list []T, name func(T) string) []string {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = name(x)
	}
	return names
}

// renderAs writes x in the format of the name, which is one of formats.
func renderAs[T any](w io.Writer, formats []format[T], name string, x T) error {
	return formats[slices.Index(formatNames(formats), name)].render(w, x)
}

// notes say of each old name that was used what it is called now, a line each.
type notes []string

func (n *notes) add(text string) {
	if text != "" && !slices.Contains(*n, text) {
		*n = append(*n, text)
	}
}

func (n notes) print(stderr io.Writer) {
	for _, line := range n {
		fmt.Fprintln(stderr, line)
	}
}
