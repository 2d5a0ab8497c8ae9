package lab_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/present/diagram"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/chromedp/chromedp/kb"
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil { // these tests mostly wait, so more can run than there are CPUs
		panic(err)
	}
	stacktest.Main(m, stacktest.Command{Name: fleet.Command, Run: instance.Main})
}

// TestViews tests the views of the page in a real Chromium. The tests run in parallel, because they mostly
// wait.
func TestViews(t *testing.T) {
	t.Parallel()
	browser := newBrowser(t)
	for name, test := range map[string]func(*testing.T, *Browser){"start": testStart, "live": testPage, "schedules": testSchedules, "meanings": testMeanings, "slow": testSlow, "located": testLocated} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, browser)
		})
	}
}

// start serves a lab until the test ends, and returns its URL.
func start(t *testing.T, cfg lab.Config) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Workshop == nil {
		cfg.Workshop = class(t, nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		cfg.Exe, cfg.Stack, cfg.Addr = exe, stack.Config{Kind: stack.Embedded}, "127.0.0.1:0"
		cfg.Ready, cfg.Say = func(url string) { ready <- url }, t.Logf
		ended <- lab.Serve(ctx, cfg)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the lab ends with %v", err)
			}
		case <-time.After(patience):
			t.Error("the lab did not end after its context")
		}
	})
	select {
	case url := <-ready:
		return url
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return ""
}

// stream subscribes to the events of the lab, and returns a channel with the ticks until the test ends.
func stream(t *testing.T, url string) <-chan lab.Tick {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	ticks := make(chan lab.Tick, 4096)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(ticks)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<22)
		for lines.Scan() {
			tick := lab.Tick{}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &tick) == nil {
				ticks <- tick
			}
		}
	})
	t.Cleanup(func() { cancel(); resp.Body.Close(); reading.Wait() })
	return ticks
}

// await returns the first tick for which holds returns true. The parameter what describes the condition.
func await(t *testing.T, what string, ticks <-chan lab.Tick, holds func(lab.Tick) bool) lab.Tick {
	t.Helper()
	var last lab.Tick
	for timeout := time.After(patience); ; {
		select {
		case tick, ok := <-ticks:
			if !ok {
				t.Fatalf("%s: the stream has ended; last was %+v", what, last)
			}
			if last = tick; holds(tick) {
				return tick
			}
		case <-timeout:
			t.Fatalf("%s: not within %v; last was %+v", what, patience, last)
		}
	}
}

// glimpse reports whether holds returns true for a tick within three seconds.
func glimpse(ticks <-chan lab.Tick, holds func(lab.Tick) bool) bool {
	for timeout := time.After(3 * time.Second); ; {
		select {
		case tick, ok := <-ticks:
			if !ok {
				return false
			}
			if holds(tick) {
				return true
			}
		case <-timeout:
			return false
		}
	}
}

func isIdle(tick lab.Tick) bool { return tick.Status.Phase == lab.Idle }

// token returns the token that the page contains.
func token(t *testing.T, url string) string {
	t.Helper()
	_, text := get(t, url)
	_, after, _ := strings.Cut(text, `name="lab-token" content="`)
	tok, _, _ := strings.Cut(after, `"`)
	if tok == "" {
		t.Fatalf("the page has no token: %s", text)
	}
	return tok
}

// ask sends a request, and returns the status and the body of the response.
func ask(t *testing.T, req *http.Request) (status int, text string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ask(t, req)
}

func post(t *testing.T, url, body string, header map[string]string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	if host := header["Host"]; host != "" {
		req.Host = host
	}
	return ask(t, req)
}

