package flags

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
)

// A Parser converts text into a value. Its error lists the valid values.
type Parser[T any] func(text string) (T, error)

type value[T any] struct {
	parse Parser[T]
	set   func(T)
	get   func() T // returns the default that the help shows; nil if there is none
}

// One returns a flag.Value that stores its value in *p. A repeated flag overwrites the value.
func One[T any](p *T, parse Parser[T]) flag.Value {
	return value[T]{parse: parse, set: func(v T) { *p = v }, get: func() T { return *p }}
}

// Many returns a flag.Value that appends each value to *p.
func Many[T any](p *[]T, parse Parser[T]) flag.Value {
	return value[T]{parse: parse, set: func(v T) { *p = append(*p, v) }}
}

// Switch returns a flag.Value that sets *on. It is for a flag without an argument.
func Switch(on *bool) flag.Value {
	return value[bool]{parse: Where(strconv.ParseBool, nil, "must be true or false"), set: func(v bool) { *on = v }}
}

// Set parses the value and stores the result.
func (v value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		v.set(parsed)
	}
	return err
}

// String returns the default value for the help, or "" for a zero value or a list.
func (v value[T]) String() string {
	if v.get == nil {
		return ""
	}
	x := reflect.ValueOf(v.get())
	switch x.Kind() {
	case reflect.String, reflect.Int, reflect.Int64, reflect.Float64:
		if !x.IsZero() {
			return fmt.Sprint(v.get())
		}
	}
	return ""
}

// Where returns a Parser that accepts text if parse does and valid returns true for the value.
// Otherwise, the Parser returns an error with the text in wrong. valid may be nil.
func Where[T any](parse Parser[T], valid func(T) bool, wrong string) Parser[T] {
	return func(text string) (T, error) {
		v, err := parse(text)
		if err != nil || valid != nil && !valid(v) {
			return *new(T), errors.New(wrong)
		}
		return v, nil
	}
}

// Text accepts any text and returns it unchanged.
func Text(text string) (string, error) { return text, nil }

// NonEmpty is a Parser that rejects blank text.
var NonEmpty = Where(Text, func(text string) bool { return strings.TrimSpace(text) != "" }, "must not be empty")

// Checked returns a Parser that accepts text if check returns nil.
func Checked(check func(string) error) Parser[string] {
	return func(text string) (string, error) { return text, check(text) }
}

// Valid returns a Parser that accepts text if parse returns no error.
func Valid[T any](parse func(string) (T, error)) Parser[string] {
	return func(text string) (string, error) {
		_, err := parse(text)
		return text, err
	}
}

// Pointer returns a Parser that returns a pointer to the parsed value.
func Pointer[T any](parse Parser[T]) Parser[*T] {
	return func(text string) (*T, error) {
		v, err := parse(text)
		return &v, err
	}
}

// OneOf returns a Parser that accepts only the given names. Its error lists them.
func OneOf[S ~string](names ...S) Parser[S] {
	name := func(text string) (S, error) { return S(text), nil }
	known := func(name S) bool { return slices.Contains(names, name) }
	return Where(name, known, "must be one of "+Join(names))
}

// Join joins names with commas.
func Join[S ~string](names []S) string {
	return catalog.Join(names, ", ", func(name S) string { return string(name) })
}

// Duration parses any duration.
var Duration = Where(time.ParseDuration, nil, "must be a duration such as 30s, 500ms or 1m30s")

// AtLeast returns a Parser that accepts durations of at least this value.
func AtLeast(least time.Duration) Parser[time.Duration] { return Between(least, math.MaxInt64) }

// Between returns a Parser that accepts durations between two limits.
func Between(least, most time.Duration) Parser[time.Duration] {
	return func(text string) (time.Duration, error) {
		d, err := Duration(text)
		switch {
		case err != nil:
			return 0, err
		case d < least:
			return 0, fmt.Errorf("must be at least %v", least)
		case d > most:
			return 0, fmt.Errorf("must be at most %v", most)
		}
		return d, nil
	}
}

// WholeNumber returns a Parser that accepts integers between two limits.
func WholeNumber(least, most int) Parser[int] {
	valid := func(n int) bool { return n >= least && n <= most }
	return Where(strconv.Atoi, valid, fmt.Sprintf("must be a whole number from %d to %d", least, most))
}

// Seed parses a random seed.
var Seed = Where(func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }, nil, "must be a whole number of 0 or more")

// List parses a comma-separated list without empty elements.
func List(text string) ([]string, error) {
	list := strings.Split(text, ",")
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, errors.New("must be a list of names separated by commas, such as a,b,c")
		}
	}
	return list, nil
}

// Names is like List, but rejects a list that contains a name twice.
func Names(text string) ([]string, error) {
	list, err := List(text)
	for i, name := range list {
		if slices.Contains(list[:i], name) {
			return nil, fmt.Errorf("%s is named twice: name it once", name)
		}
	}
	return list, err
}

// Each parses a list of words, and calls find for the values of each word. A word may be a group
// such as "all". Groups may overlap, but no word may occur twice. Of values that same reports as
// equal, the result contains only the first.
func Each[T any](text string, same func(a, b T) bool, find func(word string) ([]T, error)) (chosen []T, err error) {
	list, err := Names(text)
	if err != nil {
		return nil, err
	}
	for _, word := range list {
		found, err := find(word)
		if err != nil {
			return nil, err
		}
		for _, x := range found {
			if !slices.ContainsFunc(chosen, func(o T) bool { return same(o, x) }) {
				chosen = append(chosen, x)
			}
		}
	}
	return chosen, nil
}

// Unknown returns an error for an unknown name, and suggests a similar name from known and groups.
func Unknown[S ~string](kind, name string, known []S, groups ...string) error {
	names := append(slices.Clone(groups), catalog.Map(known, func(k S) string { return string(k) })...)
	return fmt.Errorf("there is no %s %q%s", kind, name, catalog.Hint(name, names, "; there are "+Join(known)))
}
