package catalog

import _ "embed"

// These are the names of all properties. NoOversell is another name of OneWinner, for orders with
// several units.
const (
	OneWinner        = "one-winner"
	NoOversell       = "no-oversell"
	AnswersAgree     = "answers-agree"
	LeaseExclusive   = "lease-exclusive"
	HoldersExclusive = "holders-exclusive"
	WritesExclusive  = "writes-exclusive"
	Linearizable     = "linearizable"
	WriteAfterExpiry = "write-after-expiry"
	StaleWrite       = "stale-write"
	FenceMonotone    = "fence"
	StuckOrder       = "stuck"
	NoLostWakeup     = "no-lost-wakeup"
	ReleaseEffective = "release-effective"
	NoResidue        = "no-residue"
	LossNotified     = "loss-notified"
	LossHeeded       = "loss-heeded"
	RenewsOwn        = "renews-own"
	WaitsAsTold      = "waits-as-told"
	OrderOfService   = "order-of-service"
	Survives         = "survives"
)

// Property is a condition that must hold even if faults occur.
type Property struct {
	Name    string
	Aliases []string // other names, mostly old ones, which schedule files and commands may use
	About   string   // the condition, as one line of text
	By      Programs // the programs that check the property
	Always  bool     // whether every search checks the property, even if the user did not select it
	// Unbroken means that every strategy must keep this property, even one whose orders we expect
	// to be unsafe or stuck.
	Unbroken bool
}

//go:embed properties.json
var propertyTable string

// Properties lists every property, with the most important one first.
var Properties = Parse[[]Property](propertyTable)

// FindProperty looks up a property by name. If the name is outdated, note says which name replaces
// it. For NoOversell, note says what the name means.
func FindProperty(name string) (p Property, note string, ok bool) {
	p, note, ok = find(Properties, name, func(p Property) (string, []string) { return p.Name, p.Aliases })
	if name == NoOversell {
		note = NoOversell + " is the name of " + OneWinner + " for orders with several units"
	}
	return p, note, ok
}

// Promise states the property in one sentence, worded for orders with the given number of units.
func (p Property) Promise(units int) string {
	switch {
	case units > 1 && p.Name == OneWinner:
		return "no order has more buyers than units: the ledger has at most one row for each unit"
	case units > 1 && p.Name == StuckOrder:
		return "after all leases have expired, a new driver gets one of the remaining units, or is told taken if there are none"
	default:
		return p.About
	}
}

// PropertiesBy lists the properties that a user can select in a program. It omits properties that are
// checked anyway.
func PropertiesBy(program Programs) []string {
	return Map(Filter(Properties, func(p Property) bool { return p.By&program != 0 && !p.Always }), func(p Property) string { return p.Name })
}
