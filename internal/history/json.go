package history

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// No text in an event exceeds maxText bytes, so a line never exceeds maxLine bytes.
const (
	maxText = 1 << 10
	maxLine = 64 << 10
)

// AppendJSON appends the event as one line of JSON without a newline. It is faster than
// encoding/json, and truncates texts longer than 1 KiB.
func (e Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"t_ns":`...)
	b = strconv.AppendInt(b, int64(e.T), 10)
	b = append(b, `,"instance":`...)
	b = appendText(b, e.Instance)
	if e.Incarnation != 0 {
		b = append(b, `,"incarnation":`...)
		b = strconv.AppendInt(b, int64(e.Incarnation), 10)
	}
	b = append(b, `,"kind":`...)
	b = appendText(b, string(e.Kind))
	b = append(b, `,"op":`...)
	b = appendText(b, e.Op)
	b = append(b, `,"order":`...)
	b = strconv.AppendInt(b, e.Order, 10)
	b = append(b, `,"driver":`...)
	b = strconv.AppendInt(b, e.Driver, 10)
	b = appendOptional(b, `,"strategy":`, e.Strategy)
	b = appendOptional(b, `,"token":`, e.Token)
	if e.Fence != 0 {
		b = append(b, `,"fence":`...)
		b = strconv.AppendUint(b, e.Fence, 10)
	}
	b = appendOptional(b, `,"code":`, string(e.Code))
	if e.Lease != 0 {
		b = append(b, `,"lease_ns":`...)
		b = strconv.AppendInt(b, int64(e.Lease), 10)
	}
	b = appendOptional(b, `,"note":`, e.Note)
	return append(b, '}')
}

func appendOptional(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendText(append(b, name...), text)
}

func appendText(b []byte, s string) []byte {
	if len(s) > maxText {
		s = s[:maxText]
	}
	if !plain(s) {
		text, _ := json.Marshal(s) // Marshal cannot fail for a string
		return append(b, text...)
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// plain reports whether s needs no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
