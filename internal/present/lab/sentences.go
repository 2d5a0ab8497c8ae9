package lab

import (
	_ "embed"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/present/diagram"
)

// sentences contains the building blocks of the sentence at the top of the page, by language.
var sentences = catalog.Parse[diagram.Phrases](sentencesJSON)

//go:embed sentences.json
var sentencesJSON string

// summary describes the state of the orders in each language. alarm is true if any order was
// oversold: sold more often than it has units.
func summary(s Settings, tiles []Tile, sums totals) (texts map[string]string, alarm bool) {
	won, several := 0, false
	var double *Tile // the last tile with that state
	for i, t := range tiles {
		switch t.State {
		case Won:
			won++
		case Double:
			double = &tiles[i]
		}
		several = several || t.Units > 1
	}
	counts := []any{"n", won, "of", len(tiles)}
	texts = map[string]string{}
	for lang := range sentences {
		say := func(key string, slots ...any) string { return sentences.Say(lang, key, slots...) }
		if sums.doubles > 0 && sums.opened > 1 {
			texts[lang] = say(map[bool]string{false: "doubles", true: "doublesUnits"}[several], "n", sums.doubles, "of", sums.opened)
		}
		switch {
		case len(tiles) == 0:
			texts[lang] = idleSentence(s, say)
		case double != nil:
			texts[lang] += oversoldSentence(*double, say)
		case several:
			texts[lang] += say("soldOut", counts...)
		default:
			texts[lang] += say("won", counts...)
		}
	}
	return texts, sums.doubles > 0
}

// idleSentence explains what a run with these settings will do.
func idleSentence(s Settings, say func(string, ...any) string) string {
	under, units := say("noFault"), ""
	if s.Fault != catalog.NoFault {
		under = say("under", "about", s.Fault.About(), "fault", s.Fault)
	}
	if s.units() > 1 {
		units = say("units", "n", s.units())
	}
	rate := strconv.FormatFloat(s.Rate, 'g', -1, 64)
	return say("idle", "drivers", s.drivers(), "units", units, "rate", rate, "strategy", s.Strategy, "guard", guardOf(s), "under", under)
}

// strikeSentence tells in each language which driver the fault hits.
func strikeSentence(fault catalog.Fault, driver, id int64, instance string) map[string]string {
	texts := map[string]string{}
	for lang := range sentences {
		texts[lang] = sentences.Say(lang, "strike", "fault", fault, "driver", driver, "id", id, "instance", instance)
	}
	return texts
}

// oversoldSentence names the winners of an oversold order.
func oversoldSentence(t Tile, say func(string, ...any) string) string {
	ids := catalog.Map(t.Rows, func(row string) string { return strings.TrimPrefix(row, "driver ") })
	if t.Units > 1 {
		return say("oversold", "id", t.ID, "rows", len(t.Rows), "units", t.Units, "ids", join(ids, say))
	}
	for i := range ids {
		ids[i] = say("driver") + ids[i]
	}
	return say("double", "id", t.ID, "rows", len(t.Rows), "who", join(ids, say))
}

// join joins names into a list such as "a, b and c", in say's language.
func join(names []string, say func(string, ...any) string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], say("list")) + say("last") + names[len(names)-1]
}
