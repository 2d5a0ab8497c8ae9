package target

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html/charset"
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
	name     string // the path as text, or name of a header
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

// These patterns match the beginning of a text.
var (
	// statusPattern matches a status, such as 200 or 2xx.
	statusPattern = regexp.MustCompile(`^([1-5])(\d\d|[xX][xX])(?:[,& ]|$)`)
	// partPattern matches a part of a reply: its source and its path or name. A path may have names in quotes.
	partPattern = regexp.MustCompile(`^(json:|xml:|text:|header:)((?:"(?:[^"\\]|\\.)*"|[^"=!~,& ])*)`)
	// stepPattern matches a step in a JSON path: .NAME, ."NAME", [N] or [*].
	stepPattern     = regexp.MustCompile(`^(?:\.("(?:[^"\\]|\\.)*"|[^."\[\]]+)|\[(\d+|\*)\])`)
	operatorPattern = regexp.MustCompile(`^(?:==|!=|!~|~)`)
)

// parseTerm parses the next term of a rule: a status, tests, or both, connected by &. rest is the
// text after the term.
func parseTerm(text string) (t term, rest string, err error) {
	if !partPattern.MatchString(text) {
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
		if !partPattern.MatchString(text) {
			return t, "", fmt.Errorf("%q: write a test after each &, and separate terms by commas", text)
		}
	}
}

// parseStatus parses a status such as 200 or 2xx.
func parseStatus(text string) (t term, rest string, err error) {
	m := statusPattern.FindStringSubmatch(text)
	if m == nil {
		return t, text, errRule
	}
	t.low, err = strconv.Atoi(m[1] + m[2])
	t.high = t.low
	if err != nil { // a class of statuses, such as 2xx
		t.low, err = strconv.Atoi(m[1] + "00")
		t.high = t.low + 99
	}
	return t, strings.TrimSpace(text[len("200"):]), err
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
	m := partPattern.FindStringSubmatch(text)
	if m == nil {
		return text, errRule
	}
	t.source, t.name, rest = source(m[1]), m[2], text[len(m[0]):]
	switch t.source {
	case fromJSON:
		t.path, err = parsePath(t.name)
	case fromXML:
		if !strings.HasPrefix(t.name, "/") || strings.HasSuffix(t.name, "/") {
			err = fmt.Errorf("%q: the path must begin with a slash, as in /grab/code, //code or /grab/@code", text)
		}
	case fromHeader:
		if t.name = http.CanonicalHeaderKey(t.name); !httpguts.ValidHeaderFieldName(t.name) {
			err = fmt.Errorf("%q: the header name is missing: write it as in header:Location~\"/sold$\"", text)
		}
	case fromText: // the operator follows at once
		rest = t.name + rest
	}
	return rest, err
}

// parseComparison parses a test's operator and value, such as ==0. text is the whole test, for
// error messages.
func (t *test) parseComparison(text, rest string) (after string, err error) {
	operator := operatorPattern.FindString(rest)
	if operator == "" {
		return "", fmt.Errorf(`%s: use == or !=, or ~ or !~ with a regular expression, as in json:.code==0 or text:~"sold out"`, text)
	}
	t.negated = strings.HasPrefix(operator, "!")
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
	if strings.HasSuffix(operator, "~") {
		pattern, isText := t.want.(string)
		if t.expected, err = regexp.Compile(pattern); !isText || err != nil {
			return "", fmt.Errorf("%s: write a regular expression in quotes or backquotes after the %s", text, operator)
		}
	}
	return after, nil
}

// parsePath parses a JSON path. An empty path means the whole reply, which the user writes as a single dot.
func parsePath(text string) (path []step, err error) {
	rest := text
	if text == "." || strings.HasPrefix(text, ".[") {
		rest = text[1:]
	}
	for rest != "" || text == "" {
		m := stepPattern.FindStringSubmatch(rest)
		if m == nil || text[0] != '.' {
			return nil, fmt.Errorf("%q: a path must consist of .NAME, .\"NAME\" and [N], as in .code or .data.items[0].id", text)
		}
		s := step{name: m[1], index: -1}
		switch {
		case m[2] == "*":
			s.index = everyElement
		case m[2] != "":
			s.index, err = strconv.Atoi(m[2])
		case strings.HasPrefix(m[1], `"`):
			err = json.Unmarshal([]byte(m[1]), &s.name)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		path, rest = append(path, s), rest[len(m[0]):]
	}
	return path, nil
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

// follow returns the JSON value at path in the value at. It returns false if there is no such
// value.
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

// reply is the response to a request. Its JSON body is decoded only if a rule needs it.
type reply struct {
	status int
	header http.Header
	body   []byte

	cut     bool // whether the body is incomplete; no rule about the body matches then
	decoded bool // whether doc and isJSON are set
	doc     any
	isJSON  bool
}

// part returns the part of the response that a test examines, or false if the response lacks that
// part.
func (a *reply) part(t test) (got any, ok bool) {
	switch {
	case t.source == fromHeader:
		values := a.header.Values(t.name)
		return strings.Join(values, ", "), len(values) > 0
	case a.cut:
		return nil, false
	case t.source == fromText:
		return string(bytes.TrimSpace(a.body)), true
	case t.source == fromXML:
		return inXML(a.body, t.name)
	}
	if !a.decoded {
		a.doc, a.isJSON = decode(a.body)
		a.decoded = true
	}
	if !a.isJSON {
		return nil, false
	}
	return follow(a.doc, t.path)
}

// inXML returns the text of the first element or attribute at a path, or false if there is none.
func inXML(body []byte, path string) (any, bool) {
	d := xml.NewDecoder(bytes.NewReader(body))
	d.CharsetReader = charset.NewReaderLabel
	path, attribute, wantsAttribute := strings.Cut(path, "/@")
	var (
		at    []string         // names of the open elements
		text  *strings.Builder // text of the element that was found
		depth int              // depth of the element that was found
		found any
		ok    bool
	)
	for {
		token, err := d.Token()
		if token == nil {
			return found, ok && err == io.EOF
		}
		switch token := token.(type) {
		case xml.StartElement:
			at = append(at, token.Name.Local)
			if ok || text != nil || !isAt(at, path) {
				continue
			}
			if !wantsAttribute {
				text, depth = &strings.Builder{}, len(at)
			}
			for _, a := range token.Attr {
				if wantsAttribute && a.Name.Local == attribute {
					found, ok = a.Value, true
				}
			}
		case xml.CharData:
			if text != nil {
				text.Write(token)
			}
		case xml.EndElement:
			if text != nil && len(at) == depth {
				found, ok, text = strings.TrimSpace(text.String()), true, nil
			}
			at = at[:len(at)-1]
		}
	}
}

// isAt reports whether an element is at a path. names lists the elements from the root to this one.
func isAt(names []string, path string) bool {
	whole := "/" + strings.Join(names, "/")
	if anywhere, ok := strings.CutPrefix(path, "//"); ok {
		return strings.HasSuffix(whole, "/"+anywhere)
	}
	return whole == path
}
