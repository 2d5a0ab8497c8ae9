package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// ErrAssert says that an assertion cannot be understood.
var ErrAssert = errors.New("experiment: bad assertion")

// Assert is a claim about the cells of a run, as -assert takes it:
//
//	[strategy[/fault]:]field OP value      double_grabs==0   setnx:latency_ms.p99<50
//	[strategy[/fault]:]expected            every verdict is the expected one
//
// It must hold in every cell that it selects, and in one at the least. What is
// null or unknown never holds: a claim is proved, or it is not. A cell that is
// n/a was not run: it is passed over, but for a claim about its verdict.
type Assert struct {
	Strategy string     // "": every one
	Fault    lock.Fault // "": every one
	Field    string     // dotted path in a cell's JSON; "": expected
	Op       string
	Value    string // as the field's JSON would be printed: 50, safe, true
}

// operators, the longer before those that they begin with.
var operators = []struct {
	text  string
	words bool                 // compares words, too
	holds func(order int) bool // of cmp.Compare(actual, claimed)
}{
	{"==", true, func(o int) bool { return o == 0 }},
	{"!=", true, func(o int) bool { return o != 0 }},
	{"<=", false, func(o int) bool { return o <= 0 }},
	{">=", false, func(o int) bool { return o >= 0 }},
	{"<", false, func(o int) bool { return o < 0 }},
	{">", false, func(o int) bool { return o > 0 }},
}

const allExpected = "expected"

// Foreign is what a cell of targets is called that know no strategies.
const Foreign = "foreign"

// ParseAssert reads an assertion. Its errors wrap ErrAssert.
func ParseAssert(text string) (Assert, error) {
	a, err := parseAssert(text)
	if err != nil {
		return Assert{}, fmt.Errorf("%w: %w", ErrAssert, err)
	}
	return a, nil
}

func parseAssert(text string) (a Assert, err error) {
	rest := strings.TrimSpace(text)
	// Names of strategies have no dots: a path may name an instance by its address.
	if cell, claim, ok := strings.Cut(rest, ":"); ok && !strings.ContainsAny(cell, ".=!<>") {
		rest = strings.TrimSpace(claim)
		if a.Strategy, a.Fault, err = parseSelector(cell); err != nil {
			return a, err
		}
	}
	if rest == allExpected {
		return a, nil
	}
	at := strings.IndexAny(rest, "=!<>")
	if at < 0 {
		return a, errors.New(`want FIELD OP NUMBER, as in double_grabs==0, or the word "expected"`)
	}
	a.Field, rest = strings.TrimSpace(rest[:at]), rest[at:]
	for _, op := range operators {
		if value, ok := strings.CutPrefix(rest, op.text); ok {
			a.Op, a.Value = op.text, strings.TrimSpace(value)
			return a, a.resolve(op.words)
		}
	}
	return a, errors.New("the operators are == != < <= > >=")
}

func parseSelector(text string) (string, lock.Fault, error) {
	name, fault, hasFault := strings.Cut(strings.TrimSpace(text), "/")
	if name == "" {
		return "", "", errors.New("a strategy must stand before the colon")
	}
	if hasFault && !slices.Contains(lock.Faults, lock.Fault(fault)) {
		return "", "", fmt.Errorf("there is no fault %q", fault)
	}
	return name, lock.Fault(fault), nil
}