// TestLab tests the API of a lab without a browser.
func TestLab(t *testing.T) {
	t.Parallel()
	url := start(t, lab.Config{})
	ticks := stream(t, url+"/api/events")
	await(t, "ready", ticks, isIdle)
	tok := map[string]string{"X-Lab-Token": token(t, url)}

	t.Run("refuses", func(t *testing.T) {
		for _, tt := range []struct {
			name, path, body string
			header           map[string]string
			status           int
			says             string
		}{
			{"no token", "/api/start", `{}`, nil, 403, "earlier run of the lab"},
			{"another origin", "/api/start", `{}`, map[string]string{"X-Lab-Token": tok["X-Lab-Token"], "Origin": "http://evil.example"}, 403, "cross-origin"},
			{"another host", "/api/stop", `{}`, map[string]string{"X-Lab-Token": tok["X-Lab-Token"], "Host": "evil.example"}, 403, "does not accept the host name"},
			{"no strategy", "/api/start", `{"strategy":"x","fault":"none","rate":1}`, tok, 400, "there is no strategy"},
			{"no server for it", "/api/start", `{"strategy":"etcd","fault":"none","rate":1}`, tok, 400, "needs servers"},
			{"real locks", "/api/start", `{"strategy":"mysql-getlock","fault":"none","rate":1}`, tok, 400, "needs -stack local"},
			{"no fence", "/api/start", `{"strategy":"setnx","guard":"fenced","fault":"none","rate":1}`, tok, 400, "needs fencing tokens"},
			{"no rate", "/api/start", `{"strategy":"setnx","fault":"none","rate":0}`, tok, 400, "it must be from 1 to"},
			{"too many units", "/api/start", `{"strategy":"setnx","fault":"none","rate":1,"units":21}`, tok, 400, "an order has 21 units: it must have 1 to 20"},
			{"one unit", "/api/start", `{"strategy":"mysql-unique","fault":"none","rate":1,"units":2}`, tok, 400, "cannot sell several units"},
			{"no units", "/api/start", `{"strategy":"setnx","fault":"none","rate":1,"units":-1}`, tok, 400, "an order has -1 units: it must have 1 to 20"},
			{"no fault", "/api/start", `{"strategy":"setnx","fault":"partition","rate":1}`, tok, 400, "cannot inject the fault"},
			{"untouched", "/api/start", `{"strategy":"mysql-cas","fault":"redis-restart","rate":1}`, tok, 400, "does not affect"},
			{"no field", "/api/start", `{"strateg":"setnx"}`, tok, 400, "is not valid"},
			{"no order", "/api/hand", `{"do":"grab","who":"a"}`, tok, 400, "open one first"},
			{"no driver", "/api/hand", `{"do":"grab","who":"c"}`, tok, 400, "use a or b"},
		} {
			if status, text := post(t, url+tt.path, tt.body, tt.header); status != tt.status || !strings.Contains(text, tt.says) {
				t.Errorf("%s: status %d %s, want %d …%s…", tt.name, status, text, tt.status, tt.says)
			}
		}
	})
	t.Run("names are explained", func(t *testing.T) {
		if _, text := get(t, url+"/api/choices"); !strings.Contains(text, `"setnx":"SET NX PX`) || !strings.Contains(text, `"pause":"a process is paused`) {
			t.Errorf("the words are %s", text)
		}
	})
	t.Run("a listener who comes again", func(t *testing.T) {
		if status, text := post(t, url+"/api/hand", `{"do":"order","who":""}`, tok); status != 200 {
			t.Fatalf("POST /api/hand: status %d %s", status, text)
		}
		tick := await(t, "the order", ticks, func(tick lab.Tick) bool { return tick.Status.Hand > 0 })
		whole := await(t, "everything", stream(t, url+"/api/events"), func(lab.Tick) bool { return true })
		if len(whole.Tiles) != 1 || whole.Tiles[0].ID != tick.Status.Hand {
			t.Errorf("got %+v, want everything", whole)
		}
	})
	t.Run("by hand", func(t *testing.T) { // make two drivers win, as in F11, step by step
		do := func(what, who string) {
			t.Helper()
			if status, text := post(t, url+"/api/hand", `{"do":"`+what+`","who":"`+who+`"}`, tok); status != 200 {
				t.Fatalf("POST /api/hand %s %s: status %d %s", what, who, status, text)
			}
		}
		// A key lives only for a second, so the lab may miss it if the machine stalls. Then try another order.
		shown := func() bool {
			do("order", "")
			do("grab", "a")
			if !glimpse(ticks, func(tick lab.Tick) bool {
				return len(tick.Keys) == 1 && tick.Keys[0].Server == "redis" && tick.Keys[0].TTL > 0 && tick.Keys[0].Value != ""
			}) {
				return false
			}
			await(t, "its lease to end", ticks, func(tick lab.Tick) bool { return len(tick.Keys) == 0 })
			do("grab", "b")
			return glimpse(ticks, func(tick lab.Tick) bool { return len(tick.Keys) == 1 })
		}
		for tries := 1; !shown(); tries++ {
			if tries == 5 {
				t.Fatal("the keys of drivers A and B were not shown in five attempts")
			}
		}
		do("write", "b")
		await(t, "B to win", ticks, func(tick lab.Tick) bool { return tick.Status.Drivers["b"] == "grabbed" })
		do("write", "a")
		tick := await(t, "A to win, too", ticks, func(tick lab.Tick) bool { // an earlier attempt may have raised the alarm, so check the order
			return tick.Status.Alarm && strings.Contains(tick.Status.Answer, fmt.Sprintf("rder %d has 2 rows: ", tick.Status.Hand))
		})
		if !strings.Contains(tick.Status.Answer, "has 2 rows: driver B (") || !strings.Contains(tick.Status.Answer, "and driver A (") {
			t.Errorf("the headline is %q", tick.Status.Answer)
		}
		want := []string{`"k":"second"`, `"k":"gap"`, `"lost":`}
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // events arrive later than ledger rows
			_, text := get(t, fmt.Sprintf("%s/api/orders/%d", url, tick.Status.Hand))
			lacks := func(part string) bool { return !strings.Contains(text, part) }
			if !slices.ContainsFunc(want, lacks) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the drawing lacks a part of %s: %s", want, text)
			}
		}
	})
	t.Run("several units", func(t *testing.T) {
		if status, text := post(t, url+"/api/start", `{"strategy":"mysql-cas","fault":"none","rate":1000,"units":3}`, tok); status != 200 {
			t.Fatalf("POST /api/start: status %d %s", status, text)
		}
		soldOut := map[int64]bool{}
		tick := await(t, "orders to be sold out", ticks, func(tick lab.Tick) bool {
			for _, x := range tick.Tiles {
				if won := x.State == lab.Won; x.Units == 3 && won {
					soldOut[x.ID] = len(x.Rows) == 3
				} else if x.Units == 3 && (x.State != lab.Open || len(x.Rows) > 2) {
					t.Fatalf("order %d with %d rows is %s", x.ID, len(x.Rows), x.State)
				}
			}
			return len(soldOut) >= 20
		})
		for id, exactly := range soldOut {
			if !exactly {
				t.Errorf("order %d is won without 3 rows", id)
			}
		}
		if tick.Status.Alarm || !strings.HasSuffix(tick.Status.Answer, "are sold out, none beyond its units.") {
			t.Errorf("the headline is %q, alarm %v", tick.Status.Answer, tick.Status.Alarm)
		}
		if status, text := post(t, url+"/api/stop", `{}`, tok); status != 200 {
			t.Fatalf("POST /api/stop: status %d %s", status, text)
		}
	})
}

