package target

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
)

// Template is a text with placeholders, which are names in braces such as {order}. Other
// braces stand for themselves, so JSON needs no escaping.
type Template struct {
	parts []part
}

// part is a text or a placeholder.
type part struct {
	text string
	name string // name of the placeholder; empty for a text
}

// The placeholders.
const (
	orderID  = "order"
	driverID = "driver"
	count    = "count"
	firstID  = "first"
	lastID   = "last"
)

// Values maps placeholders to their values.
type Values map[string]int64

var placeholder = regexp.MustCompile(`\{[A-Za-z_]+(_[0-9]+)?\}`)

// ParseTemplate parses a template. It accepts only placeholders with these names.
func ParseTemplate(text string, names ...string) (Template, error) {
	var t Template
	from := 0
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		name := text[at[0]+1 : at[1]-1]
		if !slices.Contains(names, name) {
			if near := catalog.Nearest(name, names); near != "" {
				return t, fmt.Errorf("there is no placeholder {%s}; did you mean {%s}?", name, near)
			}
			return t, fmt.Errorf("there is no placeholder {%s}; there are {%s}", name, strings.Join(names, "}, {"))
		}
		if from < at[0] {
			t.parts = append(t.parts, part{text: text[from:at[0]]})
		}
		t.parts = append(t.parts, part{name: name})
		from = at[1]
	}
	if from < len(text) {
		t.parts = append(t.parts, part{text: text[from:]})
	}
	return t, nil
}

// Has reports whether the template contains a placeholder with this name.
func (t Template) Has(name string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.name == name })
}

// String returns the text from which the template was parsed.
func (t Template) String() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name != "" {
			b.WriteString("{" + p.name + "}")
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// Fill returns the text with the values in place of the placeholders.
func (t Template) Fill(v Values) string {
	return string(t.append(nil, func(name string) int64 { return v[name] }))
}

// grab appends the text for a driver's grab of an order to b.
func (t Template) grab(b []byte, order, driver int64) []byte {
	return t.append(b, func(name string) int64 {
		if name == orderID {
			return order
		}
		return driver
	})
}

func (t Template) append(b []byte, value func(name string) int64) []byte {
	for _, p := range t.parts {
		if p.name != "" {
			b = strconv.AppendInt(b, value(p.name), 10)
		} else {
			b = append(b, p.text...)
		}
	}
	return b
}
