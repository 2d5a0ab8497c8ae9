//go:build race

package archtest

// buildFlags are those that this test was built with, so that what it builds
// comes from the same cache.
var buildFlags = []string{"-race"}