// watchTiles is a script that records when each tile turns red, in ms of the wall clock, and whether the
// page ever showed a key.
const watchTiles = `(() => {
	window.turned = {};
	new MutationObserver(() => { window.showedKey ||= document.querySelectorAll("#keys tbody tr").length > 0; }).observe(document.getElementById("keys"), { subtree: true, childList: true });
	new MutationObserver(() => {
		for (const b of document.querySelectorAll("#tiles .double")) window.turned[b.textContent.match(/\d+/)[0]] ??= Date.now();
	}).observe(document.getElementById("tiles"), { subtree: true, childList: true, attributes: true });
	return true;
})()`

// turnWithinASecond checks that tiles turn red within a second after the database wrote the second row. If
// GRABLAB_PROVE is 1, all tiles must do so. Otherwise, one is enough, because other programs can slow down
// the machine.
func turnWithinASecond(t *testing.T, p *Page, url string) {
	t.Helper()
	tick := await(t, "the instances", stream(t, url+"/api/events"), func(tick lab.Tick) bool { return len(tick.Status.Instances) > 0 })
	var all []time.Duration
	for id, turned := range eval[map[string]float64](p, `window.turned`) {
		_, text := get(t, fmt.Sprintf("http://127.0.0.1:%s/orders/%s", tick.Status.Instances[1], id))
		var order struct {
			Grabs []struct {
				At time.Time `json:"at"`
			} `json:"grabs"`
		}
		if err := json.Unmarshal([]byte(text), &order); err != nil || len(order.Grabs) < 2 {
			t.Fatalf("order %s, whose tile is red: %+v, %v", id, order, err)
		}
		all = append(all, time.UnixMilli(int64(turned)).Sub(order.Grabs[1].At))
	}
	slices.Sort(all)
	t.Logf("tiles turned red %v after the second row", all)
	judged := all[:1]
	if os.Getenv("GRABLAB_PROVE") == "1" {
		judged = all
	}
	for _, d := range judged {
		if d > time.Second || d < -time.Second {
			t.Errorf("a tile turned red %v after the second row", d)
		}
	}
}

