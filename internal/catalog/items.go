package catalog

import (
	"slices"
	"strings"
)

// Map applies f to each item. It never returns nil, so that JSON contains [] instead of null.
func Map[T, R any](items []T, f func(T) R) []R {
	results := make([]R, len(items))
	for i, item := range items {
		results[i] = f(item)
	}
	return results
}

// Join converts each item with text, and joins the results with a separator.
func Join[T any](items []T, separator string, text func(T) string) string {
	return strings.Join(Map(items, text), separator)
}

// Filter returns the items for which keep returns true, or nil if there are none.
func Filter[T any](items []T, keep func(T) bool) (kept []T) {
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// First returns the first item for which match returns true. If there is none, it returns the zero
// value.
func First[T any](items []T, match func(T) bool) (first T) {
	if i := slices.IndexFunc(items, match); i >= 0 {
		return items[i]
	}
	return first
}

// Distinct returns items without duplicates, in the order of their first occurrences.
func Distinct[T comparable](items []T) (all []T) {
	for _, item := range items {
		if !slices.Contains(all, item) {
			all = append(all, item)
		}
	}
	return all
}
