package target

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
)

// Template is a text with placeholders such as {order}. Any other braces are plain text, so JSON
// needs no escaping.
type Template struct {
	text  string // the original text
	parts []part
	// isURL and isForm mean that the text is part of a URL or a form, where an ID may need escaping.
	isURL, isForm bool
}

type part struct {
	text string
	name string // placeholder name; empty for a piece of text
}

const (
	orderID    = "order"
	orderUUID  = "order_uuid"
	driverID   = "driver"
	driverUUID = "driver_uuid"
	driverName = "driver_name"
	count      = "count"
	firstID    = "first"
	lastID     = "last"
)

// grabSlots lists the placeholders that a grab request may contain.
var grabSlots = []string{orderID, orderUUID, driverID, driverUUID, driverName}

var placeholder = regexp.MustCompile(`\{[A-Za-z_]+(_[0-9]+)?\}`)

// ParseTemplate parses a text that may contain the placeholders in names.
func ParseTemplate(text string, names ...string) (Template, error) {
	t := Template{text: text}
	from := 0
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		name := text[at[0]+1 : at[1]-1]
		if !slices.Contains(names, name) {
			if near := catalog.Nearest(name, names); near != "" {
				return t, fmt.Errorf("there is no placeholder {%s}; did you mean {%s}?", name, near)
			}
			return t, fmt.Errorf("there is no placeholder {%s}: use {%s}, or write { %[1]s } for plain text, as in a GraphQL query", name, strings.Join(names, "}, {"))
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

// Has reports whether the template contains any of these placeholders.
func (t Template) Has(names ...string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return slices.Contains(names, p.name) })
}

// String returns the original text.
func (t Template) String() string { return t.text }

// grab appends the text to b, with the driver and the order in place of the placeholders.
func (t Template) grab(b []byte, order, driver int64, ids *IDs) []byte {
	for _, p := range t.parts {
		switch p.name {
		case "":
			b = append(b, p.text...)
		case orderID:
			b = strconv.AppendInt(b, order, 10)
		case orderUUID:
			id := ids.Order(order)
			if t.isURL || t.isForm {
				id = escapedIn(b, id, t.isForm)
			}
			b = append(b, id...)
		case driverUUID:
			b = append(b, uuidOf(driverUUIDs, driver)...)
		case driverName:
			b = strconv.AppendInt(append(b, driverNames...), driver, 10)
		default:
			b = strconv.AppendInt(b, driver, 10)
		}
	}
	return b
}

// escapedIn returns an ID as it must be written after the text b, which is the beginning of a URL or
// of a form. In a form, and in the query of a URL, a plus sign would mean a space.
func escapedIn(b []byte, id string, isForm bool) string {
	if isForm || bytes.IndexByte(b, '?') >= 0 {
		return url.QueryEscape(id)
	}
	return url.PathEscape(id)
}
