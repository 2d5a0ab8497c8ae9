//go:build race

package explore_test

// raced is true if the race detector is on. The detector makes a search five times as slow, so tests skip
// their longest searches.
const raced = true
