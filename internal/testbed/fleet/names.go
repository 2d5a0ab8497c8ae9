package fleet

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"grablab/internal/tap"
	"grablab/internal/testbed/wire"
)

// naming gives the requests of an instance names that are the same for every order and driver. It is not safe for
// concurrent use.
type naming struct {
	driver int64             // the driver that the instance is handling; 0 if unknown
	id     string            // the order ID in requests
	names  map[string]string // placeholders for other numbers that may occur in requests, such as the port

	learned map[string]bool           // names of requests that contain the driver or, in the key of a lock request, any number
	tokened map[string]*regexp.Regexp // names of keys that contain any token, and of lock requests with such a key; with a pattern that matches them
}

func newNaming() naming {
	return naming{learned: map[string]bool{}, tokened: map[string]*regexp.Regexp{}}
}

// normalize removes IDs and irrelevant commands from a request's text. ok is false if nothing is
// left.
func (n *naming) normalize(e wire.Event) (text string, ok bool) {
	text = e.Text
	if script, ok := strings.CutPrefix(text, "EVAL "); ok { // a client sends EVAL if the server does not know the script
		text = "EVALSHA " + script
	}
	named := n.nameIDs(text)
	if e.Server != tap.DB && len(n.learned) > 0 {
		if other := withoutNumbers(named); n.learned[other] {
			named = other
		}
	}
	if e.Server != tap.DB {
		named = n.nameTokens(named)
	}
	parts := []string{named}
	if e.Server == tap.DB && (!strings.HasPrefix(e.Text, "PREPARE ") || strings.HasPrefix(e.Text, wire.PrepareTransaction)) {
		parts = strings.Split(parts[0], wire.Joint)
	}
	parts = slices.DeleteFunc(parts, func(text string) bool { return isNoise(e.Server == tap.DB, text) })
	return strings.Join(parts, wire.Joint), len(parts) > 0
}

// learn teaches normalize the name of a request. The text of the request has placeholders in place of
// the numbers and tokens that differ between grabs.
func (n *naming) learn(text string) {
	if strings.Contains(text, ownDriver) || strings.Contains(text, anyNumber) {
		n.learned[text] = true
	}
	if strings.Contains(text, anyToken) {
		n.learnTokens(text)
	}
}

// ofKey returns a key as it appears in the names of requests.
func (n *naming) ofKey(key string) string {
	name := withoutIDs(key, n.id, n.names)
	anyKey := withoutNumbers(name)
	for text := range n.learned {
		if anyKey != name && slices.Contains(strings.Split(text, " "), anyKey) {
			name = anyKey
		}
	}
	return n.nameToken(name)
}

// learnTokens makes nameTokens replace the tokens in the keys of requests with this name. The name
// contains {token} in place of each token. Other requests with the same key, such as renewals, are
// covered too. The exception is a key that consists only of a token, because any key could look like
// it.
func (n *naming) learnTokens(name string) {
	n.tokened[name] = tokensIn(name)
	if words := strings.Split(name, " "); keyIn(words) < len(words) && words[keyIn(words)] != anyToken {
		n.tokened[words[keyIn(words)]] = tokensIn(words[keyIn(words)])
	}
}

// nameTokens replaces the tokens in the text of a request to a lock server, if learnTokens has learned
// its key.
func (n *naming) nameTokens(text string) string {
	if len(n.tokened) == 0 {
		return text
	}
	words := strings.Split(text, " ")
	if i := keyIn(words); i < len(words) {
		words[i] = n.nameToken(words[i])
	}
	return n.nameToken(strings.Join(words, " "))
}

// nameToken returns the name of a key or a request. Several names may fit, so it chooses the most
// specific one.
func (n *naming) nameToken(text string) string {
	best := ""
	for name, pattern := range n.tokened {
		found := pattern.FindStringSubmatch(text)
		if found == nil || slices.ContainsFunc(found[1:], func(part string) bool { return !isToken(part) }) {
			continue
		}
		if cmp.Or(cmp.Compare(len(name), len(best)), cmp.Compare(name, best)) > 0 {
			best = name
		}
	}
	return cmp.Or(best, text)
}

// nameIDs returns a request's text without IDs. It replaces a driver ID only in requests that are
// known to contain one. Test runs with unmistakable driver IDs reveal these requests.
func (n *naming) nameIDs(text string) string {
	named := withoutIDs(text, n.id, n.names)
	if strings.Contains(named, ownDriver) {
		n.learned[named] = true
		return named
	}
	driver := strconv.FormatInt(n.driver, 10)
	if n.driver <= 0 || !strings.Contains(text, driver) {
		return named
	}
	names := map[string]string{}
	maps.Copy(names, n.names)
	names[driver] = ownDriver
	if other := withoutIDs(text, n.id, names); n.learned[other] {
		return other
	}
	return named
}

// textOf returns the text of a request without the server's name, as in normalize.
func textOf(call tap.Phase) string {
	_, text, _ := strings.Cut(string(call), " ")
	return text
}

