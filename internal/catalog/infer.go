package catalog

import (
	_ "embed"
	"slices"
)

// Facts is a set of facts about a failure, such as "a reply was lost".
type Facts uint32

// These are the facts about a failure. The first group explains how a driver could get the lock while
// another driver still held it.
const (
	LeaseEnded     Facts = 1 << iota // the lease ended, by its server's clock
	GrantLate                        // the reply that granted the lock arrived after the lease had ended
	FreedAnother                     // a release freed another holder's lock
	TakenOver                        // an acquire took a lock whose lease was still valid
	Overwritten                      // a failed acquire changed the value that a holder had set
	Forgotten                        // a server forgot a lease that was still valid
	ForgottenTwice                   // a server forgot a lease a second time
	Evicted                          // a server dropped the lock because it was out of memory
	TwoMasters                       // two servers acted as master
	ClockJumped                      // a server's clock jumped past the end of the lease
	SessionClosed                    // the database closed the session that owned the lock
	WriteLate                        // a write arrived after the lease had ended
	FenceFell                        // a later holder got a lower fencing token
	FenceAtWrite                     // fencing tokens are compared only at the write

	// The facts in this group describe other events.
	ClocksApart  // the wall clocks of two clients differed
	CutOff       // a client could not reach a server that other clients reached
	Hung         // a holder's work never returned
	Died         // a process died
	Unreachable  // no client could reach a server
	ReplyWasLost // a call was executed, but its caller got an error
	Cancelled    // a client disconnected
	Delayed      // a request arrived after its caller had stopped waiting
	ReleasedLate // a holder released after its lease had ended
	WakeUpLost   // a message to waiters was lost or late
	AskedFirst   // a release checked the owner in a separate step and then freed another holder's lock
)

// factNames lists the fact names in the order of their constants.
var factNames = []string{
	"lease-ended", "grant-late", "freed-another", "taken-over", "overwritten", "forgotten",
	"forgotten-twice", "evicted", "two-masters", "clock-jumped", "session-closed", "write-late",
	"fence-fell", "fence-at-write", "clocks-apart", "cut-off", "hung", "died", "unreachable",
	"reply-was-lost", "cancelled", "delayed", "released-late", "wake-up-lost", "asked-first",
}

// UnmarshalJSON decodes a list of names.
func (f *Facts) UnmarshalJSON(list []byte) error { return unmarshalSet(list, factNames, f) }

// inference is a rule that infers a failure mode from facts about a failure. It applies only if all its
// conditions are met.
type inference struct {
	About      string   // the purpose of the rule; may be empty
	Properties []string // the violated properties to which the rule applies; nil means all
	Shown      Facts    // all of these facts must hold
	Not        Facts    // none of these facts may hold

	Known     []string // failure modes that the rule can infer; the first one that the strategy is known to have wins
	Otherwise string   // the fallback if the strategy has none of them; if empty, the next rule is tried
}

//go:embed inferences.json
var inferenceTable string

// inferences lists the rules. The first rule that applies decides.
var inferences = Parse[[]inference](inferenceTable)

// ModeOf infers why a property was violated, from facts about the failure and the strategy's known
// failure modes. It returns false if no mode fits.
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
	return (i.Properties == nil || slices.Contains(i.Properties, property)) && shown&i.Shown == i.Shown && shown&i.Not == 0
}

// answer returns the first failure mode in Known that the strategy is known to have, or else Otherwise.
// It also accepts F34 for any strategy that compares its fencing token only at the write, even if F34 is
// not among its known modes.
func (i inference) answer(shown Facts, known []string) string {
	for _, id := range i.Known {
		if slices.Contains(known, id) || id == "F34" && shown&FenceAtWrite != 0 {
			return id
		}
	}
	return i.Otherwise
}
