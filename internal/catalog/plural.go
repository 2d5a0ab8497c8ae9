package catalog

import (
	"fmt"
	"strings"
)

// Plural returns a number with the matching form of a word, such as "1 order" or "2 orders".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// List joins words as in a sentence: "a, b and c".
func List(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
