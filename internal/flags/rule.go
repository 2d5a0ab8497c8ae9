package flags

import (
	"fmt"
	"slices"
	"strings"
)

// Rule says what a flag requires or excludes. Excludes and Needs are lists of facts,
// separated by commas. A fact is a name such as "a fault", which the command defines, or a
// flag such as "-db". A flag is true as a fact if it has a value.
type Rule struct {
	Flags    string // the flags that the rule applies to, separated by spaces
	Excludes string // the rule is broken if all of these facts are true
	Needs    string // … unless at least one of these facts is true
	Wrong    string // first part of the error message: what is wrong
	Do       string // second part of the error message: how to correct it
}

// Check returns the error of the first broken rule, or nil. It panics if a rule names an
// unknown fact.
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

// broken reports whether the facts break the rule.
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

// split splits a list of facts. An empty list has no facts.
func split(facts string) []string {
	if facts == "" {
		return nil
	}
	return strings.Split(facts, ", ")
}
