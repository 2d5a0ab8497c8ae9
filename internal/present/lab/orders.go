package lab

import (
	"fmt"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/present/diagram"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// These constants limit how much the server remembers about orders, so that its memory use stays
// bounded.
const (
	maxTiles      = 60
	maxTileEvents = 2000 // events kept per order
)

// totals counts orders over the whole run, because the tiles show only the latest orders.
type totals struct {
	opened  int
	doubles int // orders with more rows than units
}

// tile is everything that the server knows about one order on the page.
type tile struct {
	Tile
	settings Settings        // the settings of the order's run
	events   []history.Event // the first maxTileEvents
	rows     []order.Grab
	struck   bool // whether the run's fault has hit this order
}

// open adds new orders.
func (s *state) open(id int64, count int) {
	defer s.lock()()
	for i := range int64(count) {
		s.add(Tile{ID: id + i, Units: s.status.Settings.units()})
	}
}

// add adds a new order.
func (s *state) add(t Tile) {
	t.Rows, t.State = []string{}, Open
	s.tiles = append(s.tiles, &tile{Tile: t, settings: s.status.Settings})
	s.totals.opened++
	if extra := len(s.tiles) - maxTiles; extra > 0 {
		s.tiles = slices.Delete(s.tiles, 0, extra)
	}
}

// recordAnswer records the response to a driver's request.
func (s *state) recordAnswer(r *vegeta.Result, _ time.Time) {
	defer s.lock()()
	s.outcomes[outcomeOf(r)]++
}

// find returns an order, or nil if it is no longer on the page.
func (s *state) find(id int64) *tile {
	return catalog.First(s.tiles, func(t *tile) bool { return t.ID == id })
}

// record adds an instance's event. A higher incarnation number than before means that the instance
// has been restarted.
func (s *state) record(e history.Event) {
	defer s.lock()()
	if last, known := s.started[e.Instance]; known && e.Incarnation > last {
		s.deaths = append(s.deaths, diagram.Death{Instance: e.Instance, At: e.T})
		s.deaths = s.deaths[max(0, len(s.deaths)-maxTiles):]
	}
	s.started[e.Instance] = max(s.started[e.Instance], e.Incarnation) // an event of the old process may arrive late
	t := s.find(e.Order)
	if t == nil {
		return
	}
	switch {
	case e.Op != history.Grab:
	case e.Kind == history.Invoke:
		t.Open++
	default:
		t.Open--
	}
	if t.Events++; t.Events <= maxTileEvents {
		t.events = append(t.events, e)
	}
}

// recordRows records an order's database rows. If there are no more rows than before, it ignores
// them, because they may be out of date.
func (s *state) recordRows(id int64, rows []order.Grab) {
	defer s.lock()()
	t := s.find(id)
	if t == nil || len(rows) <= len(t.rows) {
		return
	}
	t.rows = rows
	t.Rows = catalog.Map(rows, func(g order.Grab) string { return fmt.Sprintf("%s (%s)", driverName(g.Driver), g.Instance) })
	switch {
	case len(rows) == t.Units:
		t.State = Won
	case len(rows) > t.Units:
		if t.State != Double {
			s.totals.doubles++
		}
		t.State, s.status.Watch = Double, id
	}
}

// shown returns the range of the orders on the page.
func (s *state) shown() (first int64, count int) {
	defer s.lock()()
	if len(s.tiles) > 0 {
		first = s.tiles[0].ID
		count = int(s.tiles[len(s.tiles)-1].ID-first) + 1
	}
	return first, count
}

// runOf returns an order's record, for its diagram. It returns false if the page no longer shows
// the order. While requests are in flight, the record ends at the present time.
func (s *state) runOf(id int64) (r diagram.Run, ok bool) {
	defer s.lock()()
	t := s.find(id)
	if t == nil {
		return r, false
	}
	strategy, _ := lock.Find(t.settings.Strategy)
	r = diagram.Run{
		Title: fmt.Sprintf("Order %d, %s, guard %s", id, strategy.Name, guardOf(t.settings)), Excludes: strategy.Excludes,
		Timeline: check.Timeline{Property: catalog.OneWinner, Events: slices.Clone(t.events), Further: t.Events - len(t.events), Units: t.Units},
		Outlives: strategy.OutlivesHolder(), Deaths: slices.Clone(s.deaths),
	}
	if t.ByHand {
		r.Names = map[int64]string{handDriver: driverName(handDriver), handDriver + 1: driverName(handDriver + 1)}
	}
	if t.Units > 1 {
		r.Title += fmt.Sprintf(", %d units", t.Units)
	}
	if t.struck {
		r.Title += fmt.Sprintf(", %s", t.settings.Fault)
		r.Fault = t.settings.Fault
	}
	if t.Open > 0 && r.Further == 0 { // after a dropped event, the last events are missing
		r.Until = history.Clock()
	}
	r.Rows = catalog.Map(t.rows, func(g order.Grab) check.Row { return check.Row{Driver: g.Driver, Instance: g.Instance, Token: g.Token} })
	return r, true
}

func driverName(id int64) string {
	if id >= handDriver {
		return "driver " + string(rune('A'+id-handDriver))
	}
	return fmt.Sprintf("driver %d", id)
}
