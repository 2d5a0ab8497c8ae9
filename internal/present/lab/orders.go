package lab

import (
	"fmt"
	"maps"
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

// orders records what happened to each order on the page: events, responses, and database rows. It
// is safe for concurrent use.
type orders struct {
	clock func() time.Duration

	mutex
	settings Settings
	tiles    []*tile        // sorted by age, with the oldest first
	watch    int64          // the order that the page should show; 0 if there is none
	started  map[string]int // incarnation of each instance's current process, by instance name
	deaths   []diagram.Death
	outcomes map[string]int
	began    time.Time // when the run began
	totals   totals
}

// totals counts orders over the whole run, because the tiles show only the latest orders.
type totals struct {
	opened  int
	doubles int // orders with more rows than units
}

// tile is everything that the server knows about one order on the page.
type tile struct {
	Tile
	strategy lock.Strategy
	guard    order.Guard
	fault    catalog.Fault
	events   []history.Event
	dropped  int // number of events that were dropped because maxTileEvents were already kept
	rows     []order.Grab
	invoked  int // number of requests for the order that have started
	returned int // number of requests for the order that have ended
	struck   bool
}

func newOrders() *orders {
	return &orders{clock: history.Clock, outcomes: map[string]int{}, started: map[string]int{}}
}

func (o *orders) clear() {
	defer o.lock()()
	o.tiles, o.watch, o.totals = nil, 0, totals{}
	o.started, o.deaths = map[string]int{}, nil
}

// begin starts recording a new run and discards the previous run's orders.
func (o *orders) begin(s Settings) {
	defer o.lock()()
	o.settings, o.watch = s, 0
	o.tiles, o.totals, o.outcomes = nil, totals{}, map[string]int{}
	o.began = time.Now()
}

func (o *orders) setSettings(s Settings) { o.locked(func() { o.settings = s }) }

// strike marks the order that the fault hits, and makes the page show its details.
func (o *orders) strike(id int64) {
	defer o.lock()()
	if t := o.find(id); t != nil {
		t.struck = true
		o.watch = id
	}
}

func (o *orders) open(id int64, count int) {
	defer o.lock()()
	for i := range int64(count) {
		o.add(Tile{ID: id + i, Units: o.settings.units()}, o.settings.Fault)
	}
}

// openByHand adds an order whose drivers send requests only when the user tells them to.
func (o *orders) openByHand(id int64) {
	defer o.lock()()
	o.add(Tile{ID: id, Units: 1, ByHand: true}, "")
	o.watch = id
}

// show selects the order whose details the page displays.
func (o *orders) show(id int64) { o.locked(func() { o.watch = id }) }

// add adds a new order. fault is the fault that may hit it.
func (o *orders) add(t Tile, fault catalog.Fault) {
	s, err := lock.Find(o.settings.Strategy)
	if err != nil {
		s.Excludes = catalog.NoExclusion
	}
	t.Rows, t.State = []string{}, Open
	o.tiles = append(o.tiles, &tile{Tile: t, strategy: s, guard: guardOf(o.settings), fault: fault})
	o.totals.opened++
	if extra := len(o.tiles) - maxTiles; extra > 0 {
		o.tiles = slices.Delete(o.tiles, 0, extra)
	}
}

// recordAnswer records the response to a driver's request.
func (o *orders) recordAnswer(r *vegeta.Result, _ time.Time) {
	defer o.lock()()
	o.outcomes[outcomeOf(r)]++
}

// find returns an order, or nil if it is no longer on the page.
func (o *orders) find(id int64) *tile {
	return catalog.First(o.tiles, func(t *tile) bool { return t.ID == id })
}

// record adds an instance's event. A higher incarnation number than before means that the instance
// has been restarted.
func (o *orders) record(e history.Event) {
	defer o.lock()()
	if last, known := o.started[e.Instance]; known && e.Incarnation > last {
		o.deaths = append(o.deaths, diagram.Death{Instance: e.Instance, At: e.T})
		o.deaths = o.deaths[max(0, len(o.deaths)-maxTiles):]
	}
	o.started[e.Instance] = max(o.started[e.Instance], e.Incarnation) // an event of the old process may arrive late
	t := o.find(e.Order)
	if t == nil {
		return
	}
	if e.Op == history.Grab {
		if e.Kind == history.Invoke {
			t.invoked++
		} else {
			t.returned++
		}
	}
	if len(t.events) < maxTileEvents {
		e.Strategy = ""
		t.events = append(t.events, e)
	} else {
		t.dropped++
	}
	t.Events, t.Open = len(t.events)+t.dropped, max(0, t.invoked-t.returned)
}

// recordRows records an order's database rows. If there are no more rows than before, it ignores
// them, because they may be out of date.
func (o *orders) recordRows(id int64, rows []order.Grab) {
	defer o.lock()()
	t := o.find(id)
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
			o.totals.doubles++
		}
		t.State, o.watch = Double, id
	}
}

// shown returns the range of the orders on the page.
func (o *orders) shown() (first int64, count int) {
	defer o.lock()()
	if len(o.tiles) > 0 {
		first = o.tiles[0].ID
		count = int(o.tiles[len(o.tiles)-1].ID-first) + 1
	}
	return first, count
}

// drawing returns an order's diagram, or nil if the page no longer shows the order.
func (o *orders) drawing(id int64) *diagram.Diagram {
	if r, ok := o.runOf(id); ok {
		return new(diagram.OfRun(r)) // this takes a while, so orders is not locked
	}
	return nil
}

// runOf returns an order's record, for its diagram. While requests are in flight, the record ends
// at the present time.
func (o *orders) runOf(id int64) (r diagram.Run, ok bool) {
	defer o.lock()()
	t := o.find(id)
	if t == nil {
		return r, false
	}
	r = diagram.Run{
		Title: fmt.Sprintf("Order %d, %s, guard %s", id, t.strategy.Name, t.guard), Excludes: t.strategy.Excludes, Property: catalog.OneWinner,
		Events: slices.Clone(t.events), Further: t.dropped, Units: t.Units,
		Outlives: t.strategy.OutlivesHolder(), Deaths: slices.Clone(o.deaths),
	}
	if t.ByHand {
		r.Names = map[int64]string{handDriver: driverName(handDriver), handDriver + 1: driverName(handDriver + 1)}
	}
	if t.Units > 1 {
		r.Title += fmt.Sprintf(", %d units", t.Units)
	}
	if t.struck {
		r.Title += fmt.Sprintf(", %s", t.fault)
		r.Fault = t.fault
	}
	if t.Open > 0 && t.dropped == 0 { // after a dropped event, the last events are missing
		r.Until = o.clock()
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

// snapshot returns a consistent copy of the records for the pages, and the totals.
func (o *orders) snapshot() (t Tick, sums totals) {
	defer o.lock()()
	t = Tick{Status: Status{Watch: o.watch}, Outcomes: maps.Clone(o.outcomes), Began: o.began.UnixMilli()}
	t.Tiles = catalog.Map(o.tiles, func(x *tile) Tile { return x.Tile })
	return t, o.totals
}
