//go:build race

package archtest

// buildFlags holds the flags with which this test was built. The test passes them to its own builds, so
// that these can use the same cache.
var buildFlags = []string{"-race"}
