package diagram

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Phrases contains texts by language (en, zh, ja) and key. Say fills in their slots, such as {who}.
type Phrases map[string]map[string]string

// ParsePhrases reads phrases from JSON. It panics if the JSON is invalid, because this can only be
// a mistake in the program.
func ParsePhrases(text string) (all Phrases) {
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		panic(err)
	}
	return all
}

// Say returns the phrase for key in a language, with its slots filled in. The arguments in slots are
// pairs of a name and its value.
func (p Phrases) Say(lang, key string, slots ...any) string {
	var pairs []string
	for i := 0; i < len(slots); i += 2 {
		pairs = append(pairs, fmt.Sprintf("{%v}", slots[i]), fmt.Sprint(slots[i+1]))
	}
	return strings.NewReplacer(pairs...).Replace(p[lang][key])
}
