package lab

// Phase says whether the servers are starting, idle or running.
type Phase string

// These are the phases of the lab.
const (
	Starting Phase = "starting"
	Idle     Phase = "idle"
	Running  Phase = "running"
)

// Tick is the state that a page shows.
type Tick struct {
	Status Status `json:"status"`
	Tiles  []Tile `json:"tiles"`
	Keys   []Key  `json:"keys"`
	Lost   int    `json:"lost"` // number of failed attempts to read events

	Outcomes map[string]int `json:"outcomes"` // this run's responses, by kind

	Began int64 `json:"began"` // when the run began, in Unix milliseconds
}

// Status describes what the page's server is doing.
type Status struct {
	Phase     Phase             `json:"phase"`
	Answer    string            `json:"answer"` // one sentence about the orders
	Alarm     bool              `json:"alarm"`  // whether an order was oversold
	Error     string            `json:"error,omitempty"`
	Settings  Settings          `json:"settings"`
	Fault     string            `json:"fault,omitempty"` // says which driver the active fault hits
	Instances []string          `json:"instances"`
	Hand      int64             `json:"hand,omitempty"`  // the order for the drivers that the user controls
	Drivers   map[string]string `json:"drivers"`         // state of each driver that the user controls: empty, "asks", or the response
	Watch     int64             `json:"watch,omitempty"` // the order that the page should show
	Busy      string            `json:"busy,omitempty"`  // the running task, if it excludes other tasks
}

// Tile shows one order on the page.
type Tile struct {
	ID     int64    `json:"id"`
	Rows   []string `json:"rows"`  // ledger rows, such as "driver 3 (8004)"
	Units  int      `json:"units"` // number of units at the start
	State  State    `json:"state"`
	Events int      `json:"events"` // number of recorded events
	Open   int      `json:"open"`   // number of drivers without a response
	ByHand bool     `json:"by_hand,omitempty"`
}

// State is an order's result so far.
type State string

// These are the possible states of an order.
const (
	Open   State = "open"   // units are left
	Won    State = "won"    // one row for each unit
	Double State = "double" // more rows than units
)

// Key is a lock that was found on a Redis server.
type Key struct {
	Server string `json:"server"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	TTL    int64  `json:"ttl_ms"` // -1 if it does not expire
}
