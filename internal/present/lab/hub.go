package lab

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/present/diagram"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Phase is how far the lab is.
type Phase string

// The phases.
const (
	Starting Phase = "starting"
	Idle     Phase = "idle"
	Running  Phase = "running"
)

// Tick is what changed since the one before, or everything.
type Tick struct {
	N      uint64 `json:"n"`
	Whole  bool   `json:"whole,omitempty"`
	Status Status `json:"status"`
	Tiles  []Tile `json:"tiles,omitempty"` // that changed
	Keys   []Key  `json:"keys"`
	Events int    `json:"events"` // so many have been recorded since the lab began
	Lost   int    `json:"lost"`   // so many could not be read

	Outcomes map[string]int `json:"outcomes"` // answers of this run, by kind
	Latency  *Latency       `json:"latency"`  // of the last seconds; nil: nothing was answered
}

// Status is what the lab does.
type Status struct {
	Phase     Phase             `json:"phase"`
	Answer    string            `json:"answer"` // in a sentence
	Alarm     bool              `json:"alarm"`  // some order has more rows than units
	Error     string            `json:"error,omitempty"`
	Settings  Settings          `json:"settings"`
	Fault     string            `json:"fault,omitempty"` // that strikes right now
	Instances []string          `json:"instances"`
	Hand      int64             `json:"hand,omitempty"`  // the order that is grabbed by hand
	Drivers   map[string]string `json:"drivers"`         // by hand: "", "asks", or the answer
	Watch     int64             `json:"watch,omitempty"` // the order that is worth looking at
	LeaseMS   float64           `json:"lease_ms"`
	Busy      string            `json:"busy,omitempty"`  // what runs that nothing may run beside
	Doing     string            `json:"doing,omitempty"` // how far that is
	Matrix    MatrixStatus      `json:"matrix"`
}

// Tile is an order.
type Tile struct {
	ID     int64    `json:"id"`
	Rows   []string `json:"rows"`  // of the ledger: "driver 3 (8004)"
	Units  int      `json:"units"` // that it was opened with
	State  State    `json:"state"`
	Events int      `json:"events"` // that were recorded
	Open   int      `json:"open"`   // drivers who have not been answered
	ByHand bool     `json:"by_hand,omitempty"`
}

// State is what became of an order so far.
type State string

// The states of orders.
const (
	Open      State = "open"      // units are left
	Won       State = "won"       // there is a row a unit
	Double    State = "double"    // there are rows beyond the units
	Undersold State = "undersold" // of several units some are left, and drivers were refused after the last sale
)

// Key is one in a Redis.
type Key struct {
	Server string `json:"server"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	TTL    int64  `json:"ttl_ms"` // -1: it does not end

	holders []string // of its value: tokens, or fields of a hash, which are tokens
}

// Latency is in ms, from the schedule and from sending.
type Latency struct {
	N       int     `json:"n"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	SentP50 float64 `json:"sent_p50"`
	SentP99 float64 `json:"sent_p99"`
}

// Bounds on what is kept.
const (
	mostTiles  = 60
	mostTicks  = 600 // a minute
	tickEvery  = 100 * time.Millisecond
	latencyFor = 5 * time.Second
	mostOfOne  = 2000 // events of one order
)

// hub keeps what is to be seen. Its ticks are written once, however many listen.
type hub struct {
	run   string // names this lab: another has ticks of its own
	clock func() time.Duration

	mu       sync.Mutex
	status   Status
	tiles    []*tile // the oldest first
	keys     []Key
	started  map[string]int // incarnations of the instances
	deaths   []diagram.Death
	events   int
	lost     int
	outcomes map[string]int
	answers  []answered
	n        uint64
	sent     []written // the last ticks
	last     []byte    // of them, without its number: what does not change is not said again
	listen   map[chan []byte]struct{}
	closed   bool
}

type tile struct {
	Tile
	strategy lock.Strategy
	fault    catalog.Fault
	events   []history.Event
	further  int // events beyond those
	seen     []seenKey
	rows     []order.Grab
	asked    int // grabs that were called, and that returned
	returned int
	drivers  int // that are sent after it, and that have been answered
	answers  int
	changed  bool
	struck   bool

	// What the drivers were told last: that one has a unit, and that one has none, for good.
	sold, refused time.Time
	all           bool // of them have been answered
}

// seenKey is what was seen of a key, and where.
type seenKey struct {
	server, name string
	diagram.Key
}

