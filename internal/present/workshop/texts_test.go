package workshop

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestTextsAgree checks that all languages have the same sentences, with the same slots and figures.
func TestTextsAgree(t *testing.T) {
	english := loaded(t, Languages[0])
	figures := regexp.MustCompile(`\d+`)
	found := func(text string, what *regexp.Regexp) []string {
		all := slices.Sorted(slices.Values(what.FindAllString(text, -1)))
		return slices.Compact(all)
	}
	for _, lang := range Languages[1:] {
		texts := loaded(t, lang)
		if got, want := keysOf(texts), keysOf(english); !slices.Equal(got, want) {
			t.Errorf("%s: keys that only one of the two languages has: %v", lang, difference(got, want))
		}
		for _, k := range keysOf(english) {
			was, is := english.byKey[k], texts.byKey[k]
			if got, want := found(is, slots), found(was, slots); !slices.Equal(got, want) {
				t.Errorf("%s: %s has the slots %v, want %v", lang, k, got, want)
			}
			bare := func(text string) string { return slots.ReplaceAllString(text, "") }
			if got, want := found(bare(is), figures), found(bare(was), figures); !slices.Equal(got, want) {
				t.Errorf("%s: %s has the figures %v, want %v", lang, k, got, want)
			}
			wide := strings.ContainsFunc(is, func(r rune) bool {
				return unicode.Is(unicode.Han, r) || unicode.Is(unicode.Hiragana, r) || unicode.Is(unicode.Katakana, r)
			})
			if words := strings.Fields(bare(was)); len(words) > 2 && !wide {
				t.Errorf("%s: %s is not translated: %s", lang, k, is)
			}
		}
	}
}

func difference(a, b []string) (only []string) {
	for _, k := range slices.Concat(a, b) {
		if slices.Contains(a, k) != slices.Contains(b, k) {
			only = append(only, k)
		}
	}
	return only
}

// TestTextsAreUsed checks that every exercise has all its sentences, and that every sentence is used.
func TestTextsAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, e := range Exercises {
		for _, k := range []string{"title", "ask", "words", "look", "moral"} {
			used[key(e, k)] = true
		}
		for _, o := range strings.Split(e.Options, "") {
			used[key(e, o)], used[key(e, "why."+o)] = true, true
		}
		for i := range e.Questions {
			used[key(e, question(i)+".ask")] = true
		}
		for i := range e.Hints {
			used[key(e, fmt.Sprintf("hint%d", i+1))] = true
		}
	}
	for _, j := range judgements {
		if j.why != other {
			used[fmt.Sprintf("%d.q%d.%s", j.exercise, j.question, j.why)] = true
		}
	}
	for _, k := range keysOf(loaded(t, Languages[0])) {
		if !strings.HasPrefix(k, "ui.") && !used[k] {
			t.Errorf("nothing shows %s", k)
		}
		delete(used, k)
	}
	for k := range used {
		t.Errorf("there is no %s", k)
	}
}

func TestFromLocale(t *testing.T) {
	for locale, want := range map[string]string{
		"": "en", "C": "en", "C.UTF-8": "en", "POSIX": "en", "en_US.UTF-8": "en", "de_DE.UTF-8": "en",
		"zh_CN.UTF-8": "zh", "zh": "zh", "zh_SG": "zh", "ja_JP.eucJP": "ja", "ja": "ja", "ja_JP.UTF-8@cjkwide": "ja",
	} {
		if got := FromLocale(locale); got != want {
			t.Errorf("FromLocale(%q) = %s, want %s", locale, got, want)
		}
	}
}

// TestListIsAligned checks that the columns of the list of exercises are aligned in every language.
func TestListIsAligned(t *testing.T) {
	for _, lang := range Languages {
		var out bytes.Buffer
		s := &Session{Texts: loaded(t, lang), Progress: &Progress{Exercises: map[int]*State{}}, Out: &out, Program: "loadgen"}
		s.List()
		lines := strings.Split(out.String(), "\n")
		at := -1
		for _, line := range lines[1 : 1+len(Exercises)] {
			i := strings.Index(line, "0/")
			if w := Width(line[:i]); at >= 0 && w != at {
				t.Errorf("%s: points begin in column %d, above in %d:\n%s", lang, w, at, out.String())
			} else {
				at = w
			}
		}
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "lock": 4, "锁": 2, "ロック": 6, "setnx の鍵": 10, "，": 2, "é": 1} {
		if got := Width(text); got != want {
			t.Errorf("%q: %d columns, want %d", text, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text    string
		columns int
		want    string
	}{
		{"a check is worth", 8, "a check|is worth"},
		{"没有锁，没有锁。", 8, "没有锁，|没有锁。"},
		{"没有锁，没有锁。", 6, "没有|锁，没|有锁。"},
		{"用 setnx 加锁", 8, "用 setnx|加锁"},
		{"unbreakable", 4, "unbreakable"},
		{"one\ntwo", 20, "one|two"},
	} {
		if got := strings.Join(Wrap(tt.text, tt.columns), "|"); got != tt.want {
			t.Errorf("%q in %d columns: %q, want %q", tt.text, tt.columns, got, tt.want)
		}
	}
}

// keysOf returns the sorted keys of all sentences.
func keysOf(t *Texts) []string { return slices.Sorted(maps.Keys(t.byKey)) }
