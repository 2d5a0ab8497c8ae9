package lab_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/present/diagram"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"

	"github.com/chromedp/chromedp/kb"
)

// searches lists searches that find failure modes, with the expected state at the step of the failure.
var searches = []struct {
	mode, strategy, property string
	actors                   int
	fault                    catalog.Fault
	lost                     string // the new content of the stores at the step of the failure
	holds                    string // which drivers believe that they hold the lock then, and which do
}{
	{"F11", "setnx", catalog.OneWinner, 2, catalog.Pause, "db: won by B and by A", "believe that they hold: no driver; hold: B"},
	{"F34", "setnx-fence-write", catalog.OneWinner, 2, catalog.Pause, "db: won by A and by B", "believe that they hold: no driver; hold: B"},
	{"F5", "setnx-del", catalog.LeaseExclusive, 3, catalog.Slow, "redis: grab:setnx-del:{1} = token-1-2", "believe that they hold: B, C; hold: B, C"},
}

// bubble runs f in virtual time.
func bubble(t *testing.T) explore.Bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

// exploration searches for schedules in which a strategy breaks a property.
func exploration(t *testing.T, strategy, property string, actors int, f catalog.Fault) report.Exploration {
	t.Helper()
	cfg := explore.Config{Strategies: []string{strategy}, Actors: actors, Preemptions: 2, Faults: []catalog.Fault{f}, FaultCount: 1, Properties: []string{property}, Seconds: 60}
	results, err := explore.Search(t.Context(), bubble(t), cfg, func(explore.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	return report.Exploration{Config: cfg, Results: results, Replay: func(f explore.Failure) string {
		return fmt.Sprintf("loadgen explore -strategies %s -property %s", f.Schedule.Strategy, f.Property)
	}}
}

// explored returns what the explorer finds, in the form that loadgen lab uses.
func explored(t *testing.T, strategy, property string, actors int, f catalog.Fault) report.Found {
	t.Helper()
	return exploration(t, strategy, property, actors, f).Found()
}

// testSchedules tests the views Schedules and Choose. Each has its own lab, because all pages of one lab have
// the same language.
func testSchedules(t *testing.T, browser *Browser) {
	found := map[string]report.Found{}
	for _, s := range searches {
		found[s.strategy] = explored(t, s.strategy, s.property, s.actors, s.fault)
	}
	t.Run("choose", func(t *testing.T) {
		t.Parallel()
		url := start(t, lab.Config{})
		testChoose(t, browser, url)
	})
	t.Run("steps", func(t *testing.T) {
		t.Parallel()
		url := start(t, lab.Config{Explore: func(_ context.Context, s lab.Search) (report.Found, error) { return found[s.Strategy], nil }})
		testSteps(t, browser, url, found)
	})
}

// testSteps checks what the page shows at a step of a schedule, such as the changes in the stores. It visits
// the failure, the step before it and the first step at which a driver holds the lock.
func testSteps(t *testing.T, browser *Browser, url string, found map[string]report.Found) {
	p := browser.Open(t, url+"#schedules", Look{})
	for _, s := range searches {
		t.Run(s.mode, func(t *testing.T) {
			if len(found[s.strategy].Failures) == 0 || !strings.Contains(strings.Join(found[s.strategy].Failures[0].Lines, "\n"), s.mode+":") {
				t.Fatalf("the explorer finds %+v", found[s.strategy])
			}
			steps := found[s.strategy].Failures[0].Drawing.Steps
			lost := slices.IndexFunc(steps, func(s diagram.Step) bool { return s.Lost })
			p.Await("the form", `!document.getElementById("explore").disabled`)
			eval[bool](p, `(document.querySelector("#search [name=strategy]").value = "`+s.strategy+`", true)`)
			p.Focus("#explore")
			p.Press(kb.Enter)
			p.Await("what was found", fmt.Sprintf(`document.getElementById("schedules-answer").textContent.startsWith("%s breaks ") && document.activeElement.className === "stepper" && document.querySelector("#found svg .cursor")`, s.strategy))

			cursor := func() float64 {
				return eval[float64](p, `Number(document.querySelector("#found svg .cursor").getAttribute("x1"))`)
			}
			at := func(i int) {
				t.Helper()
				var fresh, gone []string
				for _, x := range steps[i].Stores {
					if !slices.Contains(steps[i-1].Stores, x) {
						fresh = append(fresh, x)
					}
				}
				for _, x := range steps[i-1].Stores {
					if !slices.Contains(steps[i].Stores, x) {
						gone = append(gone, x)
					}
				}
				for class, want := range map[string][]string{"new": fresh, "gone": gone} {
					if got := eval[[]string](p, `[...document.querySelectorAll("#found .now .`+class+`")].map((l) => l.textContent)`); !slices.Equal(got, want) {
						t.Errorf("%s at step %d: %q, want %q", class, i+1, got, want)
					}
				}
				want := fmt.Sprintf("step %d of %d lost: %v %s", i+1, len(steps), i == lost, strings.TrimSpace(steps[i].Who+" "+steps[i].Text))
				if got := eval[string](p, `document.querySelector("#found .stepper output").textContent + " lost: " + document.querySelector("#found .now").classList.contains("lost") + " " + document.querySelector("#found .now .what").textContent.trim()`); got != want {
					t.Errorf("the page shows the step %q, want %q", got, want)
				}
			}
			at(lost)
			if got := eval[string](p, `document.querySelector("#found .now").innerText`); !strings.Contains(got, "goes wrong here") || !strings.Contains(strings.ReplaceAll(got, " (changed)", ""), s.holds) || !strings.Contains(got, s.lost) {
				t.Errorf("at the step of the failure, the page shows %q, want %q and %q", got, s.lost, s.holds)
			}
			there := cursor()
			p.Press(kb.ArrowLeft)
			at(lost - 1)
			if back := cursor(); back >= there {
				t.Errorf("one step back, the cursor moves from %v to %v, want a smaller position", there, back)
			}
			p.Press("n")
			p.Press(kb.Home)
			p.Press("n")
			holder := slices.IndexFunc(steps[1:], func(s diagram.Step) bool { return len(s.Holds) > 0 }) + 1
			at(holder)
			p.Press("l")
			at(lost)
			setLanguage(p, "ja")
			noEnglish(t, p)
			setLanguage(p, "en")
		})
	}
}

// testMeanings checks that the page explains a word when the pointer is over it.
func testMeanings(t *testing.T, browser *Browser) {
	p := browser.Open(t, start(t, lab.Config{})+"#live", Look{})
	p.Await("a heading with its meaning", `document.querySelector("#keys th[data-meaning]") && document.querySelector("#outcomes dt[data-meaning], #controls label[data-meaning]")`)
	eval[bool](p, `(document.querySelector("#controls label[data-meaning]").dispatchEvent(new PointerEvent("pointerover", { bubbles: true })), true)`)
	p.Await("the meaning on hover", `!document.getElementById("meaning").hidden && document.getElementById("meaning").textContent.length > 20`)
}
