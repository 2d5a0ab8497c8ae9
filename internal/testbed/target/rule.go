package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Rule says which replies have a certain meaning. A reply matches if one of the terms matches:
//
//	200                       the status
//	2xx                       any status from 200 to 299
//	json:.code==0             a field of a JSON reply
//	xml:/grab/code==0         an element or, as in xml:/grab/@code, an attribute of an XML reply
//	text:~"sold out"          the body as text
//	header:Location~"/sold$"  a header
//	200&json:.ok==true        a status and a test; more tests may follow, each after an &
//	409,410                   either of the two
//
// A term without a status matches only statuses below 500, because a failed request may have had no
// effect. A JSON path starts with a dot, as in .data.code, .items[0].id or ."odd name"; a single
// dot is the whole reply. An XML path starts with / at the root element, or with // at any depth,
// and ignores namespaces. If several elements have the path, the first one counts.
//
// The operators == and != compare with a JSON string, a number, true, false or null. The operators
// ~ and !~ search for a regular expression, which is a string in double quotes or, without escapes,
// in backquotes. If the reply lacks the part, no operator matches it.
type Rule struct {
	text  string
	terms []term
}

// term is one alternative in a rule. A reply matches if it has one of the term's statuses and
// passes all of its tests.
type term struct {
	low, high int // range of statuses; 0 means any below 500
	tests     []test
}

// test compares a part of a reply with a value or a regular expression.
type test struct {
	source   source
	path     []step // path to a JSON field
	name     string // path to an XML element, or name of a header
	negated  bool   // whether the operator is != or !~
	want     any    // the expected value: a string, json.Number, bool or nil
	expected *regexp.Regexp
}

// source is the part of a reply that a test examines, such as the JSON body.
type source string

const (
	fromJSON   source = "json:"
	fromXML    source = "xml:"
	fromText   source = "text:"
	fromHeader source = "header:"
)

var sources = []source{fromJSON, fromXML, fromText, fromHeader}

// step is one step in a JSON path. It selects an object member or an array element.
type step struct {
	name  string
	index int // -1 if the step uses the name; may be everyElement
}

// everyElement is the index for [*], which selects every array element.
const everyElement = -2

// ParseRule parses a rule. See Rule for the format.
func ParseRule(text string) (Rule, error) {
	r := Rule{text: strings.TrimSpace(text)}
	rest := text
	for {
		t, after, err := parseTerm(strings.TrimSpace(rest))
		if err != nil {
			return Rule{}, err
		}
		r.terms = append(r.terms, t)
		if rest = strings.TrimSpace(after); rest == "" {
			return r, nil
		}
		if rest[0] != ',' {
			return Rule{}, fmt.Errorf("%q is followed by %q: put a comma between two terms", text, rest)
		}
		rest = rest[1:]
	}
}

var errRule = errors.New("write statuses or fields, as in 200, 4xx, 409,410, json:.code==0, 200&json:.ok==true, " +
	`xml:/grab/code==0, text:~"sold out" or header:Location~"/sold$"`)

// sourceOf splits text into its leading source, such as json:, and the rest. If text does not begin
// with a source, it returns false.
func sourceOf(text string) (source, string, bool) {
	for _, s := range sources {
		if rest, ok := strings.CutPrefix(text, string(s)); ok {
			return s, rest, true
		}
	}
	return "", text, false
}

func parseTerm(text string) (t term, rest string, err error) {
	if _, _, isTest := sourceOf(text); !isTest {
		if t, text, err = parseStatus(text); err != nil || !strings.HasPrefix(text, "&") {
			return t, text, err
		}
		text = strings.TrimSpace(text[1:])
	}
	for {
		one, rest, err := parseTest(text)
		if err != nil {
			return t, rest, err
		}
		t.tests = append(t.tests, one)
		next, more := strings.CutPrefix(strings.TrimSpace(rest), "&")
		if text = strings.TrimSpace(next); !more {
			return t, rest, nil
		}
		if _, _, isTest := sourceOf(text); !isTest {
			return t, "", fmt.Errorf("%q: write a test after each &, and separate terms by commas", text)
		}
	}
}

