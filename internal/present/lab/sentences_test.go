package lab

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
)

func TestStrikeSentence(t *testing.T) {
	texts := strikeSentence(catalog.Pause, 3, 245, "8004")
	if want := "pause strikes driver 3 of order 245 at instance 8004, which is about to write"; texts["en"] != want {
		t.Errorf("got %q, want %q", texts["en"], want)
	}
	for lang, text := range texts {
		if strings.ContainsAny(text, "{}") || lang != "en" && text == texts["en"] {
			t.Errorf("%s: %q", lang, text)
		}
	}
}

func TestSummary(t *testing.T) {
	rows := []string{"driver 1 (8004)", "driver 2 (8005)"}
	won := Tile{ID: 6, Units: 1, State: Won, Rows: rows[:1]}
	double := Tile{ID: 7, Units: 1, State: Double, Rows: rows}
	for _, tt := range []struct {
		tiles []Tile
		sums  totals
		want  string
		alarm bool
	}{
		{nil, totals{}, "Nothing runs. Start sends 5 drivers to each order, 100 grabs a second, with setnx and the guard naive; " + firstSettings.Fault.About() + ".", false},
		{[]Tile{won}, totals{opened: 1}, "1 of the last 1 orders are won, each by one driver.", false},
		{[]Tile{won, double}, totals{opened: 300, doubles: 1}, "Orders with more than one row: 1 of 300. Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{won}, totals{opened: 300, doubles: 3}, "Orders with more than one row: 3 of 300. 1 of the last 1 orders are won, each by one driver.", true},
		{[]Tile{double}, totals{opened: 1, doubles: 1}, "Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
		{[]Tile{double, won, double}, totals{opened: 3, doubles: 2}, "Orders with more than one row: 2 of 3. Order 7 has 2 rows: driver 1 (8004) and driver 2 (8005) won.", true},
	} {
		texts, alarm := summary(firstSettings, tt.tiles, tt.sums)
		if texts["en"] != tt.want || alarm != tt.alarm {
			t.Errorf("got %q, alarm %v, want %q, alarm %v", texts["en"], alarm, tt.want, tt.alarm)
		}
		for lang, text := range texts {
			if text == "" || strings.ContainsAny(text, "{}") || lang != "en" && text == texts["en"] {
				t.Errorf("%s: %q", lang, text)
			}
		}
	}
}

// TestSentencesInEachLanguage checks that each language has the same sentences with the same slots.
func TestSentencesInEachLanguage(t *testing.T) {
	slot := regexp.MustCompile(`{\w+}`)
	for lang, all := range sentences {
		for key, en := range sentences["en"] {
			text, ok := all[key]
			used := slot.FindAllString(text, -1)
			for _, s := range slot.FindAllString(en, -1) {
				if key != "under" && !slices.Contains(used, s) {
					t.Errorf("%s: %s lacks %s", lang, key, s)
				}
			}
			if !ok || len(all) != len(sentences["en"]) {
				t.Errorf("%s lacks the sentence %s, or has sentences that English lacks", lang, key)
			}
		}
	}
}
