package lab

import "testing"

func TestSummary(t *testing.T) {
	rows := []string{"driver 1 (8004)", "driver 2 (8005)"}
	won := Tile{ID: 6, Units: 1, State: Won, Rows: rows[:1]}
	double := Tile{ID: 7, Units: 1, State: Double, Rows: rows}
	soldOut := Tile{ID: 8, Units: 2, State: Won, Rows: rows}
	oversold := Tile{ID: 9, Units: 2, State: Double, Rows: append(rows, "driver 3 (8004)")}
	for _, tt := range []struct {
		tiles []Tile
		sums  totals
		want  string
		alarm bool
	}{
		{nil, totals{}, "Nothing runs. Start sends 5 drivers to each order, 100 grabs a second, with setnx and the guard naive; " + firstSettings.Fault.About() + ".", false},
		{[]Tile{won}, totals{opened: 1}, "1 of the last 1 orders are won, each by one driver.", false},
		{[]Tile{won, double}, totals{opened: 300, doubles: 1}, "Orders with more than one row: 1 of 300. Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{won}, totals{opened: 300, doubles: 3}, "Orders with more than one row: 3 of 300. 1 of the last 1 orders are won, each by one driver.", true},
		{[]Tile{double}, totals{opened: 1, doubles: 1}, "Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{double, won, double}, totals{opened: 3, doubles: 2}, "Orders with more than one row: 2 of 3. Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{soldOut}, totals{opened: 1}, "1 of the last 1 orders are sold out, none beyond its units.", false},
		{[]Tile{soldOut, oversold}, totals{opened: 2, doubles: 1}, "Orders with more rows than units: 1 of 2. Order 9 has 3 rows and 2 units: driver 1 (8004), driver 2 (8005) and driver 3 (8004) won.", true},
	} {
		text, alarm := summary(firstSettings, tt.tiles, tt.sums)
		if text != tt.want || alarm != tt.alarm {
			t.Errorf("got %q, alarm %v, want %q, alarm %v", text, alarm, tt.want, tt.alarm)
		}
	}
}
