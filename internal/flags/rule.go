package flags

import (
	"fmt"
	"slices"
	"strings"
)

// Rule says what a flag requires or excludes. Excludes and Needs are lists of conditions,
// separated by commas. A condition is a name such as "a fault", which the command defines, or a
// flag such as "-db". A flag is true as a condition if it has a value.
type Rule struct {
	Flags    string // flags to which the rule applies, separated by spaces
	Excludes string // conditions that must not all be true together with the flag
	Needs    string // conditions of which one must be true; otherwise the rule is broken
	Wrong    string // what is wrong, for the error message
	Do       string // how to correct it, for the error message
}

// Check returns an error for the first rule that the flags break. It panics if a rule names an
// unknown condition.
func Check(rules []Rule, line *Line, facts map[string]bool) error {
	for _, rule := range rules {
		for name := range strings.FieldsSeq(rule.Flags) {
			if line.Given(name) && rule.broken(line, facts) {
				return fmt.Errorf("%s: %s: %s", line.Label(name), rule.Wrong, rule.Do)
			}
		}
	}
	return nil
}

// broken reports whether the rule is broken, provided that its flag is given.
func (r Rule) broken(line *Line, facts map[string]bool) bool {
	holds := func(fact string) bool {
		if name, ok := strings.CutPrefix(fact, "-"); ok {
			return line.Given(name)
		}
		held, known := facts[fact]
		if !known {
			panic("flags: no fact " + fact)
		}
		return held
	}
	return !slices.ContainsFunc(split(r.Excludes), func(fact string) bool { return !holds(fact) }) &&
		!slices.ContainsFunc(split(r.Needs), holds)
}

// split splits a list of conditions. An empty text means no conditions.
func split(facts string) []string {
	if facts == "" {
		return nil
	}
	return strings.Split(facts, ", ")
}
