package flags

import (
	"fmt"
	"slices"
	"strings"
)

// Rule says what a flag needs or excludes. Its conditions are facts: names such as "a fault",
// which the command defines, or flags such as "-db", which hold if the flag is given. Several
// facts are separated by commas.
type Rule struct {
	Flags    string // the flags that the rule is about, separated by spaces
	Excludes string // the flags are wrong if all of these facts hold
	Needs    string // … unless one of these facts holds
	Wrong    string // what is wrong
	Do       string // what to do about it
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

// split returns the facts of a list.
func split(facts string) []string {
	if facts == "" {
		return nil
	}
	return strings.Split(facts, ", ")
}
