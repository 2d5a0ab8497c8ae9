package diagram

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Phrases contains texts by language (en, zh, ja) and key. Names in braces, such as {who}, are slots.
type Phrases map[string]map[string]string

// ParsePhrases reads phrases from JSON. It panics if the JSON is invalid, because the texts are
// embedded in the program.
func ParsePhrases(text string) (all Phrases) {
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		panic(err)
	}
	return all
}

// Say returns a phrase with its slots filled in. slots alternates between names and values.
func (p Phrases) Say(lang, key string, slots ...any) string {
	var pairs []string
	for i := 0; i < len(slots); i += 2 {
		pairs = append(pairs, fmt.Sprintf("{%v}", slots[i]), fmt.Sprint(slots[i+1]))
	}
	return strings.NewReplacer(pairs...).Replace(p[lang][key])
}
