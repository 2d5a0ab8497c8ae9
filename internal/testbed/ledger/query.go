package ledger

import (
	"fmt"
	"regexp"
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

// These are parts of the patterns for the first token of a query. In MySQL, a backslash escapes the next character of a string.
const (
	wordChars     = `\w\x{80}-\x{10FFFF}`
	plainStrings  = `'(?:''|[^'])*'|"(?:""|[^"])*"`
	escapeStrings = `'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*"`
	dashComment   = `--[^\n]*\n?`
	hashComment   = `#[^\n]*\n?`
	dollarWord    = `\$[` + wordChars + `]*`
)

// tokens returns a pattern for the first token of a query, such as a word or a comment. some contains patterns of one
// kind of database. The pattern matches only the beginning of a comment without an end, and no beginning of a string.
func tokens(some ...string) *regexp.Regexp {
	all := append(some, regexp.QuoteMeta(orderList), dashComment, `/\*.*?\*/`, `/\*`, "`(?:``|[^`])*`", `[`+wordChars+`][`+wordChars+`$]*`, "[^'\"`]")
	return regexp.MustCompile(`(?s)^(?:` + strings.Join(all, "|") + `)`)
}

// dollarQuote matches the beginning of a string such as $$text$$ or $tag$text$tag$.
var dollarQuote = regexp.MustCompile(`^\$(?:[A-Za-z_\x{80}-\x{10FFFF}][` + wordChars + `]*)?\$`)

// token returns the length of text's first token. If the token is incomplete, the result exceeds len(text).
func (k kind) token(text string) int {
	if quote := dollarQuote.FindString(text); k.dollar && quote != "" {
		if i := strings.Index(text[len(quote):], quote); i >= 0 {
			return i + 2*len(quote)
		}
		return len(text) + 1
	}
	token := k.tokens.FindString(text)
	if token == "" || token == "/*" {
		return len(text) + 1
	}
	return len(token)
}

func (k kind) isComment(text string) bool {
	return strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*") || k.hash && strings.HasPrefix(text, "#")
}
