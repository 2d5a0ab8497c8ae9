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

// Property is a condition that must hold even if faults occur.
type Property struct {
	Name    string
	Aliases []string // old names, which schedule files and command lines may still use
	About   string   // the condition, in one line
	By      Programs // the programs that check it
	Always  bool     // it is checked in every search
}

// Properties lists every property. The most important one comes first.
var Properties = []Property{
	{OneWinner, []string{NoOversell}, "no order is grabbed more than once: the ledger has at most one row for it", Run | Explore | Replay, false},
	{AnswersAgree, nil, "the drivers who were told that they won are the ones in the ledger", Run | Explore, false},
	{LeaseExclusive, []string{"live-overlap"}, "no lease is granted while another one is valid and not released, by the servers' clocks", Explore | Replay, false},
	{HoldersExclusive, []string{"holders-apart"}, "no two holders of a lock are in their critical sections at the same time, as observed by the instances", Run, false},
	{WritesExclusive, []string{"effects-apart"}, "no two successful writes to one order are in progress at the same time", Run, false},
	{Linearizable, nil, "the grabs of each order can be put in a sequence in which only the first one wins", Run, false},
	{WriteAfterExpiry, []string{"late-holder"}, "no holder writes after its lease has expired while another holder is inside", Explore | Replay, false},
	{StaleWrite, []string{"no-stale-write"}, "no write has a lower fencing token than the database has already seen", Run | Explore | Replay, false},
	{FenceMonotone, []string{"fence-monotone"}, "each acquisition gets a higher fencing token than all acquisitions that ended before it began", Run | Explore | Replay, false},
	{StuckOrder, []string{"nothing-stuck"}, "after all leases have expired, the grab of a new driver is answered", Run | Explore | Replay, false},
	{NoLostWakeup, []string{"progress"}, "a waiter gets a free lock within the time that its strategy promises", Explore, false},
	{ReleaseEffective, []string{"prompt-release"}, "a released lock can be taken immediately", Explore, false},
	{NoResidue, []string{"left-over"}, "a grab leaves nothing in the lock servers after it has ended", Explore, false},
	{LossNotified, []string{"told"}, "a holder is notified of a lost lease when it expires, when a renewal finds it gone, and before another driver gets the lock. It is not notified while the lease is valid", Explore, false},
	{LossHeeded, nil, "a holder that knows of its lost lease does not begin to write", Explore, false},
	{RenewsOwn, nil, "a renewal extends only its own holder's lease, and none is sent after the release", Explore, false},
	{WaitsAsTold, nil, "each waiter waits for exactly its wait time, fails only if something prevents an answer, and pauses between its attempts", Explore, false},
	{OrderOfService, nil, "waiters get the lock in the order in which they arrived, if their strategy promises that", Explore, false},
	{Survives, nil, "the strategy does not end or hang its process", Explore, true},
}

// FindProperty finds a property by its name. If the name is out of date, note says what the new one
// is.
func FindProperty(name string) (p Property, note string, ok bool) {
	p, note, ok = find(Properties, name, func(p Property) (string, []string) { return p.Name, p.Aliases })
	if name == NoOversell {
		note = NoOversell + " is the name of " + OneWinner + " for orders of several units"
	}
	return p, note, ok
}

// Promise says in a sentence what the property promises for orders with this many units.
func (p Property) Promise(units int) string {
	switch {
	case units > 1 && p.Name == OneWinner:
		return "no order is sold more often than it has units: the ledger has at most one row for each unit"
	case units > 1 && p.Name == StuckOrder:
		return "after all leases have expired, a new driver gets one of the remaining units, or is told taken if there are none"
	default:
		return p.About
	}
}

// PropertiesBy lists the properties that a program can check if the user asks for it.
func PropertiesBy(program Programs) []string {
	var names []string
	for _, p := range Properties {
		if p.By&program != 0 && !p.Always {
			names = append(names, p.Name)
		}
	}
	return slices.Clip(names)
}
