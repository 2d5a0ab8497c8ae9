package diagram

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"

	"grablab/internal/catalog"
)

// phrases contains the building blocks of explanations by language (en, zh, ja) and key.
var phrases = catalog.Parse[map[string]map[string]string](causeJSON)

//go:embed cause.json
var causeJSON string

// fact is one step in the explanation of what happened to an order. Its first field is the key for
// the phrase that describes the step.
type fact struct {
	what       string
	who, other *driverRow
	at         float64
	fault      string
}

// driverRow is one driver's row at one instance.
type driverRow struct {
	Row
	instance string
}

// findCause sets d.Cause to an explanation why the order was won once, twice or never. It sets nil if the
// diagram does not show the cause.
func (d *Diagram) findCause() {
	var all []*driverRow
	for _, l := range d.Lanes {
		for _, r := range l.Rows {
			all = append(all, &driverRow{r, l.Name})
		}
	}
	d.Cause = nil
	for _, find := range []func([]*driverRow) []fact{d.tooManyWrites, d.twoInside, d.refusal, d.noWinner} {
		if facts := find(all); len(facts) > 0 {
			slices.SortStableFunc(facts, byTime)
			d.Cause = d.sentences(all, facts)
			return
		}
	}
}

func writesOf(all []*driverRow) (writes []fact) {
	for _, w := range all {
		for _, m := range w.Marks {
			if m.Kind == Won || m.Kind == Second {
				writes = append(writes, fact{what: string(m.Kind), who: w, at: m.At})
			}
		}
	}
	slices.SortStableFunc(writes, byTime)
	return writes
}

func byTime(a, b fact) int { return cmp.Compare(a.at, b.at) }

// tooManyWrites explains why more drivers won an order than it has units, or returns nil if this
// did not happen.
func (d *Diagram) tooManyWrites(all []*driverRow) []fact {
	writes := writesOf(all)
	i := slices.IndexFunc(writes, func(f fact) bool { return f.what == string(Second) })
	if i < 1 {
		return nil
	}
	one, two := writes[i-1], writes[i]
	one.what, two.what = "won", "too"
	switch {
	case one.who == two.who:
		two.what = "again"
		return []fact{one, two}
	case d.Units > 1:
		two.what = "oversold"
	}
	a, b := one.who, two.who // a is the driver that got the lock first
	inA, lockedA := a.insideSpan(one.at)
	inB, lockedB := b.insideSpan(two.at)
	if inB.From < inA.From {
		a, b, inA, inB = b, a, inB, inA
	}
	if !lockedA && !lockedB {
		if reads := readsBefore(one, two); d.Units <= 1 && reads != nil {
			return append(reads, one, two)
		}
		return []fact{one, two}
	}
	if two.who == a && covers(a.Spans, two.at, Gap) && two.what == "too" {
		two.what = "unaware"
	}
	facts := d.secondGrant(all, a, b, inA, inB)
	if facts == nil {
		return []fact{one, two}
	}
	return append(facts, one, two)
}

// readsBefore returns both drivers' reads if both read the order before the first one wrote to it.
// Otherwise, it returns nil.
func readsBefore(one, two fact) []fact {
	a, okA := one.who.lastMark(Read, one.at)
	b, okB := two.who.lastMark(Read, two.at)
	if !okA || !okB || max(a.At, b.At) > one.at {
		return nil
	}
	reads := []fact{{what: "read", who: one.who, at: a.At}, {what: "read", who: two.who, at: b.At}}
	slices.SortFunc(reads, byTime)
	reads[1].what = "readToo"
	return reads
}

