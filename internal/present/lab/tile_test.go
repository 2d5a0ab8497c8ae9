package lab

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/present/diagram"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestTileState checks what the tile of an order shows for given ledger rows and answers to drivers.
func TestTileState(t *testing.T) {
	const (
		sale    = `{"outcome":"grabbed"}`
		refusal = `{"outcome":"taken"}`
		busy    = `{"outcome":"busy"}`
	)
	codes := map[string]uint16{sale: 200, refusal: 409, busy: 423}
	for _, tt := range []struct {
		name    string
		units   int
		rows    int
		answers []string // "" means that the request failed
		want    State
		says    string
	}{
		{"no driver came", 3, 0, nil, Open, "0 of the last 1 orders are sold out"},
		{"some are left", 3, 2, []string{sale, sale, busy, ""}, Open, "0 of the last 1"},
		{"sold out", 3, 3, []string{sale, sale, sale, refusal}, Won, "1 of the last 1 orders are sold out, none beyond"},
		{"oversold", 3, 4, []string{sale, sale, sale, sale}, Double, "Order 7 has 4 rows and 3 units: driver 1 (8004), driver 2 (8004), driver 3 (8004) and driver 4 (8004) won."},
		{"one unit", 1, 1, []string{sale, refusal}, Won, "1 of the last 1 orders are won, each by one driver."},
		{"one unit twice", 1, 2, []string{sale, sale}, Double, "Order 7 has 2 rows: driver 1 (8004) and driver 2 (8004) won."},
		{"one unit and no row", 1, 0, []string{refusal}, Open, "0 of the last 1 orders are won"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newState()
			h.begin(Settings{Strategy: "redis-stock", Units: tt.units})
			h.open(7, 1)
			for i, body := range tt.answers {
				r := &vegeta.Result{URL: "http://a#7,1,8", Timestamp: time.Unix(int64(i), 0), Code: codes[body], Body: []byte(body), Error: "read: EOF"}
				h.recordAnswer(r, r.Timestamp)
			}
			var rows []order.Grab
			for i := range tt.rows {
				rows = append(rows, order.Grab{Order: 7, Driver: int64(i + 1), Instance: "8004"})
			}
			h.recordRows(7, rows)
			tick := h.tick()
			if got := tick.Tiles[0]; got.State != tt.want || got.Units != tt.units {
				t.Errorf("the tile is %s with %d units, want %s with %d", got.State, got.Units, tt.want, tt.units)
			}
			if !strings.Contains(tick.Status.Answer, tt.says) || tick.Status.Alarm != (tt.want == Double) {
				t.Errorf("the headline is %q, alarm %v, want %q", tick.Status.Answer, tick.Status.Alarm, tt.says)
			}
			told := map[string]int{}
			for _, body := range tt.answers {
				told[body]++
			}
			if tick.Outcomes[string(grab.Grabbed)] != told[sale] || tick.Outcomes[string(grab.Taken)] != told[refusal] || tick.Outcomes[string(grab.Busy)] != told[busy] {
				t.Errorf("the answers are counted as %v", tick.Outcomes)
			}
		})
	}
}

// TestEveryOutcome checks the outcome under which the lab counts each answer of an instance. It also
// checks that the page shows every count, and has a sign and a colour for every state.
func TestEveryOutcome(t *testing.T) {
	var seen []grab.Outcome
	for _, tt := range []struct {
		code uint16
		body string
		want grab.Outcome
	}{
		{200, "grabbed", grab.Grabbed}, {409, "taken", grab.Taken}, {423, "busy", grab.Busy}, {504, "timeout", grab.Timeout},
		{500, "error", grab.Failed}, {0, "", grab.Failed}, {404, "", grab.Failed}, {503, "", grab.Failed},
	} {
		seen = append(seen, tt.want)
		if got := outcomeOf(&vegeta.Result{Code: tt.code, Body: fmt.Appendf(nil, `{"outcome":%q}`, tt.body)}); got != string(tt.want) {
			t.Errorf("%d %q counts as %s, want %s", tt.code, tt.body, got, tt.want)
		}
	}
	page := map[string]string{}
	for _, name := range []string{"live.js", "lab.css"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page[name] = string(text)
	}
	var quoted []string
	for _, o := range grab.Outcomes {
		if quoted = append(quoted, strconv.Quote(string(o))); !slices.Contains(seen, o) {
			t.Errorf("no answer counts as %s", o)
		}
	}
	if list := "const names = [" + strings.Join(quoted, ", ") + "];"; !strings.Contains(page["live.js"], list) {
		t.Errorf("the page does not count %s", list)
	}
	sign := regexp.MustCompile(`const sign = ({.*})\[t.state\]`).FindString(page["live.js"])
	for state, of := range map[State]string{Open: "·", Won: "✓", Double: "✗"} {
		if !strings.Contains(sign, fmt.Sprintf("%s: %q", state, of)) {
			t.Errorf("%s has no sign %s in %q", state, of, sign)
		}
		if state != Open && !strings.Contains(page["lab.css"], fmt.Sprintf(".tiles .%s {", state)) {
			t.Errorf("%s has no colour", state)
		}
	}
}

