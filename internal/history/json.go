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
	b = strconv.AppendUint(append(b, `{"seq":`...), e.Seq, 10)
	b = strconv.AppendInt(append(b, `,"t_ns":`...), int64(e.T), 10)
	b = appendText(append(b, `,"instance":`...), e.Instance)
	if e.Incarnation != 0 {
		b = strconv.AppendInt(append(b, `,"incarnation":`...), int64(e.Incarnation), 10)
	}
	b = appendText(append(b, `,"kind":`...), string(e.Kind))
	b = appendText(append(b, `,"op":`...), e.Op)
	b = strconv.AppendInt(append(b, `,"order":`...), e.Order, 10)
	b = strconv.AppendInt(append(b, `,"driver":`...), e.Driver, 10)
	b = appendOptional(b, `,"strategy":`, e.Strategy)
	b = appendOptional(b, `,"token":`, e.Token)
	if e.Fence != 0 {
		b = strconv.AppendUint(append(b, `,"fence":`...), e.Fence, 10)
	}
	b = appendOptional(b, `,"code":`, string(e.Code))
	if e.Lease != 0 {
		b = strconv.AppendInt(append(b, `,"lease_ns":`...), int64(e.Lease), 10)
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
