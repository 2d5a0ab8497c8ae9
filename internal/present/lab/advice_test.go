package lab

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"grablab/internal/present/whichlock"
)

// TestChooseMentionsRedlock tries all combinations of answers. The sources must explain why redlock is
// missing only for users who have five nodes, and whose orders must never have two winners.
func TestChooseMentionsRedlock(t *testing.T) {
	combinations := []map[string]string{{}}
	for _, q := range whichlock.Questions {
		var longer []map[string]string
		for _, answers := range combinations {
			for _, a := range q.Answers {
				more := map[string]string{q.Name: a.Name}
				for name, answer := range answers {
					more[name] = answer
				}
				longer = append(longer, more)
			}
		}
		combinations = longer
	}
	explained := 0
	for _, answers := range combinations {
		r := httptest.NewRequest("GET", "/", nil)
		for name, answer := range answers {
			r.SetPathValue(name, answer)
		}
		got, err := choose(r)
		if err != nil {
			t.Fatalf("%v: choose: %v", answers, err)
		}
		view := got.(chooseView)
		explains := slices.ContainsFunc(view.Sources, func(source string) bool { return strings.HasPrefix(source, "redlock, ") })
		offers := slices.ContainsFunc(view.Options, func(o optionView) bool { return o.Strategy == "redlock" })
		if want := answers["runs"] == "redlock" && answers["rows"] != "may"; explains != want {
			t.Errorf("%v: the sources explain that redlock is missing: %v, want %v", answers, explains, want)
		}
		if explains && offers {
			t.Errorf("%v: the page offers redlock and explains that it is missing", answers)
		}
		if explains {
			explained++
		}
	}
	if explained == 0 || explained == len(combinations) {
		t.Errorf("%d of %d combinations explain that redlock is missing", explained, len(combinations))
	}
}
