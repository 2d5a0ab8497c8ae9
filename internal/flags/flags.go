// Package flags describes the flags of a command as data: how each is parsed, what the help
// says about it, and what it needs or excludes. Both programs use it. It parses with package
// ff, which adds environment variables and configuration files to package flag.
//
// Start at Flag and Parse. value.go has the parsers, rule.go the rules between flags, and
// help.go prints the help.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"grablab/internal/catalog"

	"github.com/peterbourgon/ff/v3"
)

// ErrUsage marks an error that the caller can correct by calling the program differently.
var ErrUsage = errors.New("bad usage")

// Usage returns an error that wraps ErrUsage.
func Usage(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

// Flag is one flag of a command.
type Flag struct {
	Name  string
	Arg   string // placeholder for the value in the help; empty for a switch
	About string // describes the flag in the help; a flag with an empty About is hidden
	Value flag.Value
}

// New returns a flag.
func New(name, arg, about string, value flag.Value) Flag {
	return Flag{Name: name, Arg: arg, About: about, Value: value}
}

// secrets are the flags whose values never appear in a message.
var secrets = []string{"admin-token", "db", "header"}

// Label returns the flag with its value, as it appears at the start of a message: "-ttl 0s".
// It shortens a long value and omits a secret.
func Label(name, value string) string {
	const longest = 40
	if slices.Contains(secrets, name) {
		return "-" + name
	}
	if runes := []rune(value); len(runes) > longest {
		value = string(runes[:longest]) + "…"
	}
	return strings.TrimSpace("-" + name + " " + value)
}

// HelpError is the error for -h. It wraps flag.ErrHelp.
type HelpError struct {
	Topic string // the argument after -h, or empty
}

// Error returns the text of flag.ErrHelp.
func (HelpError) Error() string { return flag.ErrHelp.Error() }

// Unwrap returns flag.ErrHelp.
func (HelpError) Unwrap() error { return flag.ErrHelp }

// Line is a parsed command line.
type Line struct {
	Args  []string // the arguments that are not flags
	Flags []string // the flags of the command line as -name=value, in their order

	// Places says where a file sets a flag, such as "my.yaml:3:7".
	Places map[string]string

	values map[string]string // the last value of each flag, also from the environment or a file
	failed error             // the error for the last value that a flag rejected
}

// Given reports whether a flag has a value from the command line, the environment or a file.
func (l *Line) Given(name string) bool {
	_, given := l.values[name]
	return given
}

// Label returns the flag with its value, as it appears at the start of a message.
// If a file sets the flag, Label returns the place in the file and the name.
func (l *Line) Label(name string) string {
	if place := l.Places[name]; place != "" {
		return place + ": " + name
	}
	if value := l.values[name]; value != "true" {
		return Label(name, value)
	}
	return "-" + name
}

// Parse reads args. Flags may stand before, between and after the other arguments. With
// options, environment variables or a file set the flags that are missing in args. Errors
// wrap ErrUsage, or are a HelpError.
func Parse(flags []Flag, args []string, options ...ff.Option) (*Line, error) {
	line := &Line{values: map[string]string{}}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the caller prints errors and help
	for _, f := range flags {
		fs.Var(recorder{f.Value, f.Name, line}, f.Name, f.About)
	}
	for {
		if err := ff.Parse(fs, args); errors.Is(err, flag.ErrHelp) {
			return nil, HelpError{fs.Arg(0)}
		} else if err != nil {
			return nil, Usage("%w", line.explain(err, flags))
		}
		if fs.NArg() == 0 {
			break
		}
		line.Args, args = append(line.Args, fs.Arg(0)), fs.Args()[1:]
	}
	onCommandLine := line.Flags
	if err := ff.Parse(fs, nil, options...); err != nil {
		return nil, Usage("%w", withoutContext(err))
	}
	line.Flags = onCommandLine
	return line, nil
}

// ParseFlags is like Parse for a command that takes only flags.
func ParseFlags(flags []Flag, args []string, options ...ff.Option) (*Line, error) {
	line, err := Parse(flags, args, options...)
	if err == nil && len(line.Args) > 0 {
		err = Usage("%s: not a flag: flags begin with -, and -h lists them", line.Args[0])
	}
	return line, err
}

// explain returns a clearer text for an error of the command line. For an unknown flag, it
// suggests a flag with a similar name. Package flag reports an unknown flag only in the text
// of its error.
func (l *Line) explain(err error, flags []Flag) error {
	if l.failed != nil {
		return l.failed
	}
	text := withoutContext(err).Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		var known []string
		for _, f := range flags {
			known = append(known, f.Name)
		}
		if near := catalog.Nearest(name, known); near != "" {
			return fmt.Errorf("-%s: there is no such flag: did you mean -%s?", name, near)
		}
		return fmt.Errorf("-%s: there is no such flag: -h lists them", name)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return fmt.Errorf("%s: has no value: add one after the flag", name)
	}
	return errors.New(text)
}

// withoutContext removes the text that package ff adds to an error of the command line or the
// environment.
func withoutContext(err error) error {
	text := err.Error()
	for _, added := range []string{"error parsing commandline arguments: ", "error parsing environment variables: "} {
		text = strings.TrimPrefix(text, added)
	}
	if _, rest, ok := strings.Cut(text, "from environment variable "); ok {
		text = strings.Replace(rest, `"`, "", 2)
	}
	return errors.New(text)
}

// recorder is a flag that also stores each value in line.
type recorder struct {
	flag.Value
	name string
	line *Line
}

// Set parses text and records it in the line.
func (r recorder) Set(text string) error {
	if err := r.Value.Set(text); err != nil {
		r.line.failed = fmt.Errorf("%s: %w", Label(r.name, text), err)
		return err
	}
	r.line.values[r.name] = text
	r.line.Flags = append(r.line.Flags, "-"+r.name+"="+text)
	return nil
}

// IsBoolFlag reports whether the flag is a switch.
func (r recorder) IsBoolFlag() bool {
	_, ok := r.Value.(toggle)
	return ok
}

// String returns the current value. Package flag also calls it on a zero recorder.
func (r recorder) String() string {
	if r.Value == nil {
		return ""
	}
	return r.Value.String()
}