// judge says what became of the order, by its rows and by what its drivers were told.
func (t *tile) judge() {
	switch {
	case len(t.rows) > t.Units:
		t.State = Double
	case len(t.rows) == t.Units:
		t.State = Won
	case t.Units > 1 && t.all && t.refused.After(t.sold):
		t.State = Undersold
	default:
		t.State = Open
	}
}

type answered struct {
	at              time.Time
	scheduled, sent time.Duration
}

type written struct {
	n    uint64
	text []byte
}

func newHub() *hub {
	return &hub{
		run: rand.Text()[:8], clock: history.Clock(), outcomes: map[string]int{}, started: map[string]int{}, listen: map[chan []byte]struct{}{},
		status: Status{Phase: Starting, Settings: first, Drivers: map[string]string{"a": "", "b": ""}},
	}
}

func (h *hub) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// say changes the phase, and what is said of it.
func (h *hub) say(p Phase, answer string) {
	h.locked(func() { h.status.Phase, h.status.Answer, h.status.Error = p, answer, "" })
}

// settle is when nothing runs any more.
func (h *hub) settle(s Settings, problem string) {
	h.locked(func() { h.status.Phase, h.status.Settings, h.status.Error = Idle, s, problem })
}

// fail shows an error, unless it comes from the end of all.
func (h *hub) fail(ctx interface{ Err() error }, problem string) {
	if ctx.Err() == nil {
		h.locked(func() { h.status.Error = problem })
	}
}

// clear forgets the orders.
func (h *hub) clear() {
	h.locked(func() {
		h.tiles, h.status.Watch, h.status.Hand, h.status.Fault = nil, 0, 0, ""
		h.started, h.deaths = map[string]int{}, nil
	})
}

func (h *hub) begin(s Settings) {
	h.locked(func() {
		h.status.Phase, h.status.Settings, h.status.Error, h.status.Watch = Running, s, "", 0
		h.status.LeaseMS = float64(times(s).TTL.Milliseconds())
		h.tiles, h.answers, h.outcomes = nil, nil, map[string]int{}
	})
}

func (h *hub) end() { h.locked(func() { h.status.Phase = Idle }) }

func (h *hub) instances(f *fleet.Fleet) {
	h.locked(func() {
		h.status.Instances = nil
		for _, in := range f.Instances {
			h.status.Instances = append(h.status.Instances, in.ID)
		}
	})
}

func (h *hub) strikes(what string, id int64) {
	h.locked(func() {
		h.status.Fault = what
		if t := h.tileLocked(id); t != nil {
			t.struck, t.changed = true, true
			h.status.Watch = id
		}
	})
}

// open shows orders that were opened.
func (h *hub) open(id int64, count int) {
	h.locked(func() {
		for i := range int64(count) {
			h.addLocked(id+i, false)
		}
	})
}

func (h *hub) addLocked(id int64, byHand bool) {
	s, err := lock.Find(h.status.Settings.Strategy)
	if err != nil {
		s.Excludes = catalog.NoExclusion
	}
	fault, units := h.status.Settings.Fault, h.status.Settings.units()
	if byHand {
		fault, units = "", 1
	}
	h.tiles = append(h.tiles, &tile{Tile: Tile{ID: id, Rows: []string{}, Units: units, State: Open, ByHand: byHand}, strategy: s, fault: fault, drivers: h.status.Settings.drivers(), changed: true})
	if extra := len(h.tiles) - mostTiles; extra > 0 {
		h.tiles = slices.Delete(h.tiles, 0, extra)
	}
}

func (h *hub) openByHand(id int64) {
	h.locked(func() {
		h.addLocked(id, true)
		h.status.Hand, h.status.Watch = id, id
		h.status.Drivers = map[string]string{"a": "", "b": ""}
	})
}

// handAsks is false if the driver is grabbing already.
func (h *hub) handAsks(who string) (ok bool) {
	h.locked(func() {
		if ok = h.status.Drivers[who] != asks; ok {
			h.driverLocked(who, asks)
			h.status.Watch = h.status.Hand
		}
	})
	return ok
}

// asks is what a driver by hand does who has not been answered.
const asks = "asks"

func (h *hub) handAnswered(who, answer string) { h.locked(func() { h.driverLocked(who, answer) }) }

func (h *hub) driverLocked(who, does string) {
	drivers := map[string]string{}
	for k, v := range h.status.Drivers {
		drivers[k] = v
	}
	drivers[who] = does
	h.status.Drivers = drivers
}

