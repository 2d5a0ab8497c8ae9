package lab

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