// parseStatus parses a status such as 200 or 2xx.
func parseStatus(text string) (t term, rest string, err error) {
	n := strings.IndexAny(text, ",& ")
	if n < 0 {
		n = len(text)
	}
	word, rest := text[:n], strings.TrimSpace(text[n:])
	hundred := len(word) == 3 && strings.EqualFold(word[1:], "xx")
	if hundred {
		word = word[:1] + "00"
	}
	status, err := strconv.Atoi(word)
	if err != nil || len(word) != 3 || status < 100 || status > 599 {
		return t, rest, errRule
	}
	t.low, t.high = status, status
	if hundred {
		t.high += 99
	}
	return t, rest, nil
}

// parseTest parses a test, such as json:.code==0.
func parseTest(text string) (t test, rest string, err error) {
	if rest, err = t.parsePart(text); err != nil {
		return t, "", err
	}
	if slices.ContainsFunc(t.path, func(s step) bool { return s.index == everyElement }) {
		return t, "", fmt.Errorf("%q: a rule reads one field, not several: choose an element by its index, as in [0]", text)
	}
	rest, err = t.parseComparison(text, strings.TrimSpace(rest))
	return t, rest, err
}

// parsePart parses the part of a reply that a test examines, such as json:.code.
func (t *test) parsePart(text string) (rest string, err error) {
	var ok bool
	if t.source, rest, ok = sourceOf(text); !ok {
		return text, errRule
	}
	switch t.source {
	case fromJSON:
		t.path, rest, err = parsePath(rest)
	case fromXML:
		t.name, rest = beforeOperator(rest)
		if !strings.HasPrefix(t.name, "/") || strings.HasSuffix(t.name, "/") {
			err = fmt.Errorf("%q: the path must begin with a slash, as in /grab/code, //code or /grab/@code", text)
		}
	case fromHeader:
		t.name, rest = beforeOperator(rest)
		if t.name = http.CanonicalHeaderKey(t.name); !httpguts.ValidHeaderFieldName(t.name) {
			err = fmt.Errorf("%q: the header name is missing: write it as in header:Location~\"/sold$\"", text)
		}
	}
	return rest, err
}

// beforeOperator splits text before its first operator, which begins with =, ! or ~.
func beforeOperator(text string) (name, rest string) {
	n := strings.IndexAny(text, "=!~")
	if n < 0 {
		n = len(text)
	}
	return strings.TrimSpace(text[:n]), text[n:]
}

// parseComparison parses a test's operator and value, such as ==0. text is the whole test, for
// error messages.
func (t *test) parseComparison(text, rest string) (after string, err error) {
	operator, search := "", false
	for _, o := range []string{"==", "!=", "!~", "~"} {
		if strings.HasPrefix(rest, o) {
			operator, t.negated, search = o, o[0] == '!', strings.HasSuffix(o, "~")
			break
		}
	}
	if operator == "" {
		return "", fmt.Errorf(`%s: use == or !=, or ~ or !~ with a regular expression, as in json:.code==0 or text:~"sold out"`, text)
	}
	rest = strings.TrimSpace(rest[len(operator):])
	raw, after, closed := strings.Cut(strings.TrimPrefix(rest, "`"), "`")
	if strings.HasPrefix(rest, "`") && closed {
		t.want = raw
	} else {
		d := json.NewDecoder(strings.NewReader(rest))
		d.UseNumber()
		if err := d.Decode(&t.want); err != nil {
			return "", fmt.Errorf("%s: write a JSON value after the %s, such as 0, true, null or \"OK\", or a text in backquotes", text, operator)
		}
		after = rest[d.InputOffset():]
	}
	switch t.want.(type) {
	case map[string]any, []any:
		return "", fmt.Errorf("%s: the value to compare with must be a string, a number, true, false or null", text)
	}
	if search {
		pattern, isText := t.want.(string)
		if t.expected, err = regexp.Compile(pattern); !isText || err != nil {
			return "", fmt.Errorf("%s: write a regular expression in quotes or backquotes after the %s", text, operator)
		}
	}
	return after, nil
}

func parsePath(text string) (path []step, rest string, err error) {
	if !strings.HasPrefix(text, ".") {
		return nil, "", fmt.Errorf("%q: the path must begin with a dot, as in .code or .data.items[0].id", text)
	}
	if rest = text[1:]; rest == "" || strings.ContainsAny(rest[:1], "=!~ ") {
		return nil, rest, nil // an empty path means the whole reply
	}
	if rest = text; strings.HasPrefix(text, ".[") {
		rest = text[1:]
	}
	for rest != "" && !strings.ContainsAny(rest[:1], "=!~, &") {
		var s step
		if s, rest, err = parseStep(rest); err != nil {
			return nil, "", fmt.Errorf("%q: %w", text, err)
		}
		path = append(path, s)
	}
	return path, rest, nil
}

