package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Plural returns a number with the correct form of its noun, such as "1 order" or "2 orders".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Map applies f to each item. It never returns nil, so that JSON contains [] instead of null.
func Map[T, R any](items []T, f func(T) R) []R {
	results := make([]R, len(items))
	for i, item := range items {
		results[i] = f(item)
	}
	return results
}

// Join joins the texts of some items with a separator.
func Join[T any](items []T, separator string, text func(T) string) string {
	return strings.Join(Map(items, text), separator)
}

// Capital returns text with a capital letter at its beginning. The first character must be ASCII.
func Capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// List joins words for use in a sentence: "a, b and c".
func List(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Wrap breaks text at spaces into lines of at most width characters. It also breaks words that are
// longer than a line.
func Wrap(text string, width int) (lines []string) {
	line := []rune{}
	for word := range strings.FieldsSeq(text) {
		if len(line) > 0 && len(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, []rune(word)...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}

// Shorten returns the first most characters of text. If the text is longer, Shorten adds an
// ellipsis.
func Shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// Filter returns the items for which keep returns true. It returns nil if there are none.
func Filter[T any](items []T, keep func(T) bool) (kept []T) {
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// First returns the first item for which is returns true. It returns the zero value if there is
// none.
func First[T any](items []T, is func(T) bool) (first T) {
	if i := slices.IndexFunc(items, is); i >= 0 {
		return items[i]
	}
	return first
}

// Distinct returns each item once, in the order of the first occurrences.
func Distinct[T comparable](items []T) (all []T) {
	for _, item := range items {
		if !slices.Contains(all, item) {
			all = append(all, item)
		}
	}
	return all
}