// post is one call, and the outcome that it is answered with.
func post(client *http.Client, url string, body []byte, header http.Header) (string, error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header = header.Clone()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var a struct{ Outcome, Reason string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&a); err != nil {
		return "", err
	}
	return strings.TrimSpace(a.Outcome + " " + a.Reason), nil
}

// answer counts an answer.
func (h *hub) answer(r *vegeta.Result, due time.Time) {
	end := r.Timestamp.Add(r.Latency)
	h.locked(func() {
		h.outcomes[outcomeOf(r)]++
		h.answers = append(h.answers, answered{end, end.Sub(due), r.Latency})
		asked, err := load.ParseRequest(r.URL)
		t := h.tileLocked(asked.Order)
		if err != nil || t == nil {
			return
		}
		t.answers++
		switch {
		case outcomeOf(r) == string(grab.Grabbed):
			t.sold = end
		case isRefusal(r):
			t.refused = end
		}
	})
}

// isRefusal says whether the driver of an answer has no unit, and is not to ask again.
func isRefusal(r *vegeta.Result) bool {
	if r.Code != 0 {
		return outcomeOf(r) != string(grab.Busy)
	}
	kind := load.FailureOf(r.Error)
	return kind != load.Refused && kind != load.Interrupted // which has not asked, or was not waited for
}

// noMore is when nobody more is sent after some orders, and who was has been answered.
func (h *hub) noMore(id int64, count int) {
	h.locked(func() {
		for _, t := range h.tiles {
			if t.ID >= id && t.ID < id+int64(count) {
				t.drivers = t.answers
			}
		}
	})
}

// allAnswered is when all drivers of some orders have been answered, and their ledgers read
// since.
func (h *hub) allAnswered(ids []int64) {
	h.locked(func() {
		for _, id := range ids {
			t := h.tileLocked(id)
			if t == nil || t.all || t.ByHand {
				continue
			}
			t.all, t.changed = true, true
			if t.judge(); t.State == Undersold {
				h.status.Watch = id
			}
		}
	})
}

