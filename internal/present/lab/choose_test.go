package lab_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// testChoose checks that four answers, given with the keyboard, lead to suitable locks. The address of the
// page must then lead to the same locks.
func testChoose(t *testing.T, browser *Browser, url string) {
	p := browser.Open(t, url+"#choose", Look{})
	p.Await("the questions", `document.querySelectorAll("#questions fieldset").length === 4`)
	p.Focus("#questions [name=rows]")
	p.Press(" ")
	p.Press(kb.ArrowDown) // answer: two drivers may never win, and a conditional UPDATE is not possible
	p.Focus("#questions [name=runs]")
	p.Press(" ")
	p.Press(kb.ArrowDown) // answer: one Redis
	p.Focus("#questions [name=work]")
	p.Press(" ")
	p.Press(kb.ArrowDown) // answer: longer than the lease
	p.Focus("#questions [name=stack]")
	p.Press(" ")
	p.Press(kb.ArrowDown) // answer: Go
	p.Await("what fits", `location.hash === "#choose/never/redis/longer/go" && document.querySelectorAll(".option").length === 3 && document.querySelector(".option h2").textContent === "1. handoff"`)
	text := eval[string](p, `document.querySelector(".option").innerText`)
	for _, want := range []string{"1. handoff", "fenced", "round trips", "commands of Redis", "two drivers inside the lock under pause", "no driver can grab any more under hang", "in your stack", `import "grablab/handoff"`, "loadgen run -stack local -strategies handoff -faults all"} {
		if !strings.Contains(text, want) {
			t.Errorf("the first lock's text does not contain %q:\n%s", want, text)
		}
	}
	if got := eval[string](p, `document.getElementById("choose-sources").innerText`); !strings.Contains(got, "results/reference-matrix-local") || !strings.Contains(got, "results/reference-bench-local") {
		t.Errorf("the sources are %q, want the reference matrix and benchmark", got)
	}
	if got := eval[string](p, `document.getElementById("duties").innerText`); !strings.Contains(got, "fence = :token") || strings.Contains(got, "RowsAffected") || !strings.Contains(got, "UNIQUE (order_id)") {
		t.Errorf("the duties of the user are %q", got)
	}
	p.Fits()
	p.Screenshot("choose")
	setLanguage(p, "ja")
	if got := eval[string](p, `document.getElementById("options").innerText + document.getElementById("duties").innerText`); !strings.Contains(got, "先着順") || !strings.Contains(got, "フェンシングトークンを書き込みの WHERE に入れます") {
		t.Errorf("in Japanese, the page shows %q", got)
	}
	noEnglish(t, p)
	if got := eval[string](p, `document.getElementById("choose-sources").innerText`); strings.Contains(got, " and ") {
		t.Errorf("in Japanese, the sources are %q", got)
	}
	setLanguage(p, "en")
	narrow := browser.Open(t, url+"#choose/may/redis/endless/java", Look{Width: 390, Height: 844, Dark: true})
	narrow.Await("what fits", `document.querySelectorAll(".option").length === 3 && document.querySelector("#questions [name=work]:checked").value === "endless"`)
	narrow.Fits()
	narrow.Screenshot("choose-390-dark")
}
