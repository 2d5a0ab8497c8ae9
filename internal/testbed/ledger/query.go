package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// orderList is the query placeholder for a list of order IDs.
const orderList = "{orders}"

// mark returns the placeholder for a query's nth parameter: $n in PostgreSQL, and ? elsewhere.
func (k kind) mark(n int) string {
	if k.dollar {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}

// prepare converts the query's placeholders to the ones that this database uses. It returns an
// error unless the query is a single SELECT or WITH statement with two placeholders or {orders}.
func (k kind) prepare(query string) (string, error) {
	var out strings.Builder
	placeholders, lists, numbered := 0, 0, k.dollar && strings.Contains(query, "$1")
	first, before, ended := "", "", false
	for rest := strings.TrimSpace(query); rest != ""; {
		n := k.token(rest)
		if n > len(rest) {
			return "", fmt.Errorf("%w: the quoted text or comment that begins with %.20q has no end: close it", ErrQuery, rest)
		}
		word := rest[:n]
		rest = rest[n:]
		blank := strings.TrimSpace(word) == "" || k.isComment(word)
		switch {
		case blank:
		case ended:
			return "", fmt.Errorf("%w: %.20q follows the first statement: write only one statement", ErrQuery, word)
		case word == ";":
			ended = true
			continue
		case first == "":
			first = strings.ToUpper(word)
		case before != ".":
			if err := refuseMerging(before, word, rest); err != nil {
				return "", err
			}
		}
		if !blank {
			before = strings.ToUpper(word)
		}
		switch {
		case word == "?" && numbered: // with numbered placeholders, ? is an operator
		case word == "?" && k.dollar:
			placeholders++
			word = k.mark(placeholders)
		case word == orderList:
			lists++
		case word == "?", numbered && (word == "$1" || word == "$2"):
			placeholders++
		}
		out.WriteString(word)
	}
	if first != "SELECT" && first != "WITH" {
		return "", fmt.Errorf("%w: the query must begin with SELECT or WITH, as in %s", ErrQuery, example)
	}
	if lists > 0 && (placeholders > 0 || strings.Count(query, orderList) > 1) {
		return "", fmt.Errorf("%w: use the placeholder {orders} once and no other one, as in %s", ErrQuery, exampleOfList)
	}
	if lists == 0 && placeholders != 2 {
		return "", fmt.Errorf("%w: the query has %d placeholders: use two, for the first and the last order, as in %s", ErrQuery, placeholders, example)
	}
	return strings.TrimSpace(out.String()), nil
}

// merging lists words that may make a query return fewer rows than there are wins. The query could
// then hide that two drivers won the same order.
var merging = []string{"DISTINCT", "DISTINCTROW", "GROUP", "HAVING", "LIMIT", "FETCH", "OFFSET", "TOP", "INTERSECT", "EXCEPT", "MINUS", "UNION", "OVER", "QUALIFY", "TABLESAMPLE"}

// aggregates lists functions that combine several rows into one, even without GROUP BY.
var aggregates = []string{"COUNT", "MIN", "MAX", "SUM", "AVG", "ANY_VALUE", "GROUP_CONCAT", "STRING_AGG", "ARRAY_AGG"}

// refuseMerging returns an error if a word in the query may hide rows. To decide, it also looks at
// the previous word and the rest of the query.
func refuseMerging(before, word, rest string) error {
	word = strings.ToUpper(word)
	next := strings.ToUpper(strings.TrimSpace(rest))
	switch {
	case slices.Contains(aggregates, word) && strings.HasPrefix(next, "("):
		word += "()"
	case !slices.Contains(merging, word), word == "UNION" && strings.HasPrefix(next, "ALL"):
		return nil
	case word == "DISTINCT" && strings.HasPrefix(next, "FROM "): // IS DISTINCT FROM compares two values
		return nil
	case before == "AS", word == "OFFSET" && before == ",", word == "TOP" && before != "SELECT": // here, the word is a column name
		return nil
	case word == "GROUP":
		word = "GROUP BY"
	}
	return fmt.Errorf("%w: %s can hide the second grab of an order: remove that part of the query, as in %s", ErrQuery, word, example)
}

const exampleOfList = "SELECT order_id, driver_id FROM wins WHERE order_id IN ({orders})"

const example = "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"

// token returns the length of text's first token, such as a word or a comment. If the token is
// incomplete, the result exceeds len(text).
func (k kind) token(text string) int {
	never := len(text) + 1
	end := func(from int, mark string) int {
		if i := strings.Index(text[from:], mark); i >= 0 {
			return from + i + len(mark)
		}
		return never
	}
	switch c := text[0]; {
	case strings.HasPrefix(text, orderList):
		return len(orderList)
	case k.isComment(text) && strings.HasPrefix(text, "/*"):
		return end(2, "*/")
	case k.isComment(text):
		return min(end(1, "\n"), len(text))
	case c == '\'' || c == '"' || c == '`':
		for i := 1; i < len(text); i++ {
			switch {
			case text[i] == '\\' && k.backslash && c != '`':
				i++
			case text[i] == c && i+1 < len(text) && text[i+1] == c:
				i++
			case text[i] == c:
				return i + 1
			}
		}
		return never
	case c == '$' && k.dollar:
		tag := 1
		for tag < len(text) && isWord(text[tag]) {
			tag++
		}
		if tag < len(text) && text[tag] == '$' && (tag == 1 || text[1] < '0' || text[1] > '9') {
			return end(tag+1, text[:tag+1])
		}
		return tag
	case isWord(c):
		n := 1
		for n < len(text) && (isWord(text[n]) || text[n] == '$') {
			n++
		}
		return n
	}
	return 1
}

func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (k kind) isComment(text string) bool {
	return strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*") || k.hash && strings.HasPrefix(text, "#")
}
