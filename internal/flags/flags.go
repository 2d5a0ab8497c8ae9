// Package flags describes a command's flags as data: how to parse each flag, its help text, and
// which flags it requires or excludes.
//
// It is based on package ff, which adds environment variables and config files to the standard
// package flag. Start reading at Flag and Parse. value.go parses values, rule.go checks rules
// between flags, and help.go prints the help.
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

// ErrUsage means that the user made a mistake on the command line.
var ErrUsage = errors.New("bad usage")

// Usage returns an error that wraps ErrUsage.
func Usage(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

// Flag describes one flag of a command.
type Flag struct {
	Name  string
	Arg   string // value placeholder in the help, such as N; empty for a switch, so that -x means -x=true
	About string // help text; the help hides a flag without one
	Value flag.Value
}

// New returns a Flag.
func New(name, arg, about string, value flag.Value) Flag {
	return Flag{Name: name, Arg: arg, About: about, Value: value}
}

// Secrets lists the flags that contain passwords or tokens. Messages and results must not show their
// values.
var Secrets = []string{"admin-token", "db", "header"}

// Label formats a flag and its value for a message, such as "-ttl 0s". It shortens a long value and
// omits a secret one.
func Label(name, value string) string {
	const longest = 40
	if slices.Contains(Secrets, name) {
		return "-" + name
	}
	return strings.TrimSpace("-" + name + " " + catalog.Shorten(value, longest))
}

// HelpError is the error that Parse returns if the user asks for help with -h. It wraps
// flag.ErrHelp.
type HelpError struct {
	Topic string // the argument after -h; may be empty
}

// Error returns the text of flag.ErrHelp.
func (HelpError) Error() string { return flag.ErrHelp.Error() }

// Unwrap returns flag.ErrHelp.
func (HelpError) Unwrap() error { return flag.ErrHelp }

// Line is a parsed command line.
type Line struct {
	Args  []string // non-flag arguments
	Flags []string // command-line flags in order, each as -name=value

	// Places maps each flag that a file sets to its place in that file, such as "my.yaml:3:7".
	Places map[string]string

	values map[string]string // last value of each flag, whether from the command line, the environment or a file
	failed error             // error for the last value that a flag rejected
}

// Given reports whether a flag is set on the command line, in the environment or in a file.
func (l *Line) Given(name string) bool {
	_, given := l.values[name]
	return given
}

// Name formats a flag for a message. If a file sets the flag, it shows the place in that file.
func (l *Line) Name(name string) string {
	if place := l.Places[name]; place != "" {
		return place + ": " + name
	}
	return "-" + name
}

// Label is like Name, but also shows the value of a flag on the command line.
func (l *Line) Label(name string) string {
	if value := l.values[name]; l.Places[name] == "" && value != "true" {
		return Label(name, value)
	}
	return l.Name(name)
}

// Parse parses args, in which flags and other arguments may be mixed. With options, flags can also
// come from the environment or a file. The error is a HelpError or wraps ErrUsage.
func Parse(flags []Flag, args []string, options ...ff.Option) (*Line, error) {
	line := &Line{values: map[string]string{}}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // discard the output, because the caller prints errors and help
	for _, f := range flags {
		define := fs.Func
		if f.Arg == "" {
			define = fs.BoolFunc
		}
		define(f.Name, f.About, func(text string) error { return line.set(f, text) })
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

// ParseFlags is like Parse, but accepts only flags and returns an error for other arguments.
func ParseFlags(flags []Flag, args []string, options ...ff.Option) (*Line, error) {
	line, err := Parse(flags, args, options...)
	if err == nil && len(line.Args) > 0 {
		err = Usage("%s: this is not a flag: flags begin with -, and -h lists them", line.Args[0])
	}
	return line, err
}

// explain rewords an error from package flag. For an unknown flag, it suggests a similar one.
func (l *Line) explain(err error, flags []Flag) error {
	if l.failed != nil {
		return l.failed
	}
	text := withoutContext(err).Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		known := catalog.Map(flags, func(f Flag) string { return f.Name })
		if near := catalog.Nearest(name, known); near != "" {
			return fmt.Errorf("-%s: there is no such flag: did you mean -%s?", name, near)
		}
		return fmt.Errorf("-%s: there is no such flag: use -h to list the flags", name)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return fmt.Errorf("%s: the value is missing: add it after the flag", name)
	}
	return errors.New(text)
}

// withoutContext removes the text that package ff adds to an error.
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

// set parses the value of a flag and records it.
func (l *Line) set(f Flag, text string) error {
	if err := f.Value.Set(text); err != nil {
		l.failed = fmt.Errorf("%s: %w", Label(f.Name, text), err)
		return err
	}
	l.values[f.Name] = text
	l.Flags = append(l.Flags, "-"+f.Name+"="+text)
	return nil
}
