package schedule

import (
	"fmt"
	"strings"
	"time"

	"grablab/internal/catalog"
)

// A form defines the syntax of one kind of step, and the fault that injects it.
type form struct {
	text  string        // the syntax; words in angle brackets are placeholders, and all others are literal
	fault catalog.Fault // the fault that injects the step; empty if the step is no fault
	shows catalog.Facts // the facts that the step adds to a failure's explanation, such as a lost reply
}

// forms defines the syntax of each kind of step. If a line matches several entries, the first one
// applies.
var forms = []form{
	Begins:         {"<actor> begins", "", 0},
	Call:           {"<actor> <phase> <n> <target>", "", 0},
	ReplyLost:      {"<actor> <phase> <n> <target> reply lost", catalog.ReplyLost, catalog.ReplyWasLost},
	RequestLost:    {"<actor> <phase> <n> <target> request lost", catalog.ReplyLost, 0},
	SentTwice:      {"<actor> <phase> <n> <target> sent twice", catalog.SentTwice, catalog.ReplyWasLost},
	ReplyLate:      {"<actor> <phase> <n> <target> reply late", catalog.Latency, catalog.Delayed},
	Hears:          {"<actor> hears <phase> <n> <target>", "", 0},
	GivenUp:        {"<actor> <phase> <n> <target> given up", catalog.Latency, catalog.Delayed},
	ArrivesLate:    {"<actor> <phase> <n> <target> arrives late", "", 0},
	MessageLost:    {"<actor> <phase> <n> <target> message lost", catalog.MessageLost, catalog.WakeUpLost},
	MessageTwice:   {"<actor> <phase> <n> <target> message twice", catalog.MessageLost, catalog.WakeUpLost},
	MessageLate:    {"<actor> <phase> <n> <target> message late", catalog.MessageLost, catalog.WakeUpLost},
	MessagesArrive: {"<target> messages arrive", "", 0},
	Paused:         {"<actor> paused", catalog.Pause, 0},
	Resumes:        {"<actor> resumes", "", 0},
	Hangs:          {"<actor> hangs", catalog.Hang, catalog.Hung},
	Dies:           {"<actor> dies", catalog.Crash, catalog.Died},
	Cancelled:      {"<actor> cancelled", catalog.Cancel, catalog.Cancelled},
	InstanceDies:   {"instance <instance> dies", catalog.Crash, catalog.Died},
	CutOff:         {"instance <instance> cut off from <target>", catalog.Partition, catalog.CutOff},
	Reaches:        {"instance <instance> reaches <target>", "", 0},
	ClientClock:    {"instance <instance> clock <jump>", catalog.ClientClock, catalog.ClocksApart},
	Passes:         {"time passes <duration>", "", 0},
	NextTimer:      {"time to next timer", "", 0},
	LeaseEnd:       {"time to lease end", "", 0},
	Restarts:       {"<target> restarts", catalog.RedisRestart, 0},
	FailsOver:      {"<target> fails over", catalog.Failover, 0},
	Evicts:         {"<target> evicts", catalog.RedisFull, 0},
	Down:           {"<target> down", catalog.RedisDown, catalog.Unreachable},
	Up:             {"<target> up", "", 0},
	NodeClock:      {"<target> clock <jump>", catalog.NodeClock, 0},
}

// Fault returns the fault that injects steps of this kind. It returns "" for steps that need no
// fault.
func (k Kind) Fault() catalog.Fault { return forms[k].fault }

// Shows returns the facts that steps of this kind reveal about the cause of a failure.
func (k Kind) Shows() catalog.Facts { return forms[k].shows }

// String returns the step as one line of a schedule.
func (s Step) String() string { return forms[s.Kind].print(s) }

func (f form) words() []string { return strings.Fields(f.text) }

func (f form) print(s Step) string {
	words := f.words()
	for i, w := range words {
		if field, ok := fields[w]; ok {
			words[i] = field.print(s)
		}
	}
	return strings.Join(words, " ")
}

// signed formats a duration with its sign, such as "+10s" or "-10s".
func signed(d time.Duration) string {
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

// String returns the text of the schedule in the format that Parse reads.
func (s Schedule) String() string {
	var b strings.Builder
	for _, h := range headers {
		if value := h.words.print(s); value != "" {
			fmt.Fprintf(&b, "%s %s\n", h.name, value)
		}
	}
	b.WriteByte('\n')
	for _, step := range s.Steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}
