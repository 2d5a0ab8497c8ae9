package catalog

import "slices"

// The properties.
const (
	OneWinner        = "one-winner"
	NoOversell       = "no-oversell" // OneWinner for orders of several units
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

// Property is a condition that must hold whatever goes wrong.
type Property struct {
	Name    string
	Aliases []string // old names, which schedule files and command lines may still use
	About   string   // the condition, in one line
	By      Programs // the programs that check it
	Always  bool     // it is checked in every search
}

// Properties lists every property, the most important first.
var Properties = []Property{
	{OneWinner, []string{NoOversell}, "no order is grabbed more than once: the ledger has one row for it at most", Run | Explore | Replay, false},
	{AnswersAgree, nil, "the drivers who were told that they won are those in the ledger", Run, false},
	{LeaseExclusive, []string{"live-overlap"}, "no lease is granted while another one runs, by the servers' clocks, that was not released", Explore | Replay, false},
	{HoldersExclusive, []string{"holders-apart"}, "no two holders of one lock are inside their critical sections at once, as the instances observed", Run, false},
	{WritesExclusive, []string{"effects-apart"}, "no two claims of one order that wrote were in flight at once", Run, false},
	{Linearizable, nil, "the grabs of every order can be put in one sequence in which the first wins, and only it", Run, false},
	{WriteAfterExpiry, []string{"late-holder"}, "no holder writes after its lease has run out while another is inside", Explore | Replay, false},
	{StaleWrite, []string{"no-stale-write"}, "no write carries a lower fencing token than one that the database had seen before", Run | Explore | Replay, false},
	{FenceMonotone, []string{"fence-monotone"}, "every acquisition gets a higher fencing token than those that were over before it was asked for", Run | Explore | Replay, false},
	{StuckOrder, []string{"nothing-stuck"}, "once all leases have run out, a fresh driver's grab is answered", Run | Explore | Replay, false},
	{NoLostWakeup, []string{"progress"}, "a waiter for a lock that is free gets it within the time that its strategy promises", Explore, false},
	{ReleaseEffective, []string{"prompt-release"}, "a lock that was released can be taken at once", Explore, false},
	{NoResidue, []string{"left-over"}, "a grab that has ended leaves nothing in the lock servers", Explore, false},
	{LossNotified, []string{"told"}, "a holder knows that its lease is lost when it runs out, before another gets the lock, and once its renewal has found it gone; and not while it runs", Explore, false},
	{LossHeeded, nil, "a holder that was told that its lease is lost does not begin to write", Explore, false},
	{RenewsOwn, nil, "a renewal lengthens the lease of its own holder, and no other, and none is sent after the release", Explore, false},
	{WaitsAsTold, nil, "no waiter gives up before its wait is over, or fails where nothing is in its way, none waits for longer, and none asks without a pause", Explore, false},
	{OrderOfService, nil, "waiters get the lock in the order in which they came, as far as their strategy promises it", Explore, false},
	{Survives, nil, "the strategy neither ends nor hangs its process", Explore, true},
}

// FindProperty looks up a property by its current name or by an old one. If name is an old
// name, note says in one line what it is called now. Otherwise note is empty.
func FindProperty(name string) (p Property, note string, ok bool) {
	p, note, ok = find(Properties, name, func(p Property) (string, []string) { return p.Name, p.Aliases })
	if name == NoOversell {
		note = NoOversell + " is " + OneWinner + " of an order that has several units"
	}
	return p, note, ok
}

// Promise returns the description of the property for orders with this number of units.
func (p Property) Promise(units int) string {
	switch {
	case units > 1 && p.Name == OneWinner:
		return "no order is sold more often than it has units: the ledger has a row a unit at most"
	case units > 1 && p.Name == StuckOrder:
		return "once all leases have run out, a fresh driver gets one of the units that are left, and is told taken where none is"
	default:
		return p.About
	}
}

// PropertiesBy lists the names of the properties that a program can be asked to check, in
// the order of the table. It leaves out the properties that are always checked.
func PropertiesBy(program Programs) []string {
	var names []string
	for _, p := range Properties {
		if p.By&program != 0 && !p.Always {
			names = append(names, p.Name)
		}
	}
	return slices.Clip(names)
}
