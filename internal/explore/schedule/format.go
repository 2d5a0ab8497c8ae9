package schedule

import (
	"fmt"
	"strings"
	"time"
)

// String returns the step as one line of a schedule.
func (s Step) String() string {
	for _, f := range forms {
		if f.kind == s.Kind {
			return f.print(s)
		}
	}
	return fmt.Sprintf("step of kind %d", int(s.Kind))
}

// A form is the syntax of one kind of step. Words in angle brackets stand for values, and all other
// words are literal.
type form struct {
	kind Kind
	text string
}

// forms lists the syntax of all kinds of steps. If several forms match a line, the first one
// applies.
var forms = []form{
	{Begins, "<actor> begins"},
	{Call, "<actor> <phase> <n> <target>"},
	{ReplyLost, "<actor> <phase> <n> <target> reply lost"},
	{SentTwice, "<actor> <phase> <n> <target> sent twice"},
	{ReplyLate, "<actor> <phase> <n> <target> reply late"},
	{Hears, "<actor> hears <phase> <n> <target>"},
	{GivenUp, "<actor> <phase> <n> <target> given up"},
	{ArrivesLate, "<actor> <phase> <n> <target> arrives late"},
	{MessageLost, "<actor> <phase> <n> <target> message lost"},
	{MessageTwice, "<actor> <phase> <n> <target> message twice"},
	{MessageLate, "<actor> <phase> <n> <target> message late"},
	{MessagesArrive, "<target> messages arrive"},
	{Paused, "<actor> paused"},
	{Resumes, "<actor> resumes"},
	{Hangs, "<actor> hangs"},
	{Dies, "<actor> dies"},
	{Cancelled, "<actor> cancelled"},
	{InstanceDies, "instance <instance> dies"},
	{CutOff, "instance <instance> cut off from <target>"},
	{Reaches, "instance <instance> reaches <target>"},
	{ClientClock, "instance <instance> clock <jump>"},
	{Passes, "time passes <duration>"},
	{NextTimer, "time to next timer"},
	{LeaseEnd, "time to lease end"},
	{Restarts, "<target> restarts"},
	{FailsOver, "<target> fails over"},
	{Evicts, "<target> evicts"},
	{Down, "<target> down"},
	{Up, "<target> up"},
	{NodeClock, "<target> clock <jump>"},
}

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

// signed formats a clock change with its sign, such as "+10s" or "-10s".
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
		if value := h.print(s); value != "" {
			fmt.Fprintf(&b, "%s %s\n", h.name, value)
		}
	}
	b.WriteByte('\n')
	for _, step := range s.Steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}