// resolve holds the path against the type of a cell, and the value against
// what is found there.
func (a *Assert) resolve(words bool) error {
	kind, err := fieldKind(reflect.TypeFor[Cell](), a.Field)
	if err != nil {
		return err
	}
	if kind == reflect.Float64 {
		x, err := strconv.ParseFloat(a.Value, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s is a number, and %q is none", a.Field, a.Value)
		}
		return nil
	}
	if !words {
		return fmt.Errorf("%s is a word, which can only be compared by == and !=", a.Field)
	}
	a.Value = unquote(a.Value)
	if choices := choicesOf(a.Field, kind); choices != nil && !slices.Contains(choices, a.Value) {
		return fmt.Errorf("%s is one of %s, and never %q", a.Field, strings.Join(choices, ", "), a.Value)
	}
	return nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// choicesOf lists what a word can be; nil: anything.
func choicesOf(field string, kind reflect.Kind) []string {
	switch {
	case kind == reflect.Bool:
		return []string{"true", "false"}
	case field == "verdict", field == "expected":
		return []string{string(lock.Safe), string(lock.Unsafe), string(lock.Stuck), string(lock.Unknown), string(lock.NA)}
	default:
		return nil
	}
}

// fieldKind finds what the path leads to in t: Float64 for every number, Bool
// or String.
func fieldKind(t reflect.Type, path string) (reflect.Kind, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, rest, deeper := strings.Cut(path, ".")
	switch t.Kind() {
	case reflect.Struct:
		names := jsonNames(t)
		if path == "" {
			return 0, fmt.Errorf("name one of its fields: %s", strings.Join(names, ", "))
		}
		i := slices.Index(names, name)
		if i < 0 {
			return 0, fmt.Errorf("there is no field %q; there are %s", name, strings.Join(names, ", "))
		}
		kind, err := fieldKind(t.Field(i).Type, rest)
		if err != nil {
			return 0, err
		}
		return kind, nil
	case reflect.Map:
		if path == "" {
			return 0, errors.New("name one of its entries, as in outcomes.grabbed")
		}
		if t.Key() == reflect.TypeFor[grab.Outcome]() && !slices.Contains(grab.Outcomes, grab.Outcome(path)) {
			return 0, fmt.Errorf("there is no outcome %q; there are %v", path, grab.Outcomes)
		}
		return fieldKind(t.Elem(), "") // the whole rest is the key
	case reflect.Slice:
		return 0, errors.New("a list cannot be compared")
	}
	if path != "" || deeper {
		return 0, fmt.Errorf("nothing lies below it, so there is no %q", path)
	}
	if t.Kind() == reflect.Int {
		return reflect.Float64, nil
	}
	return t.Kind(), nil
}

// jsonNames of a struct's fields, in their order.
func jsonNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// String is the assertion as ParseAssert reads it.
func (a Assert) String() string {
	var b strings.Builder
	if a.Strategy != "" {
		b.WriteString(a.Strategy)
		if a.Fault != "" {
			b.WriteString("/" + string(a.Fault))
		}
		b.WriteByte(':')
	}
	if a.Field == "" {
		b.WriteString(allExpected)
	}
	b.WriteString(a.Field + a.Op + quote(a.Value))
	return b.String()
}

// quote protects what unquoting would change.
func quote(s string) string {
	if strings.TrimSpace(s) != s || unquote(s) != s {
		return "'" + s + "'"
	}
	return s
}

// Misses says where the assertion does not hold, one sentence each; none: it
// holds.
func (a Assert) Misses(run *Run) []string {
	var misses []string
	looked := 0
	for _, c := range run.Cells {
		if a.Strategy != "" && a.Strategy != c.Strategy || a.Fault != "" && a.Fault != c.Fault {
			continue
		}
		if c.Verdict == lock.NA && a.Field != "verdict" || a.Field == "" && c.Expected == nil {
			continue
		}
		looked++
		if actual, ok := a.holds(c); !ok {
			misses = append(misses, fmt.Sprintf("%v: %s/%s: %s", a, c.Strategy, c.Fault, actual))
		}
	}
	if looked == 0 {
		misses = append(misses, fmt.Sprintf("%v: no cell could be compared", a))
	}
	return misses
}

// holds in one cell? Else it says what stands there.
func (a Assert) holds(c Cell) (actual string, ok bool) {
	if a.Field == "" {
		return fmt.Sprintf("verdict is %s, expected %s", c.Verdict, *c.Expected), c.Verdict == *c.Expected
	}
	v := lookUp(c, a.Field)
	actual = fmt.Sprintf("%s is %v", a.Field, v)
	var order int
	switch v := v.(type) {
	case float64:
		actual = a.Field + " is " + strconv.FormatFloat(v, 'f', -1, 64)
		claimed, err := strconv.ParseFloat(a.Value, 64)
		if err != nil {
			return actual, false
		}
		order = cmp.Compare(v, claimed)
	case bool:
		order = cmp.Compare(strconv.FormatBool(v), a.Value)
	case string:
		if v == string(lock.Unknown) {
			return actual, false
		}
		order = cmp.Compare(v, a.Value)
	default:
		return a.Field + " could not be counted", false
	}
	for _, op := range operators {
		if op.text == a.Op {
			return actual, op.holds(order)
		}
	}
	return actual, false
}

// lookUp follows a path in the JSON of a cell. nil: nothing was counted.
func lookUp(c Cell, path string) any {
	b, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	var at any
	if err := json.Unmarshal(b, &at); err != nil {
		return nil
	}
	name, rest, _ := strings.Cut(path, ".")
	for {
		object, _ := at.(map[string]any)
		at = object[name]
		switch {
		case rest == "":
			return at
		case name == "outcomes" || name == "errors" || name == "served_by":
			return count(at, rest, c.Requests > 0)
		}
		name, rest, _ = strings.Cut(rest, ".")
	}
}

// count of a kind in a table of those that occurred: a kind that did not is 0,
// if there was anything to count.
func count(table any, kind string, counted bool) any {
	object, _ := table.(map[string]any)
	if n, ok := object[kind]; ok {
		return n
	}
	if counted {
		return 0.0
	}
	return nil
}
