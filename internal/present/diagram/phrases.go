package diagram

import (
	"fmt"
	"strings"
)

// Phrases contains texts by language (en, zh, ja) and key. Say fills in their slots, such as {who}.
type Phrases map[string]map[string]string

// Say returns the phrase for a key in a language. slots alternates between slot names and the
// values to fill in.
func (p Phrases) Say(lang, key string, slots ...any) string {
	var pairs []string
	for i := 0; i < len(slots); i += 2 {
		pairs = append(pairs, fmt.Sprintf("{%v}", slots[i]), fmt.Sprint(slots[i+1]))
	}
	return strings.NewReplacer(pairs...).Replace(p[lang][key])
}
