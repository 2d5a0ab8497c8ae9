package catalog

import "slices"

// Facts is a set of facts about a failure, such as "a reply was lost".
type Facts uint32

// These are the facts about a failure. The first group says how a second driver got the lock while
// another driver still held it.
const (
	LeaseEnded     Facts = 1 << iota // the lease ended, by its server's clock
	GrantLate                        // the reply that granted the lock came after the lease had ended
	FreedAnother                     // a release freed the lock of another holder
	TakenOver                        // an acquire took a lock whose lease was still valid
	Overwritten                      // a failed acquire changed what a holder had set
	Forgotten                        // a server forgot a lease that was still valid
	ForgottenTwice                   // a server forgot a lease for the second time
	Evicted                          // a server that was out of memory dropped the lock
	TwoMasters                       // two servers acted as master
	ClockJumped                      // a server's clock jumped past the end of the lease
	SessionClosed                    // the database closed the session that the lock lived in
	WriteLate                        // a write arrived after the lease had ended
	FenceFell                        // a later holder got a lower fencing token
	FenceAtWrite                     // fencing tokens are compared only at the write

	// What else happened.
	ClocksApart  // the wall clocks of two clients differed
	CutOff       // a client did not reach a server that others reached
	Hung         // the work of a holder never returned
	Died         // a process died
	Unreachable  // no client could reach a server
	ReplyWasLost // a call was executed, and its caller got an error
	Cancelled    // a client hung up
	Delayed      // a request arrived after its caller had given up
	ReleasedLate // a holder released after its lease had ended
	WakeUpLost   // a message to waiters was lost or late
	AskedFirst   // a release checked the owner, and then freed another holder's lock
)

// inference is a rule that infers a failure mode from facts. It applies if all of its conditions are
// true.
type inference struct {
	properties []string // the broken property must be one of these; nil means any
	shown      Facts    // all of these facts must hold
	not        Facts    // none of these facts may hold

	known     []string // the answer is the first of these modes by which the strategy is known to break
	otherwise string   // the answer if there is no such mode; if empty, the next line is tried
}

// These groups of properties or facts are used by several rules.
var (
	exclusion = []string{OneWinner, HoldersExclusive}
	exclusive = []string{OneWinner, HoldersExclusive, LeaseExclusive}
	blind     = []string{"F5", "F6", "F35", "F36"} // modes in which a release frees another holder's lock
)