// random matches values that a program has generated, such as UUIDs and long hexadecimal tokens.
var random = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9a-fA-F]{16,}`)

// withoutIDs replaces the order ID with *, random values with #, and the numbers in names with
// their placeholders. It also finds numbers inside words, but not inside long hexadecimal values
// such as 61a7bc5f.
func withoutIDs(text, order string, names map[string]string) string {
	if strings.Trim(order, "0123456789") != "" || len(order) >= 16 { // random also matches a number of that length
		text, order = strings.ReplaceAll(text, order, "*"), ""
	}
	order = strings.TrimLeft(order, "0")
	if slices.ContainsFunc(strings.FieldsFunc(text, isNoHexDigit), func(hex string) bool { return len(hex) >= 8 }) {
		text = random.ReplaceAllString(text, "#")
	}
	return replaceNumbers(text, func(n string) string {
		if order != "" && strings.TrimLeft(n, "0") == order {
			return "*"
		}
		return cmp.Or(names[n], n)
	})
}

// replaceNumbers replaces the numbers in text, except in long hexadecimal values.
func replaceNumbers(text string, replace func(string) string) string {
	return replaceRuns(text, isNoHexDigit, func(hex string) string {
		if len(hex) >= 7 && len(strings.FieldsFunc(hex, isNoDigit)) > 1 {
			return hex
		}
		return replaceRuns(hex, isNoDigit, replace)
	})
}

func isNoDigit(r rune) bool    { return r < '0' || r > '9' }
func isNoHexDigit(r rune) bool { return isNoDigit(r) && (r < 'a' || r > 'f') && (r < 'A' || r > 'F') }

// replaceRuns replaces each longest part of text between characters that separate. This is a hot path:
// regular expressions took 7 % of the CPU time of runs against services, with the race detector.
func replaceRuns(text string, separates func(rune) bool, replace func(string) string) string {
	var b strings.Builder
	for text != "" {
		end := strings.IndexFunc(text, separates)
		if end < 0 {
			end = len(text)
		}
		if end == 0 {
			_, end = utf8.DecodeRuneInString(text)
			b.WriteString(text[:end])
		} else {
			b.WriteString(replace(text[:end]))
		}
		text = text[end:]
	}
	return b.String()
}

// These placeholders replace numbers that differ between requests of the same kind.
const (
	ownDriver = "{driver}"
	ownPort   = "{port}"
	anyNumber = "{n}"
	anyToken  = "{token}"
)

// withoutNumbers replaces each number in a request's text with {n}, except in long hexadecimal values.
func withoutNumbers(text string) string {
	return replaceNumbers(text, func(string) string { return anyNumber })
}

// CommonName returns a common name for two different calls to a lock server, with {n} or {token} where their keys
// differ. If the calls differ in anything but the numbers or the tokens in their keys, ok is false.
func CommonName(a, b string) (name string, ok bool) {
	if name = withoutNumbers(a); name == withoutNumbers(b) {
		return name, true
	}
	return withoutTokens(a, b)
}

// withoutTokens compares the names of two calls to a lock server. If their keys differ only in tokens, such as
// random session IDs, it returns the name with {token} in place of each token. Otherwise, ok is false. The
// separators ':', '|' and ',' divide a key into parts, and each part may contain one token.
func withoutTokens(a, b string) (name string, ok bool) {
	x, y := strings.Split(a, " "), strings.Split(b, " ")
	i := 1 + keyIn(x[1:])
	if i >= len(x) || len(x) != len(y) || !slices.Equal(x[:i], y[:i]) || !slices.Equal(x[i+1:], y[i+1:]) {
		return "", false
	}
	parts, others := keyParts.FindAllString(x[i], -1), keyParts.FindAllString(y[i], -1)
	if len(parts) != len(others) {
		return "", false
	}
	for n, part := range parts {
		from, to := difference(part, others[n])
		switch other := others[n][from : len(others[n])-len(part)+to]; {
		case part == others[n]:
			continue
		case !isToken(part[from:to]) || !isToken(other):
			return "", false
		}
		parts[n], ok = part[:from]+anyToken+part[to:], true
	}
	x[i] = strings.Join(parts, "")
	return strings.Join(x, " "), ok
}

// keyIn returns the index of the key in the words of a request. The name of a script comes before its key.
func keyIn(words []string) int {
	if len(words) > 0 && (strings.HasPrefix(words[0], "EVAL") || strings.HasPrefix(words[0], "FCALL")) {
		return 2
	}
	return 1
}

// keySeparators divide a key into parts.
const keySeparators = ":|,"

// keyParts matches a part of a key, or a separator between two parts.
var keyParts = regexp.MustCompile("[" + keySeparators + "]|[^" + keySeparators + "]+")

// difference returns where a differs from b. It includes complete words of letters and digits.
func difference(a, b string) (from, to int) {
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	for from > 0 && isAlphanumeric(a[from-1]) {
		from--
	}
	to, end := len(a), len(b)
	for to > from && end > from && a[to-1] == b[end-1] {
		to, end = to-1, end-1
	}
	for to < len(a) && isAlphanumeric(a[to]) {
		to++
	}
	return from, to
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isToken reports whether a part of a key looks like a random value and not like a word. A word has no digits
// and does not mix upper and lower case.
func isToken(text string) bool {
	const shortest = 5
	has := func(set string) bool { return strings.ContainsAny(text, set) }
	const lower = "abcdefghijklmnopqrstuvwxyz"
	return len(text) >= shortest && (has("0123456789") || has(lower) && has(strings.ToUpper(lower)))
}

// tokensIn returns a pattern for the texts of a request whose name contains {token}.
func tokensIn(name string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(name), regexp.QuoteMeta(anyToken), "([^ "+keySeparators+"]+)") + "$")
}
