package lab

import "testing"

func TestSummary(t *testing.T) {
	rows := []string{"driver 1 (8004)", "driver 2 (8005)"}
	won := Tile{ID: 6, Units: 1, State: Won, Rows: rows[:1]}
	double := Tile{ID: 7, Units: 1, State: Double, Rows: rows}
	for _, tt := range []struct {
		tiles []Tile
		want  string
		alarm bool
	}{
		{[]Tile{won}, "1 of the last 1 orders are won, each by one driver.", false},
		{[]Tile{won, double}, "Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{double, won, double}, "2 of the last 3 orders have more than one row. Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{{ID: 8, Units: 3, State: Undersold, Rows: rows}}, "Order 8 is undersold: 2 of 3 units were sold, and drivers were refused after the last sale.", false},
	} {
		if text, alarm := summary(first, tt.tiles); text != tt.want || alarm != tt.alarm {
			t.Errorf("got %q, alarm %v, want %q, alarm %v", text, alarm, tt.want, tt.alarm)
		}
	}
}
