package target

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
)

// Template is text with placeholders: names in braces, as {order}. Any other brace
// stands for itself, so that JSON is written as it is.
type Template struct {
	parts []part
}

// part of a template: text, or a placeholder.
type part struct {
	text string
	name string // "": text
}

// The placeholders.
const (
	orderID  = "order"
	driverID = "driver"
	count    = "count"
	firstID  = "first"
	lastID   = "last"
)

// Values fill in a template.
type Values map[string]int64

var placeholder = regexp.MustCompile(`\{[A-Za-z_]+\}`)

// ParseTemplate reads a template in which only the placeholders of that name may stand.
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

// Has says whether the placeholder stands in the template.
func (t Template) Has(name string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.name == name })
}

// String is the template as it was written.
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

// Fill is the text with every placeholder filled in.
func (t Template) Fill(v Values) string {
	return string(t.append(nil, func(name string) int64 { return v[name] }))
}

// grab appends the text for one driver's grab of an order.
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