// secondGrant explains why driver b got the lock while a had it, or returns nil if it cannot tell.
func (d *Diagram) secondGrant(all []*driverRow, a, b *driverRow, inA, inB Span) (facts []fact) {
	if released, ok := a.lastMark(Released, inB.From); ok && released.At >= inA.From || inA.To < inB.From && !covers(a.Spans, inB.From, Fault) {
		return nil // a no longer had the lock, so b got it properly
	}
	if f, ok := d.faultOn(a, inA.From, inB.From); ok {
		facts = append(facts, f)
	}
	held, _ := a.lastSpan(Holds, inB.From)
	got := fact{what: "got", who: b, at: inB.From}
	switch end, ran := a.lastMark(LeaseEnd, inB.From); {
	case ran && end.At >= inA.From:
		facts = append(facts, fact{what: "expired", who: a, at: end.At})
	// A schedule has no mark for the end of a lease. Instead, its band says that time passes there.
	case d.Scale == InSteps && held.To <= inB.From && held.From >= inA.From && covers(d.Bands, held.To, Passes):
		facts = append(facts, fact{what: "expired", who: a, at: held.To})
	default:
		got.what, got.other = "gotToo", a
		for _, c := range all { // look for a driver that released a's lock after its own lease had ended
			gone, ok := c.lastMark(Released, inB.From)
			if own, had := c.lastSpan(Holds, gone.At); ok && c != a && c != b && gone.At > inA.From && had && own.To <= inA.From {
				return append(facts, fact{what: "freed", who: c, other: a, at: gone.At}, got)
			}
		}
		if held.To > inB.From && !held.Open && a.instance != b.instance {
			got.what = "ownLock"
		}
	}
	return append(facts, got)
}

// faultOn returns the earliest fault that may have let a second driver get the lock.
func (d *Diagram) faultOn(a *driverRow, from, to float64) (found fact, ok bool) {
	strikes := func(s Span) bool {
		return s.Kind == Fault && s.From <= to && s.To >= from && (!ok || s.From < found.at)
	}
	for _, s := range a.Spans {
		if strikes(s) {
			found, ok = fact{what: s.does, who: a, at: s.From, fault: string(d.fault)}, true
		}
	}
	for _, s := range d.Bands {
		if strikes(s) {
			found, ok = fact{what: "band", at: s.From, fault: s.Text}, true
		}
	}
	return found, ok
}

// twoInside explains how a second driver got the lock before the first one had finished, or returns
// nil if this did not happen.
func (d *Diagram) twoInside(all []*driverRow) []fact {
	if d.Lost == nil {
		return nil
	}
	for _, b := range all {
		inB, ok := b.lastSpan(Believes, *d.Lost)
		if !ok || math.Abs(inB.From-*d.Lost) > 0.01 {
			continue
		}
		for _, a := range all {
			if inA, ok := a.lastSpan(Believes, *d.Lost); a != b && ok && inA.To > *d.Lost {
				facts := d.secondGrant(all, a, b, inA, inB)
				if n := len(facts); n > 0 && facts[n-1].what == "got" {
					facts[n-1].what, facts[n-1].other = "gotToo", a
				}
				return facts
			}
		}
	}
	return nil
}

// refusal explains why a driver's write was refused after the driver had lost its lock.
func (d *Diagram) refusal(all []*driverRow) []fact {
	writes := writesOf(all)
	if len(writes) != 1 || d.Lost != nil {
		return nil
	}
	won := writes[0]
	won.what = "won"
	for _, a := range all {
		for _, m := range a.Marks {
			what := map[MarkKind]string{Refused: "refused", Loss: "stopped"}[m.Kind]
			inA, locked := a.insideSpan(m.At)
			inB, _ := won.who.insideSpan(won.at)
			// Skip this mark unless it shows that driver a lost its lock to the winner, which got the
			// lock later.
			if a == won.who || what == "" || !locked || m.At < won.at || inB.From < inA.From || what == "refused" && !covers(a.Spans, m.At, Gap) {
				continue
			}
			if facts := d.secondGrant(all, a, won.who, inA, inB); facts != nil {
				return append(facts, won, fact{what: what, who: a, at: m.At})
			}
		}
	}
	return nil
}

