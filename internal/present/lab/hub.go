package lab

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"grablab/internal/testbed/fleet"
)

// Phase is the state of the lab.
type Phase string

// The phases.
const (
	Starting Phase = "starting"
	Idle     Phase = "idle"
	Running  Phase = "running"
)

// Tick holds what changed since the last tick, or everything.
type Tick struct {
	N      uint64 `json:"n"`
	Whole  bool   `json:"whole,omitempty"`
	Status Status `json:"status"`
	Tiles  []Tile `json:"tiles,omitempty"` // those that changed
	Keys   []Key  `json:"keys"`
	Events int    `json:"events"` // recorded since the lab began
	Lost   int    `json:"lost"`   // failed attempts to read events

	Outcomes map[string]int `json:"outcomes"` // answers of this run, by kind
	Latency  *Latency       `json:"latency"`  // of the last seconds; nil if there was no answer

	Began   int64    `json:"began"`             // when the run began, in Unix milliseconds
	Seconds []Second `json:"seconds,omitempty"` // of this run, that have ended since the last tick
}

// Second summarises one second of a run. A percentile is nil if there are too few answers for it.
type Second struct {
	T       int      `json:"t"` // its number, from 0
	N       int      `json:"n"` // answers
	P50     *float64 `json:"p50,omitempty"`
	P99     *float64 `json:"p99,omitempty"` // of the last five seconds
	Doubles int      `json:"doubles"`       // orders that got a row beyond their units
}

// Status describes what the lab does.
type Status struct {
	Phase     Phase             `json:"phase"`
	Answer    string            `json:"answer"`            // one sentence about the orders
	Answers   map[string]string `json:"answers,omitempty"` // the same in each language
	Alarm     bool              `json:"alarm"`             // whether an order has more rows than units
	Error     string            `json:"error,omitempty"`
	Settings  Settings          `json:"settings"`
	Fault     string            `json:"fault,omitempty"` // what strikes right now
	Instances []string          `json:"instances"`
	Hand      int64             `json:"hand,omitempty"`  // the order for drivers by hand
	Drivers   map[string]string `json:"drivers"`         // by hand: empty, "asks", or the answer
	Watch     int64             `json:"watch,omitempty"` // the order that the page should show
	LeaseMS   float64           `json:"lease_ms"`
	Busy      string            `json:"busy,omitempty"`  // the work that must run without other work
	Doing     string            `json:"doing,omitempty"` // the progress of that work
	Matrix    MatrixStatus      `json:"matrix"`
}

// Tile is an order as the page shows it.
type Tile struct {
	ID     int64    `json:"id"`
	Rows   []string `json:"rows"`  // ledger rows, such as "driver 3 (8004)"
	Units  int      `json:"units"` // units at the start
	State  State    `json:"state"`
	Events int      `json:"events"` // recorded events
	Open   int      `json:"open"`   // drivers without an answer
	ByHand bool     `json:"by_hand,omitempty"`
}

// State is the outcome of an order so far.
type State string

// The states of orders.
const (
	Open      State = "open"      // units are left
	Won       State = "won"       // one row for each unit
	Double    State = "double"    // more rows than units
	Undersold State = "undersold" // units are left, although drivers were refused after the last sale
)

