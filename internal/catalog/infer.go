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
	shownFacts Facts    // all of these facts must hold
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
	{shownFacts: FreedAnother, known: blind},
	{shownFacts: ReleasedLate, known: blind},
	// Rules for orders with units that Redis has reserved but the database has not recorded.
	{properties: []string{StuckOrder}, known: []string{"F42"}},
	{properties: []string{OneWinner}, shownFacts: ReplyWasLost, known: []string{"F44"}},
	{properties: []string{OneWinner}, shownFacts: CutOff, known: []string{"F44"}},
	{properties: []string{OneWinner}, shownFacts: Forgotten, known: []string{"F43"}},
	{properties: []string{OneWinner}, shownFacts: Evicted, known: []string{"F43"}},
	{properties: []string{OneWinner}, shownFacts: TwoMasters, known: []string{"F43"}},
	// Without a lock that all processes share, these failures happen without any fault.
	{properties: exclusion, known: []string{"F1", "F2"}},
	{properties: exclusion, shownFacts: SessionClosed, known: []string{"F32", "F33"}},
	{properties: exclusion, known: []string{"F31"}}, // two drivers of one process are enough
	{properties: []string{OneWinner, StaleWrite, FenceMonotone}, shownFacts: FenceFell, otherwise: "F27"},
	{properties: exclusive, shownFacts: FreedAnother | AskedFirst, otherwise: "F6"},
	{properties: exclusive, shownFacts: FreedAnother, otherwise: "F5"},
	{properties: []string{OneWinner}, shownFacts: ReplyWasLost, not: LeaseEnded, otherwise: "F33"},
	{properties: exclusion, shownFacts: ClockJumped, known: []string{"F34", "F37"}},
	{properties: exclusion, shownFacts: WriteLate, known: []string{"F34", "F37", "F26"}, otherwise: "F40"},
	{properties: exclusion, shownFacts: LeaseEnded | CutOff, known: []string{"F34", "F37", "F26", "F29", "F13"}},
	{properties: exclusion, shownFacts: LeaseEnded, known: []string{"F34", "F37", "F26", "F29"}, otherwise: "F11"},
	// A lock that checks its lease again before the write notices a grant that came too late. It does
	// not notice if the reply to this check is late too.
	{properties: []string{OneWinner, WriteAfterExpiry}, shownFacts: GrantLate, known: []string{"F37"}},
	{properties: []string{OneWinner, HoldersExclusive, WriteAfterExpiry}, shownFacts: GrantLate, otherwise: "F12"},
	{properties: exclusive, shownFacts: TakenOver | ClocksApart, otherwise: "F9"},
	{properties: exclusive, shownFacts: TakenOver, known: []string{"F7"}},
	{properties: exclusive, shownFacts: ClockJumped, otherwise: "F19"},
	{properties: exclusive, shownFacts: ForgottenTwice, known: []string{"F21", "F17", "F24"}, otherwise: "F21"},
	{properties: exclusive, shownFacts: Forgotten, known: []string{"F20", "F18", "F24"}, otherwise: "F17"},
	{properties: exclusive, shownFacts: Evicted, known: []string{"F20"}, otherwise: "F38"},
	{properties: exclusive, shownFacts: TwoMasters, known: []string{"F20"}, otherwise: "F39"},
	{properties: []string{WriteAfterExpiry}, shownFacts: LeaseEnded, known: []string{"F34", "F37"}, otherwise: "F11"},
	{properties: []string{WriteAfterExpiry}, shownFacts: ClockJumped, known: []string{"F37"}, otherwise: "F19"},
	{properties: []string{StaleWrite}, shownFacts: LeaseEnded, otherwise: "F11"},
	{properties: []string{FenceMonotone}, shownFacts: LeaseEnded, otherwise: "F26"},
	{properties: []string{StuckOrder}, shownFacts: Hung, otherwise: "F15"},
	{properties: []string{StuckOrder}, shownFacts: ReplyWasLost, otherwise: "F25"},
	{properties: []string{StuckOrder}, shownFacts: Cancelled, known: []string{"F14"}, otherwise: "F22"},
	{properties: []string{StuckOrder}, known: []string{"F3", "F4", "F31"}},
	{properties: []string{StuckOrder}, shownFacts: Delayed, known: []string{"F14"}},
	{properties: []string{NoLostWakeup}, not: Died | Unreachable | ReplyWasLost | Delayed | WakeUpLost, otherwise: "F16"},
	{properties: []string{ReleaseEffective}, shownFacts: Overwritten, known: []string{"F10"}},
	{properties: []string{ReleaseEffective}, shownFacts: ReplyWasLost, known: []string{"F25"}},
	{properties: []string{NoResidue}, shownFacts: Cancelled, otherwise: "F22"},
	{properties: []string{NoResidue}, shownFacts: ReplyWasLost, otherwise: "F25"},
	{properties: []string{NoResidue}, known: []string{"F8"}},
	{properties: []string{LossNotified}, shownFacts: LeaseEnded, otherwise: "F13"},
	{properties: []string{LossNotified}, shownFacts: ClockJumped, otherwise: "F19"},
	{properties: []string{LossNotified}, shownFacts: Evicted, otherwise: "F38"},
	{properties: []string{LossNotified}, shownFacts: Forgotten, known: []string{"F24"}, otherwise: "F17"},
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
	return (i.properties == nil || slices.Contains(i.properties, property)) && shown&i.shownFacts == i.shownFacts && shown&i.not == 0
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
