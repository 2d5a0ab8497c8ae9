//go:build race

package sim

// raced reports whether the race detector is on. It makes a search five times as slow, so
// tests skip their longest searches.
const raced = true
