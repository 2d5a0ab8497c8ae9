package check

import (
	"cmp"
	"fmt"
	"slices"

	"grablab/internal/history"
)

var effectsApart = Checker{
	Name:  "effects-apart",
	About: "no two claims of one order that wrote were in flight at the same instant",
	Check: named("effects-apart", func(e Evidence) Verdict {
		if e.Record == nil {
			return unknown("nobody recorded the claims")
		}
		var sure []Effect
		for _, effect := range e.Record.Effects {
			if effect.Sure {
				sure = append(sure, effect)
			}
		}
		if a, b, n := together(sure); n > 0 {
			return fail(fmt.Sprintf("%s another of its order was in flight: on order %d those of driver %d (instance %s) and driver %d (instance %s)",
				plural(n, "claim wrote while", "claims wrote while"), a.Order, a.Driver, a.Instance, b.Driver, b.Instance),
				slices.Concat(a.events(), b.events())...)
		}
		if e.Record.Lost > 0 {
			return unknown(plural(e.Record.Lost, "event was lost", "events were lost"))
		}
		if a, b, n := together(e.Record.Effects); n > 0 {
			return unknown(fmt.Sprintf("on order %d nobody knows whether driver %d or driver %d wrote, whose claims were in flight together",
				a.Order, a.Driver, b.Driver))
		}
		return pass(fmt.Sprintf("%s, none while another of its order was in flight", plural(len(sure), "claim wrote", "claims wrote")))
	}),
}

// together counts the effects that began while an earlier one of their order
// was in flight, and returns the first pair.
func together(effects []Effect) (first, second Effect, n int) {
	effects = slices.SortedFunc(slices.Values(effects), func(a, b Effect) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.From, b.From), cmp.Compare(a.Driver, b.Driver))
	})
	var longest Effect // of those before, the one that returns last
	for i, e := range effects {
		same := i > 0 && e.Order == longest.Order
		if same && e.From < longest.To {
			if n++; n == 1 {
				first, second = longest, e
			}
		}
		if !same || e.To > longest.To {
			longest = e
		}
	}
	return first, second, n
}

// events that bound the claim.
func (e Effect) events() []history.Event {
	invoke := history.Event{
		T: e.From, Instance: e.Instance, Kind: history.Invoke, Op: history.Claim,
		Order: e.Order, Driver: e.Driver, Token: e.Token, Fence: e.Fence,
	}
	if e.To == never {
		return []history.Event{invoke}
	}
	end := invoke
	end.T, end.Kind = e.To, history.Info
	if e.Sure {
		end.Kind = history.OK
	}
	return []history.Event{invoke, end}
}
