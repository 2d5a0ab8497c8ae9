package flags

import (
	"fmt"
	"slices"
	"strings"
)

// Rule defines what a flag needs or excludes. Needs and Excludes are comma-separated lists of
// conditions. A condition is a flag, such as "-db", or one of the facts passed to Check, such as "a
// fault". A command line that sets the flag breaks the rule if all conditions in Excludes are true and
// none in Needs is.
type Rule struct {
	Flags    string // flags to which the rule applies, space-separated
	Excludes string // conditions that must not all be true; if empty, Needs always applies
	Needs    string // conditions of which at least one must be true; if empty, Excludes always applies
	Wrong    string // what is wrong, for the error message
	Do       string // how to correct it, for the error message
}

// Check returns an error for the first rule that the command line breaks. It panics on an unknown
// condition.
func Check(rules []Rule, line *Line, facts map[string]bool) error {
	for _, rule := range rules {
		for name := range strings.FieldsSeq(rule.Flags) {
			if line.Given(name) && rule.broken(line, facts) {
				return fmt.Errorf("%s: %s; %s", line.Label(name), rule.Wrong, rule.Do)
			}
		}
	}
	return nil
}

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

func split(facts string) []string {
	if facts == "" {
		return nil
	}
	return strings.Split(facts, ", ")
}