// inferences lists the rules. The first rule that applies decides the failure mode.
var inferences = []inference{
	{shown: FreedAnother, known: blind},
	{shown: ReleasedLate, known: blind},
	// Rules for orders with units that Redis has reserved but the database has not recorded.
	{properties: []string{StuckOrder}, known: []string{"F42"}},
	{properties: []string{OneWinner}, shown: ReplyWasLost, known: []string{"F44"}},
	{properties: []string{OneWinner}, shown: CutOff, known: []string{"F44"}},
	{properties: []string{OneWinner}, shown: Forgotten, known: []string{"F43"}},
	{properties: []string{OneWinner}, shown: Evicted, known: []string{"F43"}},
	{properties: []string{OneWinner}, shown: TwoMasters, known: []string{"F43"}},
	// Without a lock that all processes share, these failures happen without any fault.
	{properties: exclusion, known: []string{"F1", "F2"}},
	{properties: exclusion, shown: SessionClosed, known: []string{"F32", "F33"}},
	{properties: exclusion, known: []string{"F31"}}, // two drivers of one process are enough
	{properties: []string{OneWinner, StaleWrite, FenceMonotone}, shown: FenceFell, otherwise: "F27"},
	{properties: exclusive, shown: FreedAnother | AskedFirst, otherwise: "F6"},
	{properties: exclusive, shown: FreedAnother, otherwise: "F5"},
	{properties: []string{OneWinner}, shown: ReplyWasLost, not: LeaseEnded, otherwise: "F33"},
	{properties: exclusion, shown: ClockJumped, known: []string{"F34", "F37"}},
	{properties: exclusion, shown: WriteLate, known: []string{"F34", "F37", "F26"}, otherwise: "F40"},
	{properties: exclusion, shown: LeaseEnded | CutOff, known: []string{"F34", "F37", "F26", "F29", "F13"}},
	{properties: exclusion, shown: LeaseEnded, known: []string{"F34", "F37", "F26", "F29"}, otherwise: "F11"},
	// A lock that checks its lease again before the write notices a grant that came too late. It does
	// not notice if the reply to this check is late too.
	{properties: []string{OneWinner, WriteAfterExpiry}, shown: GrantLate, known: []string{"F37"}},
	{properties: []string{OneWinner, HoldersExclusive, WriteAfterExpiry}, shown: GrantLate, otherwise: "F12"},
	{properties: exclusive, shown: TakenOver | ClocksApart, otherwise: "F9"},
	{properties: exclusive, shown: TakenOver, known: []string{"F7"}},
	{properties: exclusive, shown: ClockJumped, otherwise: "F19"},
	{properties: exclusive, shown: ForgottenTwice, known: []string{"F21", "F17", "F24"}, otherwise: "F21"},
	{properties: exclusive, shown: Forgotten, known: []string{"F20", "F18", "F24"}, otherwise: "F17"},
	{properties: exclusive, shown: Evicted, known: []string{"F20"}, otherwise: "F38"},
	{properties: exclusive, shown: TwoMasters, known: []string{"F20"}, otherwise: "F39"},
	{properties: []string{WriteAfterExpiry}, shown: LeaseEnded, known: []string{"F34", "F37"}, otherwise: "F11"},
	{properties: []string{WriteAfterExpiry}, shown: ClockJumped, known: []string{"F37"}, otherwise: "F19"},
	{properties: []string{StaleWrite}, shown: LeaseEnded, otherwise: "F11"},
	{properties: []string{FenceMonotone}, shown: LeaseEnded, otherwise: "F26"},
	{properties: []string{StuckOrder}, shown: Hung, otherwise: "F15"},
	{properties: []string{StuckOrder}, shown: ReplyWasLost, otherwise: "F25"},
	{properties: []string{StuckOrder}, shown: Cancelled, known: []string{"F14"}, otherwise: "F22"},
	{properties: []string{StuckOrder}, known: []string{"F3", "F4", "F31"}},
	{properties: []string{StuckOrder}, shown: Delayed, known: []string{"F14"}},
	{properties: []string{NoLostWakeup}, not: Died | Unreachable | ReplyWasLost | Delayed | WakeUpLost, otherwise: "F16"},
	{properties: []string{ReleaseEffective}, shown: Overwritten, known: []string{"F10"}},
	{properties: []string{ReleaseEffective}, shown: ReplyWasLost, known: []string{"F25"}},
	{properties: []string{NoResidue}, shown: Cancelled, otherwise: "F22"},
	{properties: []string{NoResidue}, shown: ReplyWasLost, otherwise: "F25"},
	{properties: []string{NoResidue}, known: []string{"F8"}},
	{properties: []string{LossNotified}, shown: LeaseEnded, otherwise: "F13"},
	{properties: []string{LossNotified}, shown: ClockJumped, otherwise: "F19"},
	{properties: []string{LossNotified}, shown: Evicted, otherwise: "F38"},
	{properties: []string{LossNotified}, shown: Forgotten, known: []string{"F24"}, otherwise: "F17"},
}

// ModeOf infers why a property was violated, from the facts about the failure and the known failure
// modes of the strategy. It returns false if no mode fits.
func ModeOf(property string, shown Facts, known []string) (Mode, bool) {
	for _, line := range inferences {
		if line.fits(property, shown) {
			if m, ok := FindMode(line.answer(shown, known)); ok {
				return m, true
			}
		}
	}
	return Mode{}, false
}

func (i inference) fits(property string, shown Facts) bool {
	return (i.properties == nil || slices.Contains(i.properties, property)) && shown&i.shown == i.shown && shown&i.not == 0
}

// answer returns the failure mode that the rule infers, or "". Failure mode F34 is possible only with
// a guard that compares tokens only at the write.
func (i inference) answer(shown Facts, known []string) string {
	for _, id := range i.known {
		if slices.Contains(known, id) || id == "F34" && shown&FenceAtWrite != 0 {
			return id
		}
	}
	return i.otherwise
}