func parseStep(text string) (s step, rest string, err error) {
	s.index = -1
	switch {
	case text[0] == '[':
		number, rest, ok := strings.Cut(text[1:], "]")
		if number == "*" && ok {
			return step{index: everyElement}, rest, nil
		}
		if s.index, err = strconv.Atoi(number); !ok || err != nil || s.index < 0 || number[0] == '+' {
			return s, "", errors.New("write [N] for the element at index N, which begins with 0")
		}
		return s, rest, nil
	case text[0] == '.' && len(text) > 1 && text[1] == '"':
		d := json.NewDecoder(strings.NewReader(text[1:]))
		if err := d.Decode(&s.name); err != nil {
			return s, "", errors.New("a name in quotes must be a valid JSON string")
		}
		return s, text[1+d.InputOffset():], nil
	case text[0] == '.':
		n := strings.IndexAny(text[1:], `.[=!~, &"`)
		if n < 0 {
			n = len(text) - 1
		}
		if n == 0 {
			return s, "", errors.New("write a name after each dot")
		}
		s.name = text[1 : 1+n]
		return s, text[1+n:], nil
	}
	return s, "", errors.New("each part of the path must be .NAME or [N]")
}

// decode parses a body as JSON. If the body is not exactly one JSON value, it returns false.
func decode(body []byte) (doc any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&doc) != nil {
		return nil, false
	}
	_, err := d.Token()
	return doc, err == io.EOF
}

func follow(at any, path []step) (any, bool) {
	for i, s := range path {
		list, ok := at.([]any)
		if s.index == everyElement {
			all := []any{}
			for _, element := range list {
				one, _ := follow(element, path[i+1:])
				all = append(all, one)
			}
			return all, ok
		}
		if s.index >= 0 {
			if !ok || s.index >= len(list) {
				return nil, false
			}
			at = list[s.index]
			continue
		}
		object, _ := at.(map[string]any)
		if at, ok = object[s.name]; !ok {
			return nil, false
		}
	}
	return at, true
}

// reads reports whether the rule examines any of these parts of a reply, such as the JSON body.
func (r Rule) reads(from ...source) bool {
	for _, t := range r.terms {
		if slices.ContainsFunc(t.tests, func(t test) bool { return slices.Contains(from, t.source) }) {
			return true
		}
	}
	return false
}

func (r Rule) holds(a *reply) bool {
	return slices.ContainsFunc(r.terms, func(t term) bool { return t.holds(a) })
}

func (t term) holds(a *reply) bool {
	if t.low == 0 && a.status >= 500 || t.low > 0 && (a.status < t.low || a.status > t.high) {
		return false
	}
	return !slices.ContainsFunc(t.tests, func(t test) bool { return !t.holds(a) })
}

func (t test) holds(a *reply) bool {
	got, ok := a.part(t)
	switch {
	case !ok:
		return false
	case t.expected != nil:
		switch got.(type) {
		case map[string]any, []any, nil:
			return false
		}
		return t.expected.MatchString(fmt.Sprint(got)) != t.negated
	case t.source == fromJSON:
		return same(got, t.want) != t.negated
	}
	if _, isNumber := t.want.(json.Number); isNumber {
		return same(json.Number(got.(string)), t.want) != t.negated
	}
	return (got == fmt.Sprint(t.want)) != t.negated
}

// same reports whether two JSON values are equal. Objects and arrays are never equal.
func same(a, b any) bool {
	x, isNumber := a.(json.Number)
	y, areNumbers := b.(json.Number)
	if !isNumber || !areNumbers {
		switch a.(type) {
		case map[string]any, []any:
			return false
		}
		return a == b
	}
	if i, err := x.Int64(); err == nil {
		if j, err := y.Int64(); err == nil {
			return i == j
		}
	}
	f, errX := x.Float64()
	g, errY := y.Float64()
	return x == y || errX == nil && errY == nil && f == g
}

// overlaps returns a status for which both rules always match, regardless of the rest of the reply.
// If there is no such status, ok is false.
func (r Rule) overlaps(other Rule) (status int, ok bool) {
	for _, a := range r.terms {
		for _, b := range other.terms {
			if a.tests == nil && b.tests == nil && a.low <= b.high && b.low <= a.high {
				return max(a.low, b.low), true
			}
		}
	}
	return 0, false
}

// String returns the rule as the user wrote it.
func (r Rule) String() string { return r.text }
