package main

import (
	"fmt"
	"io"
	"slices"

	"grablab/internal/flags"
)

// format is a named way to write a result of type T.
type format[T any] struct {
	name   string
	render func(io.Writer, T) error
}

func formatNames[T any](formats []format[T]) []string {
	return namesOf(formats, func(f format[T]) string { return f.name })
}

// formatFlag returns the -format flag for these formats. The first format is the default.
func formatFlag[T any](name *string, formats []format[T]) flags.Flag {
	names := formatNames(formats)
	*name = names[0]
	return flags.New("format", "NAME", "format of standard output: "+flags.Join(names), flags.One(name, flags.OneOf(names...)))
}

// renderAs writes x in the named format, or in the first format if name is empty.
func renderAs[T any](w io.Writer, formats []format[T], name string, x T) error {
	return formats[max(slices.Index(formatNames(formats), name), 0)].render(w, x)
}

// notes are messages for the user, such as the new name of a fault.
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
