package catalog

import (
	_ "embed"
	"slices"
)

// These are the names of all properties.
const (
	OneWinner        = "one-winner"
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

// FindProperty looks up a property by its name or one of its other names.
func FindProperty(name string) (p Property, ok bool) {
	p = First(Properties, func(p Property) bool { return p.Name == name || slices.Contains(p.Aliases, name) })
	return p, p.Name != ""
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
