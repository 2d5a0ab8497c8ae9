package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/flags"

	"github.com/google/renameio/v2"
)

// format is a named way to write a result of type T.
type format[T any] struct {
	name   string
	render func(io.Writer, T) error
}

func formatNames[T any](formats []format[T]) []string {
	return catalog.Map(formats, func(f format[T]) string { return f.name })
}

// formatFlag returns a -format flag that accepts these names. The first name is the default.
func formatFlag(name *string, names []string) flags.Flag {
	*name = names[0]
	return flags.New("format", "NAME", "format of standard output: "+flags.Join(names), flags.One(name, flags.OneOf(names...)))
}

// renderAs writes x in the named format, or in the first format if name is empty.
func renderAs[T any](w io.Writer, formats []format[T], name string, x T) error {
	return formats[max(slices.Index(formatNames(formats), name), 0)].render(w, x)
}

// renderAll writes all elements in the named format. It separates them with empty lines, except in
// JSON.
func renderAll[T any](w io.Writer, formats []format[T], name string, all []T) error {
	for i, x := range all {
		if i > 0 && name != "json" {
			fmt.Fprintln(w)
		}
		if err := renderAs(w, formats, name, x); err != nil {
			return err
		}
	}
	return nil
}

// orInterrupted returns err unless the user has interrupted the command. In that case, it prints
// "interrupted", followed by the text in left, and returns exitInterrupted.
func orInterrupted(err error, stderr io.Writer, left string, args ...any) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintf(stderr, "interrupted"+left+"\n", args...)
	return exitInterrupted
}

// replaceFile writes a file atomically, and creates its folder if necessary.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}
