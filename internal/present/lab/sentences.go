package lab

import (
	"fmt"

	"grablab/internal/catalog"
)

// summary describes the state of the orders, in a text that the page translates. alarm is true if
// any order was oversold: sold more often than it has units. state.tick calls summary.
func summary(s Settings, tiles []Tile, sums totals) (text string, alarm bool) {
	won, several := 0, false
	var double *Tile // the last oversold order
	for i, t := range tiles {
		switch t.State {
		case Won:
			won++
		case Double:
			double = &tiles[i]
		}
		several = several || t.Units > 1
	}
	switch {
	case len(tiles) == 0:
		text = idleSentence(s)
	case double != nil && double.Units > 1:
		text = fmt.Sprintf("Order %d has %d rows and %d units: %s won.", double.ID, len(double.Rows), double.Units, catalog.List(double.Rows))
	case double != nil:
		text = fmt.Sprintf("Order %d has %d rows: %s won.", double.ID, len(double.Rows), catalog.List(double.Rows))
	case several:
		text = fmt.Sprintf("%d of the last %d orders are sold out, none beyond its units.", won, len(tiles))
	default:
		text = fmt.Sprintf("%d of the last %d orders are won, each by one driver.", won, len(tiles))
	}
	switch {
	case sums.doubles == 0 || sums.opened == 1:
	case several:
		text = fmt.Sprintf("Orders with more rows than units: %d of %d. ", sums.doubles, sums.opened) + text
	default:
		text = fmt.Sprintf("Orders with more than one row: %d of %d. ", sums.doubles, sums.opened) + text
	}
	return text, sums.doubles > 0
}

// idleSentence explains what a run with these settings will do.
func idleSentence(s Settings) string {
	orders, under := "each order", "no fault strikes"
	if s.units() > 1 {
		orders = fmt.Sprintf("each order of %d units", s.units())
	}
	if s.Fault != catalog.NoFault {
		under = s.Fault.About()
	}
	return fmt.Sprintf("Nothing runs. Start sends %d drivers to %s, %v grabs a second, with %s and the guard %s; %s.", s.drivers(), orders, s.Rate, s.Strategy, guardOf(s), under)
}