// foreign is a script that returns the English texts and labels of the page, without names and code.
const foreign = `(() => {
	const english = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
	for (let n = walker.nextNode(); n; n = walker.nextNode()) {
		if ((n.nodeType === Node.TEXT_NODE ? n.parentElement : n).closest("code, pre, script, style, textarea, noscript, #keys tbody")) continue;
		const texts = n.nodeType === Node.TEXT_NODE ? [n.data] : [n.getAttribute("aria-label"), n.getAttribute("title"), n.dataset.none, n.dataset.label, n.dataset.meaning && n.id === "meaning" ? n.textContent : ""];
		for (const text of texts) if (/[a-z]{2,} [a-z]{2,}/i.test(text) && !/[\u3040-\u9fff]/.test(text) && !/^(Grab Lab|[\w-]+\.\w+:|(\w+ )?redis: |SET |EVAL)/.test(text.trim())) english.push(text.trim());
	}
	return [...new Set(english)].join("; ");
})()`

// noEnglish waits until all texts and labels of the page are translated. The page adds some of them a little
// later.
func noEnglish(t *testing.T, p *Page) {
	t.Helper()
	awaitValue(p, "no English text", foreign, func(left string) bool { return left == "" })
}

// setLanguage selects the language of a page.
func setLanguage(p *Page, lang string) {
	eval[bool](p, fmt.Sprintf(`(() => { const l = document.getElementById("language"); l.value = %q; return l.dispatchEvent(new Event("change")); })()`, lang))
}

