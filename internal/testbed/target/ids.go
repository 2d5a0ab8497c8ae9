package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// IDs translates between this program's order numbers and a service's order IDs. The ID of an order
// that was never added is a UUID that contains its number. IDs is safe for concurrent use.
type IDs struct {
	mu      sync.RWMutex
	texts   []string // the IDs, beginning with that of order 1
	numbers map[string]int64
}

// validID matches IDs that can be part of a URL without escaping.
var validID = regexp.MustCompile(`^[\w.~:@=+-]{1,200}$`)

// Add assigns consecutive numbers to new orders, and returns the first of these numbers.
func (s *IDs) Add(ids []string) (first int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.numbers == nil {
		s.numbers = map[string]int64{}
	}
	first = int64(len(s.texts)) + 1
	for _, id := range ids {
		switch _, known := s.numbers[folded(id)]; {
		case !validID.MatchString(id):
			return 0, fmt.Errorf("the order ID %.60q is not supported: it must have 1 to 200 letters, digits or characters of _.~:@=+-", id)
		case known:
			return 0, fmt.Errorf("two calls returned an order with the same id %s: each call must open a new order", id)
		}
		s.texts = append(s.texts, id)
		s.numbers[folded(id)] = int64(len(s.texts))
	}
	return first, nil
}

// Order returns the service's ID for the order with this number.
func (s *IDs) Order(number int64) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if number >= 1 && number <= int64(len(s.texts)) {
		return s.texts[number-1]
	}
	return uuidOf(orderUUIDs, number)
}

// NumberOf returns the number of an order, or false if there is no such order.
func (s *IDs) NumberOf(id string) (int64, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if number, ok := s.numbers[folded(id)]; ok {
		return number, true
	}
	return numberIn(orderUUIDs, id)
}

var anyUUID = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}$`)

// folded converts UUIDs to lower case, so that they can be compared as strings.
func folded(id string) string {
	if anyUUID.MatchString(id) {
		return strings.ToLower(id)
	}
	return id
}

// These are prefixes of the IDs that this program invents for orders and drivers. The UUIDs spell
// "order" or "driver" in ASCII, and end with the number.
const (
	orderUUIDs  = "6f726465-7200-4000-8000-"
	driverUUIDs = "64726976-6572-4000-8000-"
	driverNames = "driver-"
)

func uuidOf(prefix string, number int64) string { return fmt.Sprintf("%s%012x", prefix, number) }

func numberIn(prefix, id string) (int64, bool) {
	digits, ok := strings.CutPrefix(folded(id), prefix)
	number, err := strconv.ParseInt(digits, 16, 64)
	return number, ok && err == nil
}

// DriverOf extracts a driver's number from its ID. The ID is the number itself, or a UUID or name
// that contains it.
func DriverOf(id string) (int64, bool) {
	if number, ok := numberIn(driverUUIDs, id); ok {
		return number, true
	}
	number, err := strconv.ParseInt(strings.TrimPrefix(id, driverNames), 10, 64)
	return number, err == nil
}

// OrderText returns the order ID that requests use.
func (s *Shape) OrderText(number int64) string {
	if !s.NamesOrders() {
		return strconv.FormatInt(number, 10)
	}
	return s.IDs.Order(number)
}

// NumberOf returns the order number for this ID. If there is no such order, it returns false.
func (s *Shape) NumberOf(id string) (int64, bool) {
	if s.NamesOrders() {
		return s.IDs.NumberOf(id)
	}
	number, err := strconv.ParseInt(id, 10, 64)
	return number, err == nil
}

// NamesOrders reports whether requests must contain the service's own order IDs instead of numbers.
func (s *Shape) NamesOrders() bool { return s != nil && s.has(orderUUID) }

// Source says where a response contains an ID: in JSON, in XML, in the text or in a header. A
// regular expression may select a part of the text there.
type Source struct{ test }

// ParseSource parses a Source, such as .data.id, .orders[*].id, header:Location~"/orders/(.+)$" or
// xml:/order/@id.
func ParseSource(text string) (Source, error) {
	if strings.HasPrefix(text, ".") {
		text = string(fromJSON) + text
	}
	var s Source
	rest, err := s.parsePart(text)
	if rest = strings.TrimSpace(rest); err == nil && strings.HasPrefix(rest, "~") {
		rest, err = s.parseComparison(text, rest)
	}
	switch {
	case errors.Is(err, errRule) || err == nil && rest != "":
		return s, fmt.Errorf("%q: must say where the id is, as in .id, .orders[*].id or header:Location~\"/orders/(.+)$\"", text)
	case err == nil && s.expected != nil && s.expected.NumSubexp() != 1:
		return s, fmt.Errorf("%q: the regular expression must have one group in parentheses, around the id", text)
	}
	return s, err
}

// In extracts the IDs from a response.
func (s Source) In(header http.Header, body []byte) (ids []string) {
	got, ok := (&reply{header: header, body: body}).part(s.test)
	if !ok {
		return nil
	}
	list, isList := got.([]any)
	if !isList {
		list = []any{got}
	}
	for _, one := range list {
		switch one.(type) {
		case string, json.Number:
		default:
			return nil
		}
		text := fmt.Sprint(one)
		if s.expected == nil {
			ids = append(ids, text)
			continue
		}
		for _, m := range s.expected.FindAllStringSubmatch(text, -1) {
			ids = append(ids, m[1])
		}
	}
	return ids
}
