package workshop

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"golang.org/x/text/width"
)

//go:embed text
var files embed.FS

// Languages lists the workshop's languages, beginning with the default.
var Languages = []string{"en", "zh", "ja"}

// Texts contains one language's sentences by key. The sentences have slots, such as {double}, which
// Say fills in.
type Texts struct {
	Language string
	byKey    map[string]string
}

var slots = regexp.MustCompile(`\{[a-z][\w.-]*\}`)

// Load reads a language's texts. If there are none, the error wraps ErrAnswer.
func Load(lang string) (*Texts, error) {
	b, err := files.ReadFile("text/" + lang + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%w: the language %.20q is not supported: use one of %s", ErrAnswer, lang, strings.Join(Languages, ", "))
	}
	var tree map[string]any
	if err := yaml.Unmarshal(b, &tree); err != nil {
		return nil, fmt.Errorf("workshop: text/%s.yaml: %w", lang, err)
	}
	t := &Texts{lang, map[string]string{}}
	t.flatten("", tree)
	return t, nil
}

func (t *Texts) flatten(prefix string, tree map[string]any) {
	for key, value := range tree {
		if section, ok := value.(map[string]any); ok {
			t.flatten(prefix+key+".", section)
		} else {
			t.byKey[prefix+key] = strings.TrimRight(fmt.Sprint(value), "\n")
		}
	}
}

// Under returns the sentences whose keys begin with prefix, with this prefix removed.
func (t *Texts) Under(prefix string) map[string]string {
	all := map[string]string{}
	for key, text := range t.byKey {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			all[rest] = text
		}
	}
	return all
}

// Has reports whether there is a sentence for key.
func (t *Texts) Has(key string) bool { return t.byKey[key] != "" }

// Say returns the sentence for key. It replaces each name in braces, such as {steps}, with its
// value in f. Names without a value stay unchanged.
func (t *Texts) Say(key string, f Facts) string {
	text, ok := t.byKey[key]
	if !ok {
		return "{" + key + "}"
	}
	return f.fill(text)
}

// fill replaces names in braces with their values in f, but leaves names without a value unchanged.
func (f Facts) fill(text string) string {
	return slots.ReplaceAllStringFunc(text, func(slot string) string {
		if value, ok := f[strings.Trim(slot, "{}")]; ok {
			return value
		}
		return slot
	})
}

// FromLocale returns the workshop's language for a locale such as zh_CN.UTF-8. It falls back to the
// default language.
func FromLocale(locale string) string {
	lang := locale[:strings.IndexAny(locale+"_", "_-.@")]
	if slices.Contains(Languages, lang) {
		return lang
	}
	return Languages[0]
}

// Width returns a text's width in terminal columns. Wide characters, such as Chinese ones, take two
// columns.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n++
		if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
			n++
		}
	}
	return n
}

// pad adds spaces until the text has the given width.
func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-Width(text)))
}

// Wrap wraps text between words or wide characters. Characters such as a full stop never begin a
// line.
func Wrap(text string, columns int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for _, piece := range pieces.FindAllString(paragraph, -1) {
			if line != "" && Width(line)+Width(strings.TrimRight(piece, " ")) > columns {
				lines = append(lines, strings.TrimRight(line, " "))
				line = ""
			}
			line += piece
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// These constants group the characters for the pattern pieces.
const (
	noEnd   = "（「『【〈《“‘"                          // must not end a line
	noStart = "。、，．：；？！）」』】〉》”’…ー々ゃゅょっャュョッァィゥェォ%" // must not begin a line
	letters = `\p{Han}\p{Hiragana}\p{Katakana}`   // a line may end after each of them
)

// pieces matches the parts of a text after which a line may end. Each part is a wide letter or a word,
// with the characters that must stay beside it.
var pieces = regexp.MustCompile("[" + noEnd + "]*([" + letters + "]|[^ " + letters + noEnd + noStart + "]+)?[" + noStart + " ]*")
