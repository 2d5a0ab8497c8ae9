//go:build race

package explore_test

// raced says whether the race detector watches, which makes a search five times
// as slow: what is long without it is left out, and nothing but what is long.
const raced = true
