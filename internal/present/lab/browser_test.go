package lab_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/testbed/wait"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is a headless Chromium. It stops at the end of the test.
type Browser struct{ ctx context.Context }

// newBrowser starts a headless Chromium that runs until the test ends. If Chromium is not installed, newBrowser skips
// the test, or fails it if GRABLAB_REQUIRE_SERVERS is 1.
func newBrowser(t *testing.T) *Browser {
	t.Helper()
	options := chromedp.DefaultExecAllocatorOptions[:]
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	switch err := chromedp.Do(ctx); {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("GRABLAB_REQUIRE_SERVERS") != "1":
		t.Skip("there is no chromium on PATH, which this test looks at pages with: make tools")
	case err != nil:
		t.Fatalf("chromium: %v: make tools", err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("chromium does not end: %v", err)
		}
		closeBrowser()
		closeAllocator()
	})
	return &Browser{ctx}
}

// Look describes how a page is shown: the window size and the user's preferences.
type Look struct {
	Width, Height int  // the default is 1280 x 900
	Dark          bool // whether the user prefers dark colours
	Calm          bool // whether the user prefers reduced motion
}

// Page is a web page that a test has opened in the browser.
type Page struct {
	ctx context.Context
	t   *testing.T

	mu   sync.Mutex
	said []string
}

// patience is how long a test waits for a page or for results. It is long because a run that takes
// seconds can take minutes on a slow machine.
const patience = 3 * time.Minute

// Open opens a page. The test fails if the page writes to the console, throws an error, or contacts
// any other site.
func (b *Browser) Open(t *testing.T, url string, look Look) *Page {
	t.Helper()
	ctx, closePage := chromedp.NewContext(b.ctx)
	p := &Page{ctx: ctx, t: t}
	t.Cleanup(func() {
		closePage()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.said {
			t.Error(s)
		}
	})
	own, _, _ := strings.Cut(url, "#")
	if rest, web := strings.CutPrefix(own, "http://"); web {
		host, _, _ := strings.Cut(rest, "/")
		own = "http://" + host
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				p.say("the page says %s: %s%s", e.Type, a.Value, a.Description)
			}
		case *runtime.EventExceptionThrown:
			p.say("the page throws: %+v", e.ExceptionDetails.Exception)
		case *log.EventEntryAdded:
			p.say("the browser says of the page: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, own) && !strings.HasPrefix(u, "data:") {
				p.say("the page asks for %s", u)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	scheme := map[bool]string{false: "light", true: "dark"}[look.Dark]
	motion := map[bool]string{false: "no-preference", true: "reduce"}[look.Calm]
	send(p, network.Enable, network.EnableParams{})
	send(p, runtime.Enable, cdp.Empty{})
	send(p, log.Enable, cdp.Empty{})
	send(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}) // needed because other pages are open at the same time
	send(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(cmp.Or(look.Width, 1280)), Height: int64(cmp.Or(look.Height, 900)), DeviceScaleFactor: 1})
	send(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}},
	})
	p.Do(chromedp.Navigate(url))
	return p
}

func (p *Page) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, fmt.Sprintf(format, args...))
}

func send[P, R any](p *Page, command cdp.Command[P, R], params P) {
	p.t.Helper()
	within(p, func(ctx context.Context) (R, error) { return chromedp.Call(ctx, command, params) })
}

// within calls do with a timeout, because a page may hang. If do fails, it ends the test.
func within[T any](p *Page, do func(context.Context) (T, error)) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	got, err := do(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// Do performs actions in order, and ends the test if one of them fails.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	within(p, func(ctx context.Context) (none struct{}, err error) { return none, chromedp.Do(ctx, actions...) })
}

// Focus moves the keyboard focus to the element with this CSS selector.
func (p *Page) Focus(selector string) {
	p.t.Helper()
	p.find(selector, chromedp.Focus)
}

// Click clicks the element with this CSS selector.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.find(selector, chromedp.Click)
}

// find performs an action on a page element. If a script replaces the element meanwhile, find
// retries with the new one.
func (p *Page) find(selector string, action func(chromedp.CSS, ...chromedp.QueryOption) chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	within(p, func(ctx context.Context) (none struct{}, err error) {
		for {
			err = chromedp.Do(ctx, action(chromedp.CSS(selector)))
			if err == nil || !isReplacedElement(err) || !wait.For(ctx, 20*time.Millisecond) {
				return none, err
			}
		}
	})
}

// isReplacedElement reports whether the error means that an element has disappeared from the page.
func isReplacedElement(err error) bool {
	texts := []string{"Could not find node with given id", "No node with given id found", "Node is detached from document", "Could not compute box model", "Node does not have a layout object"}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// eval returns the value of a JavaScript expression on the page.
func eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return within(p, func(ctx context.Context) (T, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	})
}

// Await waits until a JavaScript expression is true. If this takes too long, it ends the test with
// an error that begins with the given description.
func (p *Page) Await(what, expression string) {
	p.t.Helper()
	awaitValue(p, what, "Boolean("+expression+")", func(done bool) bool { return done })
}

// awaitValue waits until done accepts the value of a JavaScript expression. If this takes too long,
// it ends the test with an error that contains the given description and the last value.
func awaitValue[T any](p *Page, what, expression string, done func(T) bool) {
	p.t.Helper()
	pause := 10 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		got := eval[T](p, expression)
		if done(got) {
			return
		}
		pause = min(2*pause, 200*time.Millisecond) // poll less often during a long wait, to leave the CPU to the program under test
		if time.Now().After(end) {
			p.t.Fatalf("%s: not within %v, but %v; the page has %q", what, patience, got, eval[string](p, "document.body.innerText.slice(0, 600)"))
		}
	}
}

// Press presses keys on the page. Special keys such as Tab are in the chromedp package kb.
func (p *Page) Press(keys string) {
	p.t.Helper()
	p.Do(chromedp.KeyEvent(keys))
}

// Fits fails the test if the page is wider than the window, because users would have to scroll
// sideways.
func (p *Page) Fits() {
	p.t.Helper()
	if wide := eval[string](p, `(() => { const w = document.documentElement; if (w.scrollWidth <= w.clientWidth) return "";
		const out = [...document.querySelectorAll("body *")].find((e) => e.getBoundingClientRect().right > w.clientWidth + 1 && !e.closest(".scroll"));
		return w.scrollWidth + " px in " + w.clientWidth + ": " + (out ? out.outerHTML.slice(0, 200) : "") })()`); wide != "" {
		p.t.Errorf("the page is wider than its window: %s", wide)
	}
}

// Screenshot saves an image of the page in the folder from GRABLAB_SCREENSHOTS. If that variable is
// empty, it does nothing.
func (p *Page) Screenshot(name string) {
	p.t.Helper()
	dir := os.Getenv("GRABLAB_SCREENSHOTS")
	if dir == "" {
		return
	}
	png := within(p, func(ctx context.Context) ([]byte, error) { return chromedp.Run(ctx, chromedp.FullScreenshot(100)) })
	if err := os.WriteFile(dir+"/"+name+".png", png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// Visible returns a PNG image of the visible part of the page.
func (p *Page) Visible() []byte {
	p.t.Helper()
	return within(p, func(ctx context.Context) ([]byte, error) { return chromedp.Run(ctx, chromedp.CaptureScreenshot()) })
}
