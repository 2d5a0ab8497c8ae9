package lab

import (
	"strings"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// What a tile of an order shows, by the rows of the ledger and by what drivers were told.
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
		answers []string // in the order of time; "": none came
		partly  bool     // more are to come
		want    State
		says    string
	}{
		{"nobody came", 3, 0, nil, true, Open, "0 of the last 1 orders are sold out"},
		{"some are left", 3, 2, []string{sale, sale}, true, Open, "0 of the last 1"},
		{"sold out", 3, 3, []string{sale, sale, sale, refusal}, false, Won, "1 of the last 1 orders are sold out, none beyond"},
		{"oversold", 3, 4, []string{sale, sale, sale, sale}, false, Double, "Order 7 has 4 rows and 3 units: drivers 1 (8004), 2 (8004), 3 (8004) and 4 (8004) won."},
		{"undersold", 3, 2, []string{sale, sale, refusal}, false, Undersold, "Order 7 is undersold: 2 of 3 units"},
		{"undersold by an error", 3, 2, []string{sale, sale, ""}, false, Undersold, "Order 7 is undersold"},
		{"not all have been answered", 3, 2, []string{sale, sale, refusal}, true, Open, "0 of the last 1"},
		{"refused before the last sale", 3, 2, []string{sale, refusal, sale}, false, Open, "0 of the last 1"},
		{"who is to ask again is not refused", 3, 2, []string{sale, sale, busy}, false, Open, "0 of the last 1"},
		{"one unit", 1, 1, []string{sale, refusal}, false, Won, "1 of the last 1 orders are won, each by one driver."},
		{"one unit twice", 1, 2, []string{sale, sale}, false, Double, "Order 7 has 2 rows: driver 1 (8004) and driver 2 (8004) won."},
		{"one unit and no row", 1, 0, []string{refusal}, false, Open, "0 of the last 1 orders are won"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub()
			h.begin(Settings{Strategy: "redis-stock", Units: tt.units})
			h.open(7, 1)
			for i, body := range tt.answers {
				r := &vegeta.Result{URL: "http://a#7,1,8", Timestamp: time.Unix(int64(i), 0), Code: codes[body], Body: []byte(body), Error: "read: EOF"}
				h.answer(r, r.Timestamp)
			}
			var rows []order.Grab
			for i := range tt.rows {
				rows = append(rows, order.Grab{Order: 7, Driver: int64(i + 1), Instance: "8004"})
			}
			h.ledger(7, rows)
			if !tt.partly {
				h.allAnswered(7, 1)
			}
			tick := h.tickLocked(true)
			if got := tick.Tiles[0]; got.State != tt.want || got.Units != tt.units {
				t.Errorf("it is %s of %d units, want %s", got.State, got.Units, tt.want)
			}
			if !strings.Contains(tick.Status.Answer, tt.says) || tick.Status.Alarm != (tt.want == Double) {
				t.Errorf("it says %q, alarm %v, want %q", tick.Status.Answer, tick.Status.Alarm, tt.says)
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