// testStart checks the start view. A visitor presses one button, reads what happened and why, and runs the
// cure.
func testStart(t *testing.T, browser *Browser) {
	url := start(t, lab.Config{})
	for i, look := range []Look{{Height: 800}, {Width: 390, Height: 844, Dark: true, Calm: true}} {
		p := browser.Open(t, url, look)
		p.Await("the lab", `!document.getElementById("show-bug").disabled`)
		p.Fits()
		p.Screenshot(fmt.Sprintf("start-%d", i))
		if i > 0 {
			continue
		}
		if got := eval[string](p, `[...document.querySelectorAll("#cards b")].map((b) => b.textContent).join()`); got != "Live,Schedules,Workshop,Choose" {
			t.Errorf("the cards are %s", got)
		}
		text := func(id string) string {
			return eval[string](p, fmt.Sprintf(`document.querySelector(%q).textContent`, id))
		}
		p.Click("#show-bug")
		p.Await("the bug", `document.querySelector("#outcome .second") && !document.getElementById("run-cure").disabled`)
		if what, why := text("#what"), text("#outcome .why"); !strings.Contains(what, "was grabbed twice: driver ") || !strings.Contains(why, "was paused at ") || !strings.Contains(why, "its lease ran out at ") || !strings.Contains(why, " got the lock at ") || !strings.Contains(why, " wrote at ") {
			t.Errorf("the page shows the bug as %q, with the cause %q", what, why)
		}
		p.Fits()
		p.Screenshot("start-bug")
		p.Click("#home-drawing .full")
		p.Await("a drawing that fills the full screen, and no scroll bar", `(() => { const p = document.querySelector(".projector"); return p.scrollHeight <= innerHeight && p.querySelector(".legend").getBoundingClientRect().bottom > innerHeight - 40; })()`)
		p.Click("#home-drawing .full")
		p.Await("the page again", `!document.querySelector(".projector") && !document.fullscreenElement`)
		p.Click("#run-cure")
		p.Await("the cure", `document.querySelector("#outcome svg .refused") && document.getElementById("cure").hidden && !document.getElementById("show-bug").disabled`)
		if what, why := text("#what"), text("#outcome .why"); !strings.Contains(what, "has one winner: driver ") || !strings.Contains(why, "the database refused the write of") || strings.Count(why, " with token ") != 2 {
			t.Errorf("the page shows the cure as %q, with the cause %q", what, why)
		}
		if eval[bool](p, `["cured", "before"].some((id) => document.getElementById(id).hidden) || !document.querySelector("#what.good") || !document.querySelector("#before svg .second")`) {
			t.Error("the page does not show that the cure worked, or does not show what happened before")
		}
		p.Screenshot("start-cure")
		for _, in := range [][2]string{{"zh", "许多司机"}, {"ja", "多くのドライバー"}, {"en", "Many drivers"}} {
			lang, want := in[0], in[1]
			setLanguage(p, lang)
			p.Await(lang, fmt.Sprintf(`document.getElementById("home-answer").textContent.startsWith(%q) && document.documentElement.lang === %q`, want, lang))
			if lang != "en" {
				noEnglish(t, p)
				if what := text("#what") + text("#before-what"); strings.Contains(what, "driver") || strings.Contains(what, " and ") {
					t.Errorf("in %s, the page shows %q", lang, what)
				}
			}
			p.Screenshot("start-" + lang)
		}
	}
}

// testSlow checks that a run in slow motion and at a low rate injects the fault, and that the affected order
// shows the bug.
func testSlow(t *testing.T, browser *Browser) {
	p := browser.Open(t, start(t, lab.Config{})+"#live", Look{})
	p.Await("the lab", `!document.getElementById("start").disabled`)
	eval[bool](p, `(() => { const f = document.getElementById("controls"); f.rate.value = 20; f.slow.checked = true; f.requestSubmit(); return true; })()`)
	p.Await("a strike", `document.getElementById("strike").textContent.startsWith("pause strikes driver")`)
	p.Await("the bug", `document.querySelector("#tiles .double") && document.querySelector("#drawing svg .second")`)
	if got := eval[string](p, `document.getElementById("problem").textContent`); got != "" {
		t.Errorf("the page shows the problem %q", got)
	}
	if got := eval[string](p, `document.getElementById("watched").textContent`); !strings.Contains(got, "(setnx, guard naive, pause)") {
		t.Errorf("the title of the drawing is %q", got)
	}
}

