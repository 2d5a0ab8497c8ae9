package explore

import (
	"slices"

	"grablab/internal/grab/lock"
	"grablab/internal/schedule"
)

// modes lists which failure modes break a property when such a fault strikes;
// "" is none. The first that the strategy is there to show is the one, and the
// first of all if it is there for none.
var modes = map[string]map[string][]string{
	OneWinner: {
		"":          {"F1", "F2"},
		Expiry:      {"F11", "F34", "F37", "F26"},
		Pause:       {"F11", "F34", "F37", "F26"},
		Restart:     {"F17", "F20", "F18", "F24"},
		twice:       {"F21", "F17", "F24"},
		NodeClock:   {"F19", "F17"},
		ClientClock: {"F9"},
		LateReply:   {"F12"},
		LostReply:   {"F33"},
		Cancel:      {"F5", "F6", "F35", "F36"},
	},
	LiveOverlap: {
		Expiry:      {"F5", "F6", "F7", "F35", "F36"},
		Pause:       {"F5", "F6", "F7", "F35", "F36"},
		Crash:       {"F7"},
		Restart:     {"F17", "F20", "F18", "F24"},
		twice:       {"F21", "F17", "F24"},
		NodeClock:   {"F19"},
		ClientClock: {"F9"},
	},
	LateHolder: {
		Expiry: {"F11", "F34", "F37"},
		Pause:  {"F11", "F34", "F37"},
	},
	StaleWrite:    {Expiry: {"F11"}, Pause: {"F11"}},
	Fence:         {Expiry: {"F26"}, Pause: {"F26"}, Restart: {"F27"}},
	Stuck:         {Crash: {"F3", "F4"}, LateReply: {"F14"}},
	Progress:      {"": {"F16"}},
	PromptRelease: {Expiry: {"F10"}, Pause: {"F10"}, Crash: {"F10"}},
	LeftOver:      {Cancel: {"F22"}, LostReply: {"F25"}, Expiry: {"F8"}, Pause: {"F8"}, Crash: {"F8"}},
	Told:          {Expiry: {"F13"}, Restart: {"F17", "F24"}, twice: {"F17", "F24"}},
}

// modeOf is the failure mode that a schedule shows; "": none that is known.
func modeOf(property string, st lock.Strategy, steps []schedule.Step) string {
	candidates := modes[property][faultOf(steps)]
	for _, id := range st.Breaks {
		if slices.Contains(candidates, id) {
			return id
		}
	}
	// Without a lock, or with one of a process, it is F1 or F2; what else breaks
	// without a fault has no name before somebody gives it one.
	if len(candidates) == 0 || faultOf(steps) == "" && property == OneWinner {
		return ""
	}
	return candidates[0]
}

// faultOf is the kind of the first fault of a schedule; "": none strikes.
func faultOf(steps []schedule.Step) string {
	first, restarts := "", 0
	for _, s := range steps {
		if first == "" {
			first = faultKinds[s.Kind]
		}
		if s.Kind == schedule.Restarts {
			restarts++
		}
	}
	if restarts > 1 {
		return twice
	}
	if first != "" {
		return first
	}
	if slices.ContainsFunc(steps, func(s schedule.Step) bool { return s.Kind == schedule.LeaseEnd }) {
		return Expiry
	}
	return ""
}

// twice is the fault of two restarts.
const twice = Restart + " twice"

var faultKinds = map[schedule.Kind]string{
	schedule.Paused:       Pause,
	schedule.Dies:         Crash,
	schedule.InstanceDies: Crash,
	schedule.Cancelled:    Cancel,
	schedule.Restarts:     Restart,
	schedule.Down:         Down,
	schedule.ClientClock:  ClientClock,
	schedule.NodeClock:    NodeClock,
	schedule.ReplyLost:    LostReply,
	schedule.ReplyLate:    LateReply,
	schedule.GivenUp:      LateReply,
}
