package catalog

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Plural returns a number with the correct form of its noun, such as "1 order" or "2 orders".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Capital capitalizes the first character of text, which must be ASCII.
func Capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// List joins words for use in a sentence, as in "a, b and c".
func List(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Wrap breaks text at spaces into lines of at most width characters. It also breaks words that are
// longer than a line.
func Wrap(text string, width int) (lines []string) {
	line := []rune{}
	for word := range strings.FieldsSeq(text) {
		if len(line) > 0 && len(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, []rune(word)...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}

// Shorten returns the first most characters of text. If the text is longer, Shorten adds an
// ellipsis.
func Shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