// Key is a lock in a Redis.
type Key struct {
	Server string `json:"server"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	TTL    int64  `json:"ttl_ms"` // -1 if it does not expire

	holders []string // the tokens in the value or in the fields of the hash
}

// Latency holds percentiles in ms, from the schedule and from sending. A percentile is nil if there are
// too few answers for it.
type Latency struct {
	N       int      `json:"n"`
	P50     *float64 `json:"p50"`
	P99     *float64 `json:"p99"`
	SentP50 *float64 `json:"sent_p50"`
	SentP99 *float64 `json:"sent_p99"`
}

// tickEvery is the time between two ticks.
const tickEvery = 100 * time.Millisecond

// hub combines the state of the lab and of its orders into ticks, and sends them to the pages.
type hub struct {
	orders *orders

	mu      sync.Mutex
	status  Status
	keys    []Key
	lost    int
	began   int64  // of the run whose first seconds were sent
	seconds int    // that were sent
	last    []byte // the last tick without its number; an unchanged tick is not sent again
	stream  *stream
}

func newHub() *hub {
	return &hub{orders: newOrders(), stream: newStream(), status: Status{Phase: Starting, Settings: first, Drivers: map[string]string{"a": "", "b": ""}}}
}

func (h *hub) locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// say sets the phase and its sentence.
func (h *hub) say(p Phase, answer string) {
	h.locked(func() { h.status.Phase, h.status.Answer, h.status.Error = p, answer, "" })
}

// settle records that nothing runs any more, and why if there was a problem.
func (h *hub) settle(s Settings, problem string) {
	h.locked(func() {
		h.status.Phase, h.status.Settings, h.status.Error = Idle, s, problem
		h.orders.setSettings(s)
	})
}

// fail shows an error, unless the lab is ending.
func (h *hub) fail(ctx interface{ Err() error }, problem string) {
	if ctx.Err() == nil {
		h.locked(func() { h.status.Error = problem })
	}
}

// clear forgets the orders.
func (h *hub) clear() {
	h.locked(func() {
		h.status.Hand, h.status.Fault = 0, ""
		h.orders.clear()
	})
}

// begin records that a run starts.
func (h *hub) begin(s Settings) {
	h.locked(func() {
		h.status.Phase, h.status.Settings, h.status.Error = Running, s, ""
		h.status.LeaseMS = float64(times(s).TTL.Milliseconds())
		h.orders.begin(s)
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

// strikes shows the fault that strikes an order now, or "" once it is healed.
func (h *hub) strikes(what string, id int64) {
	h.locked(func() {
		h.status.Fault = what
		h.orders.strike(id)
	})
}

// openByHand shows a new order whose drivers the user sends.
func (h *hub) openByHand(id int64) {
	h.locked(func() {
		h.orders.openByHand(id)
		h.status.Hand = id
		h.status.Drivers = map[string]string{"a": "", "b": ""}
	})
}

// asks is the state of a driver by hand who waits for an answer.
const asks = "asks"

// handAsks records that a driver grabs. It returns false if the driver is grabbing already.
func (h *hub) handAsks(who string) (ok bool) {
	h.locked(func() {
		if ok = h.status.Drivers[who] != asks; ok {
			h.setDriver(who, asks)
			h.orders.show(h.status.Hand)
		}
	})
	return ok
}

func (h *hub) handAnswered(who, answer string) { h.locked(func() { h.setDriver(who, answer) }) }

// setDriver copies the map, because a tick may still refer to the old one.
func (h *hub) setDriver(who, state string) {
	h.status.Drivers = maps.Clone(h.status.Drivers)
	h.status.Drivers[who] = state
}

// post sends a request and returns the outcome in its answer.
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

// makeTick returns what changed since the last tick, or everything. The caller holds h.mu.
func (h *hub) makeTick(whole bool) Tick {
	s := h.orders.snapshot(time.Now())
	status := h.status
	if status.Watch = s.watch; status.Phase != Starting {
		status.Answers, status.Alarm = summary(status.Settings, s.tiles)
		status.Answer = status.Answers["en"]
	}
	t := Tick{N: h.stream.number, Whole: whole, Status: status, Keys: h.keys, Events: s.events, Lost: h.lost, Tiles: s.changed, Outcomes: s.outcomes, Latency: s.latency, Began: s.began, Seconds: s.seconds}
	if !whole && s.began == h.began {
		t.Seconds = s.seconds[min(h.seconds, len(s.seconds)):]
	}
	if whole {
		t.Tiles = s.tiles
	}
	return t
}

// tick sends what has changed to all pages.
func (h *hub) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stream.closed {
		return
	}
	t := h.makeTick(false)
	t.N = 0
	text, err := json.Marshal(t)
	if err != nil || bytes.Equal(text, h.last) {
		return
	}
	h.last = text
	t.N = h.stream.number + 1
	if text, err = json.Marshal(t); err != nil {
		return
	}
	h.orders.published(t.Tiles)
	if t.Began != h.began {
		h.began, h.seconds = t.Began, 0
	}
	h.seconds += len(t.Seconds)
	h.stream.send(text)
}

// subscribe returns what a page needs at once, a channel of what follows, and a function that ends
// the subscription. id is the id of the page's last message, or "" if it has none.
func (h *hub) subscribe(id string) (now []byte, next chan []byte, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next = h.stream.subscribe()
	stop = func() { h.locked(func() { h.stream.drop(next) }) }
	if h.stream.closed {
		return nil, next, stop
	}
	now, ok := h.stream.missed(id)
	if !ok {
		if text, err := json.Marshal(h.makeTick(true)); err == nil {
			now = h.stream.event(text)
		}
	}
	return now, next, stop
}

func (h *hub) close() { h.locked(h.stream.close) }