// tileLocked is an order's; nil: it is not shown, or not any more.
func (h *hub) tileLocked(id int64) *tile {
	i := slices.IndexFunc(h.tiles, func(t *tile) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	return h.tiles[i]
}

// record takes an event of an instance.
func (h *hub) record(e history.Event) {
	h.locked(func() {
		if was, known := h.started[e.Instance]; known && e.Incarnation > was {
			h.deaths = append(h.deaths, diagram.Death{Instance: e.Instance, At: e.T})
			h.deaths = h.deaths[max(0, len(h.deaths)-mostTiles):] // each strikes an order
		}
		h.started[e.Instance] = e.Incarnation
		t := h.tileLocked(e.Order)
		if t == nil {
			return
		}
		h.events++
		if e.Op == history.Grab {
			if e.Kind == history.Invoke {
				t.asked++
			} else {
				t.returned++
			}
		}
		if t.changed = true; len(t.events) < mostOfOne {
			e.Strategy = ""
			t.events = append(t.events, e)
		} else {
			t.further++
		}
		t.Events, t.Open = len(t.events)+t.further, max(0, t.asked-t.returned)
	})
}

// key takes that a lock was seen on a server.
func (h *hub) key(k Key, at time.Duration) {
	h.locked(func() {
		t := h.tileLocked(orderOf(k.Name))
		if t == nil {
			return
		}
		seen := diagram.Key{Holders: tokensOf(k.holders), Last: at, Until: history.Endless}
		if k.TTL >= 0 {
			seen.Until = at + time.Duration(k.TTL)*time.Millisecond
		}
		i := slices.IndexFunc(t.seen, func(o seenKey) bool { return o.server == k.Server && o.name == k.Name && o.Gone == 0 })
		switch {
		case i >= 0 && slices.Equal(t.seen[i].Holders, seen.Holders):
			t.seen[i].Key = seen
			return
		case i >= 0: // it is another's now
			t.seen[i].Gone = at
		}
		t.seen = append(t.seen, seenKey{k.Server, k.Name, seen})
	})
}

// keyGone takes that a server has no lock of a name.
func (h *hub) keyGone(server, name string, at time.Duration) {
	h.locked(func() {
		if t := h.tileLocked(orderOf(name)); t != nil {
			for i, o := range t.seen {
				if o.server == server && o.name == name && o.Gone == 0 {
					t.seen[i].Gone = at
				}
			}
		}
	})
}

// orderOf is whose lock has such a name, as in grab:setnx:{7}; 0: it is no order's.
func orderOf(name string) int64 {
	_, rest, _ := strings.Cut(name, "{")
	number, _, _ := strings.Cut(rest, "}")
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// tokensOf are holders without the mark of handoff that others wait.
func tokensOf(holders []string) (all []string) {
	for _, h := range holders {
		all = append(all, strings.TrimSuffix(h, "+"))
	}
	return all
}

// ledger takes the rows of an order. One more than it has units turns its tile.
func (h *hub) ledger(id int64, rows []order.Grab) {
	h.locked(func() {
		t := h.tileLocked(id)
		if t == nil || len(rows) <= len(t.rows) { // two may look at the same time
			return
		}
		t.rows, t.changed, t.Rows = rows, true, []string{}
		for _, g := range rows {
			t.Rows = append(t.Rows, fmt.Sprintf("driver %d (%s)", g.Driver, g.Instance))
		}
		if t.judge(); t.State == Double {
			h.status.Watch = id
		}
	})
}

// unsettled are the orders whose ledgers may still change: the first of them, and how many
// there are from there on; 0: none. Of those in answered all drivers have been answered.
func (h *hub) unsettled() (id int64, count int, answered []int64) {
	h.locked(func() {
		if len(h.tiles) == 0 {
			return
		}
		id = h.tiles[0].ID
		count = int(h.tiles[len(h.tiles)-1].ID-id) + 1
		for _, t := range h.tiles {
			if !t.all && !t.ByHand && t.answers >= t.drivers {
				answered = append(answered, t.ID)
			}
		}
	})
	return id, count, answered
}

// drawing is the diagram of an order, up to now while it goes on.
func (h *hub) drawing(id int64) (d diagram.Diagram, ok bool) {
	var r diagram.Run
	h.locked(func() {
		t := h.tileLocked(id)
		if ok = t != nil; !ok {
			return
		}
		r = diagram.Run{
			Title: fmt.Sprintf("Order %d, %s", id, t.strategy.Name), Excludes: t.strategy.Excludes, Property: catalog.OneWinner,
			Events: slices.Clone(t.events), Further: t.further, Units: t.Units,
			Outlives: t.strategy.OutlivesHolder(), Deaths: slices.Clone(h.deaths),
		}
		for _, k := range t.seen {
			r.Keys = append(r.Keys, k.Key)
		}
		if t.Units > 1 {
			r.Title += fmt.Sprintf(", %d units", t.Units)
		}
		if t.struck {
			r.Fault = t.fault
		}
		if t.Open > 0 && t.further == 0 { // else what it goes on with is not among the events
			r.Until = h.clock()
		}
		for _, g := range t.rows {
			r.Rows = append(r.Rows, check.Row{Driver: g.Driver, Instance: g.Instance, Token: g.Token})
		}
	})
	if !ok {
		return d, false
	}
	return diagram.OfRun(r), true
}

// answerLocked says in a sentence what is so.
func (h *hub) answerLocked() (text string, alarm bool) {
	if h.status.Phase == Starting {
		return h.status.Answer, false
	}
	double, won, several := 0, 0, 0
	var last, under *tile
	for _, t := range h.tiles {
		switch t.State {
		case Open:
		case Won:
			won++
		case Undersold:
			under = t
		case Double:
			double++
			last = t
		}
		if t.Units > 1 {
			several++
		}
	}
	s := h.status.Settings
	oversold := func() string {
		drivers := make([]string, len(last.Rows))
		for i, row := range last.Rows {
			drivers[i] = strings.TrimPrefix(row, "driver ")
		}
		return fmt.Sprintf("Order %d has %d rows and %d units: drivers %s won.", last.ID, len(last.rows), last.Units, and(drivers))
	}
	switch {
	case last != nil && last.Units > 1 && double > 1:
		return fmt.Sprintf("%d of the last %d orders have more rows than units. %s", double, len(h.tiles), oversold()), true
	case last != nil && last.Units > 1:
		return oversold(), true
	case last != nil && double > 1:
		return fmt.Sprintf("%d of the last %d orders have more than one row. Order %d: %s won.", double, len(h.tiles), last.ID, and(last.Rows)), true
	case last != nil:
		return fmt.Sprintf("Order %d has %d rows: %s won.", last.ID, len(last.rows), and(last.Rows)), true
	case len(h.tiles) == 0:
		under := "no fault strikes"
		if s.Fault != catalog.NoFault {
			under = s.Fault.About()
		}
		of := "each order"
		if s.units() > 1 {
			of += fmt.Sprintf(" of %d units", s.units())
		}
		return fmt.Sprintf("Nothing runs. Start sends %d drivers after %s, %v grabs a second, with %s and the guard %s; %s.", s.drivers(), of, s.Rate, s.Strategy, guardOf(s), under), false
	case under != nil:
		return fmt.Sprintf("Order %d is undersold: %d of %d units went, and drivers were refused after the last sale.", under.ID, len(under.rows), under.Units), false
	case several > 0:
		return fmt.Sprintf("%d of the last %d orders are sold out, none beyond its units.", won, len(h.tiles)), false
	default:
		return fmt.Sprintf("%d of the last %d orders are won, each by one driver.", won, len(h.tiles)), false
	}
}

func and(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// latencyLocked is of the last seconds.
func (h *hub) latencyLocked() *Latency {
	since := time.Now().Add(-latencyFor)
	h.answers = slices.DeleteFunc(h.answers, func(a answered) bool { return a.at.Before(since) })
	if len(h.answers) == 0 {
		return nil
	}
	scheduled, sent := make([]time.Duration, 0, len(h.answers)), make([]time.Duration, 0, len(h.answers))
	for _, a := range h.answers {
		scheduled, sent = append(scheduled, a.scheduled), append(sent, a.sent)
	}
	at := func(all []time.Duration, share float64) float64 {
		return float64(all[int(math.Ceil(share*float64(len(all))))-1].Microseconds()) / 1000
	}
	slices.Sort(scheduled)
	slices.Sort(sent)
	return &Latency{len(scheduled), at(scheduled, 0.5), at(scheduled, 0.99), at(sent, 0.5), at(sent, 0.99)}
}

// tickLocked is what has changed, or all that there is.
func (h *hub) tickLocked(whole bool) Tick {
	h.status.Answer, h.status.Alarm = h.answerLocked()
	t := Tick{
		N: h.n, Whole: whole, Status: h.status, Keys: h.keys, Events: h.events, Lost: h.lost,
		Outcomes: h.outcomes, Latency: h.latencyLocked(),
	}
	for _, tile := range h.tiles {
		if tile.changed || whole {
			t.Tiles = append(t.Tiles, tile.Tile)
		}
	}
	return t
}

// tick hands what has changed to all who listen. One who does not keep up is let go, and
// comes again.
func (h *hub) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	t := h.tickLocked(false)
	t.N = 0
	text, err := json.Marshal(t)
	if err != nil || bytes.Equal(text, h.last) {
		return
	}
	h.last = text
	h.n++
	t.N = h.n
	if text, err = json.Marshal(t); err != nil {
		return
	}
	for _, tile := range h.tiles {
		tile.changed = false
	}
	message := h.message(text)
	h.sent = append(h.sent, written{h.n, message})
	if extra := len(h.sent) - mostTicks; extra > 0 {
		h.sent = slices.Delete(h.sent, 0, extra)
	}
	for c := range h.listen {
		select {
		case c <- message:
		default:
			delete(h.listen, c)
			close(c)
		}
	}
}

// message is the last tick as one of a stream.
func (h *hub) message(data []byte) []byte {
	return fmt.Appendf(nil, "id: %s.%d\nevent: tick\ndata: %s\n\n", h.run, h.n, data)
}

// subscribe returns what is to be said at once to somebody whose last message had that id
// ("": there was none), and a channel of what follows, which closes when the lab ends or the
// listener does not keep up.
func (h *hub) subscribe(id string) (now []byte, next chan []byte, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = make(chan []byte, 64)
	if h.closed {
		close(next)
		return nil, next, func() {}
	}
	h.listen[next] = struct{}{}
	stop = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, listens := h.listen[next]; listens {
			delete(h.listen, next)
			close(next)
		}
	}
	run, number, _ := strings.Cut(id, ".")
	since, err := strconv.ParseUint(number, 10, 64)
	known := err == nil && run == h.run
	i := slices.IndexFunc(h.sent, func(w written) bool { return w.n == since+1 })
	switch {
	case known && since == h.n:
		return nil, next, stop
	case known && i >= 0:
		for _, w := range h.sent[i:] {
			now = append(now, w.text...)
		}
		return now, next, stop
	}
	text, err := json.Marshal(h.tickLocked(true))
	if err != nil {
		return nil, next, stop
	}
	return h.message(text), next, stop
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for c := range h.listen {
		delete(h.listen, c)
		close(c)
	}
}
