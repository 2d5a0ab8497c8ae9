package lab

import (
	"fmt"
	"net/http"

	"grablab/internal/catalog"
	"grablab/internal/present/whichlock"
)

// chooseView contains the locks that fit the user's needs, as JSON for the page.
type chooseView struct {
	Answer  string           `json:"answer"`
	Options []optionView     `json:"options"`
	Duties  []whichlock.Duty `json:"duties"` // what the first lock's user must do in addition
	Sources []string         `json:"sources"`
}

type optionView struct {
	whichlock.Option
	Unmet string `json:"but,omitempty"` // the requirements that the lock does not meet
	Again string `json:"again"`
	How   string `json:"how"` // the lock's counterpart in the user's stack; may be empty
}

// choose returns the locks that fit the user's needs. The request path contains the user's answers
// to the questions.
func choose(r *http.Request) (any, error) {
	answers, err := whichlock.ParseAnswers(r.PathValue)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	f := whichlock.KnownFacts()
	fit, err := f.Advise(answers)
	if err != nil {
		return nil, err
	}
	v := chooseView{Duties: []whichlock.Duty{}, Answer: "None of the locks that were run fits: let the database decide, by one conditional UPDATE.", Options: []optionView{}, Sources: []string{
		fmt.Sprintf("The faults, commands and statements of a lock are from %s, a run of all strategies under all faults on real servers, at commit %s. Commands and statements are averages over all requests of a load without faults, including those of the losers.", f.Run, f.RunCommit),
		fmt.Sprintf("The cost of the lock alone is from %s, at commit %s. It is given in round trips to Redis (%s in that benchmark), with the 95 %% interval over the rounds.", f.Bench, f.BenchCommit, f.RoundTrip),
		"docs/which-lock.md describes the libraries and gives the reasons. That file and the results are in the repository of Grab Lab.",
	}}
	if redlock := f.Option("redlock"); answers.Runs == "redlock" && len(redlock.Twice) > 0 && answers.Rows != "may" {
		v.Sources = append(v.Sources, "redlock, for which you have five nodes, is not in this list, because it let an order be grabbed twice under "+catalog.List(redlock.Twice)+".")
	}
	for i, o := range fit {
		if i == 0 {
			v.Answer = fmt.Sprintf("Take %s with the guard %s. In short, it is: %s.", o.Strategy, o.Guard, o.Title)
			v.Duties = o.Duties(answers)
		}
		v.Options = append(v.Options, optionView{Option: o, Unmet: o.Unmet(answers), How: whichlock.FindStack(answers.Stack).Locks[o.Strategy], Again: fmt.Sprintf("loadgen run -stack local -strategies %s -faults all", o.Strategy)})
	}
	return v, nil
}

// choosePath is choose's URL pattern, with a placeholder for the answer to each question.
var choosePath = "GET /api/choose/{" + catalog.Join(whichlock.Questions, "}/{", func(q whichlock.Question) string { return q.Name }) + "}"