// testPage checks what a user can do on the live page. The user starts a run, sees orders turn red,
// opens the drawing of an order, stops the run, grabs orders by hand, starts a search, and opens the
// page again.
func testPage(t *testing.T, browser *Browser) {
	url := start(t, lab.Config{Explore: func(_ context.Context, s lab.Search) (report.Found, error) {
		if s.Strategy != "setnx" {
			return report.Found{}, errors.New("the test must search only setnx")
		}
		drawn := diagram.Diagram{
			Title: "F11", Scale: diagram.InSteps, End: 2, Lanes: []diagram.Lane{{Name: "instance 1", Rows: []diagram.Row{{Name: "A", Marks: []diagram.Mark{{Kind: diagram.Read, At: 0.5}}}}}},
			Steps: []diagram.Step{{At: 0.5, Text: "reads", Stores: []string{"db: open"}}, {At: 1.5, Text: "writes", Stores: []string{"db: won by A"}, Lost: true}},
		}
		return report.Found{
			Answer: "setnx breaks one-winner in 2 steps.", Searched: []string{"2 actors"},
			Failures: []report.FoundPath{{Title: "setnx breaks one-winner", Lines: []string{"F11"}, Drawing: &drawn}},
		}, nil
	}})
	p := browser.Open(t, url+"#live", Look{})
	p.Await("the lab", `!document.getElementById("start").disabled`)
	p.Fits()
	eval[bool](p, watchTiles)
	p.Focus(`#controls [name="rate"]`)
	p.Press(kb.Enter) // starts
	p.Await("orders", `document.querySelectorAll("#tiles button").length >= 20`)
	p.Await("a double-grab", `document.querySelector("#tiles .double")`)
	p.Await("its drawing", `document.querySelector("#drawing svg .second")`)
	if os.Getenv("GRABLAB_PROVE") == "1" {
		p.Await("more of them", `Object.keys(window.turned).length >= 4`)
	}
	turnWithinASecond(t, p, url)
	if got := eval[bool](p, `document.getElementById("live-answer").classList.contains("alarm")`); !got {
		t.Errorf("the headline is not shown as an alarm: %s", eval[string](p, `document.getElementById("live-answer").textContent`))
	}
	p.Await("a key", `window.showedKey`)
	p.Screenshot("live")
	p.Press(kb.Tab)                                                           // a browser allows full screen only shortly after the user has pressed a key
	eval[bool](p, `(document.querySelector("#drawing .full").click(), true)`) // the page moves, so a click with the pointer could miss the button
	p.Await("only the drawing, with text 1.5 times as large", `(() => { const s = document.querySelector("#drawing .projector svg[role=img]"); return s && s.getAttribute("width") / s.viewBox.baseVal.width >= 1.45; })()`)
	p.Screenshot("projector")
	p.Press(kb.Escape)
	p.Await("the page", `!document.querySelector(".projector")`)
	p.Click("#stop")
	p.Await("the end of the run", `document.getElementById("stop").disabled && !document.getElementById("start").disabled`)
	p.Focus(`#tiles button[tabindex="0"]`)
	p.Press(kb.End)
	p.Press(kb.Enter)
	p.Await("the last order chosen", `document.querySelector('#tiles [aria-pressed="true"]') === document.activeElement`)

	p.Click("#new-order")
	p.Await("an order for two hands", `/order \d+: driver A at instance/.test(document.getElementById("hand-order").textContent)`)
	p.Click(`#hand div:nth-child(1) button:nth-of-type(1)`)
	p.Await("driver A inside", `/stops before its write/.test(document.getElementById("hand").textContent) && document.querySelector("#drawing svg .holds")`)
	p.Click(`#hand div:nth-child(1) button:nth-of-type(2)`)
	p.Await("driver A has won", `/grabbed/.test(document.querySelector("#hand div").textContent)`)

	eval[bool](p, `(Object.defineProperty(document, "hidden", { value: true, configurable: true }), document.dispatchEvent(new Event("visibilitychange")))`)
	was := eval[string](p, `document.getElementById("hand-order").textContent`)
	p.Click("#new-order")
	p.Await("the order to be opened", `!document.getElementById("new-order").disabled`)
	eval[bool](p, `(Object.defineProperty(document, "hidden", { value: false, configurable: true }), document.dispatchEvent(new Event("visibilitychange")))`)
	p.Await("what happened while the page was hidden", fmt.Sprintf(`document.getElementById("hand-order").textContent !== %q`, was))

	eval[bool](p, `(() => {
		const f = document.getElementById("controls");
		f.strategy.value = f.fault.value = "none";
		f.units.value = 2;
		f.strategy.dispatchEvent(new Event("change"));
		return true;
	})()`)
	p.Click("#start")
	p.Await("an order sold beyond its two units", `/✗ \d+ ([3-9])\/2/.test(document.querySelector("#tiles .double")?.textContent) && / rows and 2 units: driver /.test(document.getElementById("live-answer").textContent)`)
	p.Await("how the run before ended", `/setnx.*pause.*Orders with more than one row/.test(document.querySelector("#earlier li")?.textContent)`)
	p.Click("#stop")
	p.Await("the end of that", `document.getElementById("start").textContent === "Start"`)
	for _, text := range eval[[]string](p, `[...document.querySelectorAll("#tiles button")].filter((b) => /\//.test(b.textContent)).map((b) => b.className + " " + b.textContent)`) {
		var state, sign string
		var id, rows int
		if _, err := fmt.Sscanf(text, "%s %s %d %d/2", &state, &sign, &id, &rows); err != nil || (rows > 2) != (state == "double") || (rows == 2) != (state == "won") {
			t.Errorf("the tile of an order with two units is %q, %v", text, err)
		}
	}

	p.Press("2")
	p.Await("the next view", `!document.getElementById("schedules").hidden && document.getElementById("live").hidden && document.activeElement.id === "schedules" && /^Schedules/.test(document.title)`)
	p.Press("?")
	p.Await("the keys", `document.getElementById("key-list").open`)
	p.Press("1")
	p.Focus("#letters")
	p.Press(" ")
	p.Press(kb.Escape)
	p.Focus("#schedules")
	p.Press("1")
	p.Await("keys of one letter off, and while they are listed", `!document.getElementById("key-list").open && location.hash === "#schedules"`)
	p.Click("#explore")
	p.Await("what was found", `document.getElementById("schedules-answer").textContent === "setnx breaks one-winner in 2 steps."`)
	p.Await("the step where it is lost", `document.querySelector("#found .stepper output").textContent === "step 2 of 2" && document.activeElement.className === "stepper"`)
	p.Click("#found .full")
	p.Await("the steps in the full screen", `document.querySelector(".projector .stepper") === document.activeElement`)
	p.Press(kb.ArrowLeft)
	p.Await("the step before", `document.querySelector("#found .stepper output").textContent === "step 1 of 2"`)

	p.Click("#found .full")
	p.Await("the page again", `!document.querySelector(".projector")`)
	p.Screenshot("schedules")

	narrow := browser.Open(t, url+"#live", Look{Width: 390, Height: 844, Dark: true, Calm: true})
	narrow.Await("what had happened before it came", `document.querySelectorAll("#tiles button").length > 0 && document.querySelector("#drawing svg")`)
	narrow.Fits()
	narrow.Screenshot("live-390-dark")
	eval[bool](narrow, `import("./diagram.js").then(({ figure }) => {
		const lane = (n) => ({ name: "instance 800" + n, rows: [{ name: "driver " + n, marks: [{ k: "read", a: n }] }] });
		document.getElementById("drawing").append(figure({ title: "lone drivers", scale: "steps", end: 6, lanes: [lane(4), lane(5)], steps: [] }));
		return true;
	})`)
	narrow.Await("names of instances that do not overlap", `(() => { const [a, b] = [...document.querySelectorAll("#drawing > figure text.lane")].map((e) => e.getBoundingClientRect()); return b && a.right < b.left; })()`)
	if got := eval[string](narrow, `(() => { const f = document.getElementById("controls"); return [f.strategy.value, f.fault.value, f.units.value].join(); })()`); got != "none,none,2" {
		t.Errorf("the form has %s, want the settings of the last run, none,none,2", got)
	}
	const page = `getComputedStyle(document.body).backgroundColor`
	if got := eval[string](narrow, page); got != "rgb(22, 22, 22)" {
		t.Errorf("in the dark mode of the system, the page has the background %s", got)
	}
	narrow.Focus("#theme")
	narrow.Press("l") // light
	narrow.Await("light", page+` === "rgb(255, 255, 255)"`)
	eval[bool](narrow, `(document.documentElement.id = "before", location.reload(), true)`)
	narrow.Await("light again", `document.documentElement?.id !== "before" && document.getElementById("theme")?.value === "light" && `+page+` === "rgb(255, 255, 255)"`)
}
