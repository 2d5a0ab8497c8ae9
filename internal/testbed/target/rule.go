package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Rule says which replies have a certain meaning. A reply matches if one of the terms matches:
//
//	200              the status
//	2xx              any status from 200 to 299
//	json:.code==0    a field of the JSON reply. The status must be below 500, because a failed
//	                 request may have had no effect, unless the rule names a status
//	200&json:.ok==true
//	409,410          either of the two
//
// A path starts with a dot, as in .data.code, .items[0].id or ."odd name". A single dot is the
// whole reply. The operators == and != compare the field with a JSON string, a number, true,
// false or null. A missing field matches neither operator.
type Rule struct {
	terms []term
}

// term matches a reply if both the status and the test match.
type term struct {
	low, high int // range of statuses; 0 means any below 500
	test      *test
}

// test compares a field of a JSON reply.
type test struct {
	path  []step
	equal bool
	want  any    // string, json.Number, bool or nil
	text  string // source text
}

// step leads to a member of an object or to an element of an array.
type step struct {
	name  string
	index int // -1 if the step uses the name
}

// ParseRule parses a rule.
func ParseRule(text string) (Rule, error) {
	var r Rule
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
			return Rule{}, fmt.Errorf("%q goes on with %q; terms have commas between them", text, rest)
		}
		rest = rest[1:]
	}
}

func mustRule(text string) Rule {
	r, err := ParseRule(text)
	if err != nil {
		panic(err)
	}
	return r
}

// errRule describes the form of a term.
var errRule = errors.New("want statuses and fields, as in 200, 4xx, 409,410, json:.code==0 or 200&json:.ok==true")

const jsonPrefix = "json:"

func parseTerm(text string) (t term, rest string, err error) {
	if !strings.HasPrefix(text, jsonPrefix) {
		if t, text, err = parseStatus(text); err != nil || !strings.HasPrefix(text, "&") {
			return t, text, err
		}
		text = strings.TrimSpace(text[1:])
	}
	text, ok := strings.CutPrefix(text, jsonPrefix)
	if !ok {
		return t, text, errRule
	}
	t.test, rest, err = parseTest(text)
	return t, rest, err
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

// parseTest parses the part of a term after "json:".
func parseTest(text string) (*test, string, error) {
	path, rest, err := parsePath(text)
	if err != nil {
		return nil, "", err
	}
	rest = strings.TrimSpace(rest)
	t := &test{path: path, equal: strings.HasPrefix(rest, "==")}
	if len(rest) < 2 || !t.equal && rest[:2] != "!=" {
		return nil, "", fmt.Errorf("json:%s: want == or != behind the path, as in json:.code==0", text)
	}
	d := json.NewDecoder(strings.NewReader(rest[2:]))
	d.UseNumber()
	if err := d.Decode(&t.want); err != nil {
		return nil, "", fmt.Errorf(`json:%s: want a JSON value behind the %s, as in 0, true, null or "OK"`, text, rest[:2])
	}
	switch t.want.(type) {
	case map[string]any, []any:
		return nil, "", fmt.Errorf("json:%s: want a string, a number, true, false or null to compare with", text)
	}
	rest = rest[2+d.InputOffset():]
	t.text = strings.TrimSuffix(text, rest)
	return t, rest, nil
}

// Path identifies a field in a JSON reply.
type Path struct{ steps []step }

// ParsePath parses a path such as .data.id.
func ParsePath(text string) (Path, error) {
	steps, rest, err := parsePath(text)
	if err == nil && rest != "" {
		err = fmt.Errorf("the path %q goes on with %q", text, rest)
	}
	return Path{steps}, err
}

func parsePath(text string) (path []step, rest string, err error) {
	if !strings.HasPrefix(text, ".") {
		return nil, "", fmt.Errorf("%q: a path begins with a dot, as in .code or .data.items[0].id", text)
	}
	if rest = text[1:]; rest == "" || strings.ContainsAny(rest[:1], "=!") {
		return nil, rest, nil // the whole reply
	}
	if rest = text; strings.HasPrefix(text, ".[") {
		rest = text[1:]
	}
	for rest != "" && !strings.ContainsAny(rest[:1], "=!, &") {
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
		if s.index, err = strconv.Atoi(number); !ok || err != nil || s.index < 0 || number[0] == '+' {
			return s, "", errors.New("want [N] for the Nth element, from 0")
		}
		return s, rest, nil
	case text[0] == '.' && len(text) > 1 && text[1] == '"':
		d := json.NewDecoder(strings.NewReader(text[1:]))
		if err := d.Decode(&s.name); err != nil {
			return s, "", errors.New("a name in quotes is a JSON string")
		}
		return s, text[1+d.InputOffset():], nil
	case text[0] == '.':
		n := strings.IndexAny(text[1:], `.[=!, &"`)
		if n < 0 {
			n = len(text) - 1
		}
		if n == 0 {
			return s, "", errors.New("want a name behind each dot")
		}
		s.name = text[1 : 1+n]
		return s, text[1+n:], nil
	}
	return s, "", errors.New("want .NAME or [N]")
}

// In returns the value of the field in a reply. It returns false if the field is missing.
func (p Path) In(body []byte) (any, bool) {
	doc, ok := decode(body)
	if !ok {
		return nil, false
	}
	return follow(doc, p.steps)
}

// decode decodes a reply that consists of one JSON value.
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
	for _, s := range path {
		if s.index >= 0 {
			list, ok := at.([]any)
			if !ok || s.index >= len(list) {
				return nil, false
			}
			at = list[s.index]
			continue
		}
		object, _ := at.(map[string]any)
		var ok bool
		if at, ok = object[s.name]; !ok {
			return nil, false
		}
	}
	return at, true
}

// readsBody reports whether the rule depends on more than the status.
func (r Rule) readsBody() bool {
	for _, t := range r.terms {
		if t.test != nil {
			return true
		}
	}
	return false
}

// holds reports whether a reply matches the rule. doc is nil if the reply is not JSON.
func (r Rule) holds(status int, doc *any) bool {
	for _, t := range r.terms {
		if t.holds(status, doc) {
			return true
		}
	}
	return false
}

func (t term) holds(status int, doc *any) bool {
	if t.low == 0 && status >= 500 || t.low > 0 && (status < t.low || status > t.high) {
		return false
	}
	return t.test == nil || t.test.holds(doc)
}

func (t *test) holds(doc *any) bool {
	if doc == nil {
		return false
	}
	got, ok := follow(*doc, t.path)
	return ok && same(got, t.want) == t.equal
}

// same reports whether two JSON values are equal. It compares numbers by value. An object or
// an array is equal to nothing.
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

// overlaps returns a status for which every reply matches both rules, if there is one.
func (r Rule) overlaps(other Rule) (status int, ok bool) {
	for _, a := range r.terms {
		for _, b := range other.terms {
			if a.test == nil && b.test == nil && a.low <= b.high && b.low <= a.high {
				return max(a.low, b.low), true
			}
		}
	}
	return 0, false
}

// String returns the rule in the form that ParseRule reads.
func (r Rule) String() string {
	words := make([]string, len(r.terms))
	for i, t := range r.terms {
		switch {
		case t.low != t.high:
			words[i] = strconv.Itoa(t.low/100) + "xx"
		case t.low > 0:
			words[i] = strconv.Itoa(t.low)
		}
		if t.test != nil {
			if words[i] != "" {
				words[i] += "&"
			}
			words[i] += jsonPrefix + t.test.text
		}
	}
	return strings.Join(words, ",")
}
