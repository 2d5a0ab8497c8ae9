package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"
)

// TestPictures takes the pictures for the README, from real runs in a real Chromium. The command make pictures
// runs it.
func TestPictures(t *testing.T) {
	dir := os.Getenv("GRABLAB_PICTURES")
	if dir == "" {
		t.Skip("GRABLAB_PICTURES names no folder: use make pictures")
	}
	browser := newBrowser(t)
	keep := func(name string, p *Page) {
		t.Helper()
		text := fewColours(t, p.Visible())
		t.Logf("%s: %d bytes", name, len(text))
		if len(text) > 60_000 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		if err := os.WriteFile(filepath.Join(dir, name+".png"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found := explored(t, "setnx", catalog.OneWinner, 2, catalog.Pause)
	url := start(t, lab.Config{Explore: func(context.Context, lab.Search) (report.Found, error) { return found, nil }, Workshop: class(t, nil)})

	live := browser.Open(t, url+"#live", Look{Width: 1180, Height: 640})
	live.Await("the lab", `!document.getElementById("start").disabled`)
	live.Click("#start")
	live.Await("a double-grab that is drawn", `document.querySelector("#tiles .double") && document.querySelector("#drawing svg .second")`)
	live.Click("#stop")
	live.Await("the end", `document.getElementById("start").textContent === "Start"`)
	live.Click("#tiles .double")
	live.Await("its drawing", `document.querySelector("#tiles .double[aria-pressed=true]") && document.querySelector("#drawing svg .second")`)
	keep("live", live)

	path := filepath.Join(t.TempDir(), "report.html")
	run, err := report.Load("../../../results/reference-matrix-local")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err == nil {
		err = report.HTML(f, run)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	heat := browser.Open(t, "file://"+path, Look{Width: 1180, Height: 640})
	heat.Await("the heat map", `!document.querySelector(".filters").hidden`)
	keep("matrix", heat)

	steps := browser.Open(t, url+"#schedules", Look{Width: 1180, Height: 640})
	steps.Await("the lab", `!document.getElementById("explore").disabled`)
	steps.Click("#explore")
	steps.Await("the drawing", `document.querySelector("#found svg[role=img] .second")`)
	eval[bool](steps, `(document.querySelector("#found h2").scrollIntoView(), true)`)
	keep("schedule", steps)
}