// TestMoreEventsThanAreKept checks the drawing of an order with more events than the lab keeps. A note must
// state how many events are not drawn, and the drawing must end at the last event that is.
func TestMoreEventsThanAreKept(t *testing.T) {
	h := newState()
	h.begin(Settings{Strategy: "watchdog"})
	h.open(7, 1)
	event := func(n int, kind history.Kind, op string) {
		h.record(history.Event{T: time.Duration(n) * time.Millisecond, Kind: kind, Op: op, Order: 7, Driver: 1, Instance: "8004", Incarnation: 1, Lease: time.Second})
	}
	event(0, history.Invoke, history.Grab)
	event(1, history.OK, history.Acquire)
	for n := 2; n < maxTileEvents+40; n++ {
		event(n, history.OK, history.Renew)
	}
	event(maxTileEvents+40, history.OK, history.Grab)
	r, _ := h.runOf(7)
	d := diagram.OfRun(r)
	if want := "not drawn: 41 more events of this order"; !slices.Contains(d.Notes, want) {
		t.Errorf("notes %q, want %q", d.Notes, want)
	}
	if tile := h.tiles[0]; tile.Events != maxTileEvents+41 || tile.Open != 0 || d.End != maxTileEvents-1 {
		t.Errorf("%d events, %d drivers are not answered, drawn to %v", tile.Events, tile.Open, d.End)
	}
}

// TestDoublesAreCounted checks that the headline counts the double grabs of the whole run, although the page
// shows only the last orders.
func TestDoublesAreCounted(t *testing.T) {
	h := newState()
	h.begin(Settings{Strategy: "setnx"})
	o := h
	twice := func(id int64) {
		o.recordRows(id, []order.Grab{{Order: id, Driver: 1}, {Order: id, Driver: 2}})
		o.recordRows(id, []order.Grab{{Order: id, Driver: 1}, {Order: id, Driver: 2}, {Order: id, Driver: 3}})
	}
	o.open(1, 2)
	twice(1)
	o.open(3, maxTiles)
	o.openByHand(100)
	twice(100)
	tick := h.tick()
	if want := fmt.Sprintf("Orders with more than one row: 2 of %d. ", maxTiles+3); !strings.HasPrefix(tick.Status.Answer, want) || !tick.Status.Alarm {
		t.Errorf("the headline is %q, want %q", tick.Status.Answer, want)
	}
}

// TestAnswersByHandBelongToOneOrder checks that the answers to grabs by hand disappear at the next
// order and at the next run. This must be so even if an answer arrives late.
func TestAnswersByHandBelongToOneOrder(t *testing.T) {
	s := newState()
	for name, next := range map[string]func(){"order": func() { s.openByHand(8) }, "run": s.clear} {
		s.openByHand(7)
		s.startGrab("a")
		s.setAnswer(7, "b", "taken")
		if s.status.Drivers["b"] != "taken" {
			t.Errorf("driver B was answered, but the page shows %v", s.status.Drivers)
		}
		next()
		s.setAnswer(7, "a", "grabbed")
		if got := s.status.Drivers; got["a"] != "" || got["b"] != "" {
			t.Errorf("the next %s begins with the answers %v", name, got)
		}
	}
}
