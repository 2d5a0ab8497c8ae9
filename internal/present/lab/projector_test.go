package lab_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"

	"github.com/chromedp/chromedp/kb"
)

// TestProjector shows a schedule in full screen, on a small and on a large projector. At every step,
// everything must fit on the screen and be large enough for viewers at the back of a room.
func TestProjector(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	found := explored(t, "setnx", catalog.OneWinner, 2, catalog.Pause)
	url := start(t, lab.Config{Explore: func(context.Context, lab.Search) (report.Found, error) { return found, nil }})
	for _, look := range []Look{{Width: 1280, Height: 720}, {Width: 1920, Height: 1080}} {
		p := browser.Open(t, url+"#schedules", look)
		p.Await("the lab", `!document.getElementById("explore").disabled`)
		p.Click("#explore")
		p.Await("the drawing", `document.querySelector("#found svg[role=img] .second")`)
		eval[bool](p, `(document.querySelector("#found .full").click(), true)`)
		p.Await("the full screen", `document.querySelector(".projector .stepper") === document.activeElement`)
		least := 1.5 * 12 * float64(look.Height) / 720
		if got := eval[float64](p, `parseFloat(getComputedStyle(document.querySelector(".projector .legend")).fontSize)`); got < least {
			t.Errorf("%d px high: the legend has %v px, want at least %v", look.Height, got, least)
		}
		if got := eval[float64](p, `document.querySelector(".projector .legend svg").getBoundingClientRect().height`); got < least*26/18 {
			t.Errorf("%d px high: the signs of the legend are %v px high, want at least %v", look.Height, got, least*26/18)
		}
		p.Press(kb.Home)
		p.Await("the first step", `/^step 1 of/.test(document.querySelector(".projector .stepper output").textContent)`)
		for range eval[int](p, `document.querySelectorAll(".projector tbody tr").length`) {
			if wrong := eval[string](p, cutOff); wrong != "" {
				t.Errorf("%d px high: %s", look.Height, wrong)
			}
			p.Press(kb.ArrowRight)
		}
		p.Screenshot(fmt.Sprintf("projector-%d", look.Height))
		p.Click(".projector svg[role=img]")
		p.Press(kb.Home)
		p.Await("steps after a click on the drawing", `/^step 1 of/.test(document.querySelector(".projector .stepper output").textContent)`)
		p.Press(kb.Escape)

		eval[bool](p, fiveDrivers)
		p.Await("the drawing", `document.querySelector("#found > figure svg[role=img]")`)
		eval[bool](p, `(document.querySelector("#found > figure .full").click(), true)`)
		p.Await("the full screen of five drivers", `document.querySelector(".projector .legend li:nth-child(5)")`)
		p.Screenshot(fmt.Sprintf("projector-five-%d", look.Height))
		if wrong := eval[string](p, cutOff); wrong != "" {
			t.Errorf("%d px high, five drivers: %s", look.Height, wrong)
		}
	}
}

// fiveDrivers is a script that draws an order of five drivers with a long explanation and a long state.
const fiveDrivers = `import("./diagram.js").then(({ figure }) => {
	const driver = (n) => ({ name: "driver " + n, marks: ["read", "sent", "denied", "released", "won", "second", "late", "leaseend"].map((k, i) => ({ k, a: n + 7 * i })) });
	const lanes = [{ name: "8004", rows: [driver(1), driver(2), driver(3)] }, { name: "8005", rows: [driver(4), driver(5)] }];
	const steps = [{ at: 20, clock: "20 ms", who: "driver 1", text: "writes itself as the winner", believed: "has won the order", true: "driver 1 inside without the lock; order grabbed 2 times: by driver 3 and driver 1", lost: true }];
	const cause = { en: "Driver 1 was paused at 1 ms; its lease ran out at 1,000 ms; driver 3 got the lock at 1,041 ms; driver 3 won at 1,048 ms; driver 1 wrote at 1,196 ms without noticing." };
	document.getElementById("found").replaceChildren(figure({ title: "five drivers", scale: "ms", end: 70, lost: 20, lanes, steps, cause }));
	return true;
})`

// cutOff is a script that names a part of the full screen that is hidden, is cut off or covers another part.
// It returns "" if there is none.
const cutOff = `(() => {
	const parts = ["figcaption", "svg[role=img]", ".why", ".legend", ".stepper", ".now"].map((name) => [name, document.querySelector(".projector " + name).getBoundingClientRect()]);
	for (const [name, r] of parts) {
		if (r.height < 20) return name + " is hidden";
		if (r.bottom > innerHeight || r.right > innerWidth || r.top < 0) return name + " is cut off at " + document.querySelector(".projector output").textContent + ": it ends at " + r.bottom;
		for (const [other, o] of parts) if (other !== name && r.left < o.right && o.left < r.right && r.top < o.bottom && o.top < r.bottom) return name + " covers " + other;
	}
	return "";
})()`

// TestLabelOfTheLoss checks that the axis names the time at which an order goes wrong, even if the
// recording ends soon afterwards. No label may cover another one.
func TestLabelOfTheLoss(t *testing.T) {
	t.Parallel()
	p := newBrowser(t).Open(t, start(t, lab.Config{})+"#live", Look{Width: 1180})
	p.Await("the lab", `!document.getElementById("start").disabled`)
	for before := 4400; before < 4444; before += 2 {
		eval[bool](p, fmt.Sprintf(`import("./diagram.js").then(({ figure }) => {
			const marks = [3, 21, 1000, 2273, 3273, 3406, %d, 4444].map((a) => ({ k: "read", a }));
			document.getElementById("earlier").replaceChildren(figure({ title: "a loss near the end", scale: "ms", end: 4445, lost: 4444, lanes: [{ name: "8004", rows: [{ name: "driver 1", marks }] }], steps: [] }));
			return true;
		})`, before))
		p.Await("the drawing", `document.querySelector("#earlier figure .tick")`)
		if got := eval[[]string](p, `[...document.querySelectorAll("#earlier figure .tick")].map((e) => e.textContent)`); !slices.Contains(got, "4,444 ms") {
			t.Errorf("an event at %d ms: the axis has %q, but not the time of the loss", before, got)
		}
		if got := eval[string](p, `(() => { const all = [...document.querySelectorAll("#earlier figure .tick")].map((e) => [e.textContent, e.getBoundingClientRect()]).sort((a, b) => a[1].left - b[1].left);
			return all.filter(([, r], i) => i > 0 && all[i - 1][1].right > r.left).map(([text]) => text).join(); })()`); got != "" {
			t.Errorf("an event at %d ms: %s covers the label before it", before, got)
		}
	}
}
