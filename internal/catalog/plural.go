package catalog

import "fmt"

// Plural returns n with the form of a word that fits it: "1 order", "2 orders".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