// noWinner explains why no driver won: a driver died or hung, and its lock may still block the
// others.
func (d *Diagram) noWinner(all []*driverRow) (facts []fact) {
	if len(writesOf(all)) > 0 {
		return nil
	}
	for _, a := range all {
		dies, dead := a.lastMark(Dies, d.End)
		struck, _ := a.lastSpan(Fault, d.End)
		switch {
		case dead:
			facts = []fact{{what: "dies", who: a, at: dies.At}}
		case struck.Open && struck.does == "hung":
			facts = []fact{{what: "hung", who: a, at: struck.From}}
		default:
			continue
		}
		if covers(a.Spans, d.End, Kept) || covers(a.Spans, d.End, Holds) {
			facts = append(facts, fact{what: "kept", who: a, at: facts[0].at})
		}
		for _, b := range all {
			if m, ok := b.lastMark(Denied, d.End); ok && b != a && m.At > facts[0].at {
				return append(facts, fact{what: "waits", who: b, at: m.At})
			}
		}
	}
	return nil
}

// lastSpan returns the driver's latest span of this kind that began no later than the given time.
func (w *driverRow) lastSpan(kind SpanKind, by float64) (found Span, ok bool) {
	for _, s := range w.Spans {
		if s.Kind == kind && s.From <= by && (!ok || s.From >= found.From) {
			found, ok = s, true
		}
	}
	return found, ok
}

func covers(spans []Span, at float64, kind SpanKind) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.Kind == kind && s.From <= at && s.To >= at })
}

// insideSpan returns the period in which the driver worked on the order. locked is true if the
// driver believed that it held a lock.
func (w *driverRow) insideSpan(by float64) (s Span, locked bool) {
	if s, locked = w.lastSpan(Believes, by); !locked {
		s, _ = w.lastSpan(Inside, by)
	}
	return s, locked
}

// lastMark returns the driver's latest mark of this kind that is no later than the given time.
func (w *driverRow) lastMark(kind MarkKind, by float64) (found Mark, ok bool) {
	for _, m := range w.Marks {
		if m.Kind == kind && m.At <= by && (!ok || m.At >= found.At) {
			found, ok = m, true
		}
	}
	return found, ok
}

// token describes the driver's fencing token, or returns "" if the driver has none.
func (f fact) token(words map[string]string) string {
	if f.who == nil {
		return ""
	}
	if s, ok := f.who.lastSpan(Believes, f.at); ok && s.token > 0 {
		return strings.Replace(words["token"], "{n}", fmt.Sprint(s.token), 1)
	}
	return ""
}

// sentences joins the facts into a sentence in each language. If a driver has rows at several
// instances, the sentence also names the instance.
func (d *Diagram) sentences(all []*driverRow, facts []fact) map[string]string {
	texts := map[string]string{}
	for lang, words := range phrases {
		name := func(w *driverRow) string {
			if w == nil {
				return ""
			}
			driver := strings.Replace(w.Name, "driver ", words["driver"], 1)
			if rows := catalog.Filter(all, func(r *driverRow) bool { return r.Name == w.Name }); len(rows) > 1 {
				driver += " (" + w.instance + ")"
			}
			return driver
		}
		var parts []string
		for i, f := range facts {
			key, at := f.what, strings.Replace(words["ms"], "{n} ms", inMS(f.at), 1)
			if d.Scale == InSteps {
				at = strings.Replace(words["step"], "{n}", fmt.Sprint(math.Ceil(f.at)), 1)
			}
			if other := words[key+"Of"]; other != "" && (i == 0 || facts[i-1].who != f.who) {
				key += "Of"
			}
			fill := strings.NewReplacer("{who}", name(f.who), "{token}", f.token(words), "{other}", name(f.other), "{at}", at, "{fault}", f.fault)
			parts = append(parts, fill.Replace(words[key]))
		}
		sentence := strings.Join(parts, words["join"]) + words["end"]
		if lang == "en" {
			sentence = catalog.Capital(sentence)
		}
		texts[lang] = sentence
	}
	return texts
}
