//go:build !race

package archtest

var buildFlags []string
