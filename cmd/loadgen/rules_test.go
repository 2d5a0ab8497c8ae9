package main

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"grablab/internal/flags"
)

// TestRulesFire breaks each rule with each of its flags, and checks the form of the message. A rule must
// not report an error if any of the conditions that it needs holds.
func TestRulesFire(t *testing.T) {
	form := regexp.MustCompile(`^-[a-z0-9-]+( [^:]+)?: [^:.;]+; [^:.;]+$`)
	known := defaults("").facts()
	for _, set := range []struct {
		name  string
		flags []flags.Flag
		rules []flags.Rule
		facts map[string]bool
	}{
		{"run", defaults("").flags(), runRules, known},
		{"explore", newExploreSettings().flags(), rules["explore"], nil},
		{"bench", newBenchSettings().flags(), rules["bench"], map[string]bool{"stack external": false}},
		{"workshop", newWorkshopSettings().flags(), rules["workshop"], map[string]bool{"an exercise": false}},
	} {
		if len(rules[set.name]) == 0 {
			t.Errorf("rules.json has no rules for %s", set.name)
		}
		for i, rule := range set.rules {
			for name := range strings.FieldsSeq(rule.Flags) {
				args := []string{"-" + name}
				facts := maps.Clone(set.facts)
				for fact := range facts {
					facts[fact] = false
				}
				for fact := range strings.SplitSeq(rule.Excludes, ", ") {
					if strings.HasPrefix(fact, "-") {
						args = append(args, fact)
					} else if fact != "" {
						facts[fact] = true
					}
				}
				line, err := flags.Parse(anyValue(set.flags), args)
				if err != nil {
					t.Fatalf("%s: rule %d: %v", set.name, i, err)
				}
				err = flags.Check(set.rules[i:i+1], line, facts)
				if err == nil || !form.MatchString(err.Error()) {
					t.Errorf("%s: rule %d, -%s: %v, want -flag value: what is wrong; what to do", set.name, i, name, err)
				}
				if rule.Needs == "" {
					continue
				}
				for fact := range strings.SplitSeq(rule.Needs, ", ") {
					met, also := maps.Clone(facts), args
					if strings.HasPrefix(fact, "-") {
						also = append(also, fact)
					} else {
						met[fact] = true
					}
					line, err := flags.Parse(anyValue(set.flags), also)
					if err != nil {
						t.Fatalf("%s: rule %d: %v", set.name, i, err)
					}
					if err := flags.Check(set.rules[i:i+1], line, met); err != nil {
						t.Errorf("%s: rule %d fires although %q holds: %v", set.name, i, fact, err)
					}
				}
			}
		}
	}
}

// anyValue returns flags with the same names as all, but without values.
func anyValue(all []flags.Flag) []flags.Flag {
	switches := make([]flags.Flag, len(all))
	for i, f := range all {
		switches[i] = flags.New(f.Name, "", "", flags.Switch(new(bool)))
	}
	return switches
}

// TestRulesAreReached checks that TestBadUsage has an example for each rule of run, so that no earlier
// check hides a rule.
func TestRulesAreReached(t *testing.T) {
	source := string(read(t, "flags_test.go"))
	for i, rule := range runRules {
		if !strings.Contains(source, rule.Wrong[:min(len(rule.Wrong), 36)]) {
			t.Errorf("rule %d has no example: %s", i, rule.Wrong)
		}
	}
}
