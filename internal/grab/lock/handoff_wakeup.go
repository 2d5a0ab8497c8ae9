package lock

import (
	"strconv"
	"strings"
)

// wakeup tells a waiter that a lease was handed to it. Without a fence it only
// says that it is worth asking.
type wakeup struct {
	name  string
	fence int64
	key   string
}

// parseWakeup reads what handoff_pass.lua publishes: "name fence key".
func parseWakeup(payload string) (w wakeup, ok bool) {
	name, rest, ok1 := strings.Cut(payload, " ")
	number, key, ok2 := strings.Cut(rest, " ")
	fence, ok3 := parseNumber(number)
	return wakeup{name, fence, key}, ok1 && ok2 && ok3
}

// parseNumber reads a number as Redis writes scores: perhaps with an exponent.
func parseNumber(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return int64(n), err == nil
}

// nameOf is the name of a place in Redis.
func nameOf(channel string, number uint64) string {
	return channel + "/" + strconv.FormatUint(number, 10)
}

// placeOf is the number of the place with that name.
func placeOf(name string) (number uint64, ok bool) {
	number, err := strconv.ParseUint(name[strings.LastIndexByte(name, '/')+1:], 10, 64)
	return number, err == nil
}
