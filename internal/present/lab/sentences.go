package lab

import (
	"fmt"
	"strings"

	"grablab/internal/catalog"
)

// summary describes the orders in one sentence. It sets alarm if an order has more rows than units.
func summary(s Settings, tiles []Tile) (text string, alarm bool) {
	doubles, won, several := 0, 0, false
	var double, under *Tile // the last of each
	for i, t := range tiles {
		switch t.State {
		case Won:
			won++
		case Undersold:
			under = &tiles[i]
		case Double:
			doubles++
			double = &tiles[i]
		}
		several = several || t.Units > 1
	}
	switch {
	case len(tiles) == 0:
		return idleSentence(s), false
	case double != nil:
		text := oversoldSentence(*double)
		if doubles == 1 {
			return text, true
		}
		excess := "more than one row"
		if double.Units > 1 {
			excess = "more rows than units"
		}
		return fmt.Sprintf("%d of the last %d orders have %s. %s", doubles, len(tiles), excess, text), true
	case under != nil:
		return fmt.Sprintf("Order %d is undersold: %d of %d units were sold, and drivers were refused after the last sale.", under.ID, len(under.Rows), under.Units), false
	case several:
		return fmt.Sprintf("%d of the last %d orders are sold out, none beyond its units.", won, len(tiles)), false
	default:
		return fmt.Sprintf("%d of the last %d orders are won, each by one driver.", won, len(tiles)), false
	}
}

// idleSentence says what Start will do.
func idleSentence(s Settings) string {
	under := "no fault strikes"
	if s.Fault != catalog.NoFault {
		under = s.Fault.About()
	}
	each := "each order"
	if s.units() > 1 {
		each += fmt.Sprintf(" of %d units", s.units())
	}
	return fmt.Sprintf("Nothing runs. Start sends %d drivers to %s, %v grabs a second, with %s and the guard %s; %s.", s.drivers(), each, s.Rate, s.Strategy, guardOf(s), under)
}

// oversoldSentence names the winners of an order with more rows than units.
func oversoldSentence(t Tile) string {
	if t.Units == 1 {
		return fmt.Sprintf("Order %d has %d rows: %s won.", t.ID, len(t.Rows), and(t.Rows))
	}
	drivers := make([]string, len(t.Rows))
	for i, row := range t.Rows {
		drivers[i] = strings.TrimPrefix(row, "driver ")
	}
	return fmt.Sprintf("Order %d has %d rows and %d units: drivers %s won.", t.ID, len(t.Rows), t.Units, and(drivers))
}

// and joins names with commas and a final "and".
func and(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
