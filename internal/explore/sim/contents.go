package sim

import (
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// appendContents appends one line per key of a Redis server, with the key's value and expiry.
func appendContents(b []byte, m *miniredis.Miniredis, now time.Time) []byte {
	for _, key := range m.Keys() {
		b = append(b, key...)
		b = append(b, " = "...)
		b = appendValue(b, m, key)
		if ttl := m.TTL(key); ttl > 0 {
			b = append(b, " until "...)
			b = append(b, now.Add(ttl).Sub(epoch).Round(time.Millisecond).String()...)
		}
		b = append(b, '\n')
	}
	return b
}

// appendValue appends the value of a key. If the value cannot be shown as text, it appends the type
// of the value or the error.
func appendValue(b []byte, m *miniredis.Miniredis, key string) []byte {
	var value string
	var values []string
	var err error
	switch kind := m.Type(key); kind {
	case "string":
		value, err = m.Get(key)
	case "hash":
		values, err = m.HKeys(key)
		for i, field := range values {
			values[i] = field + ":" + m.HGet(key, field)
		}
	case "list":
		values, err = m.List(key)
	case "set":
		values, err = m.SMembers(key)
	case "zset":
		values, err = m.ZMembers(key)
		for i, member := range values {
			score, _ := m.ZScore(key, member)
			values[i] = member + "@" + strconv.FormatFloat(score, 'g', -1, 64)
		}
	default:
		value = "of type " + kind
	}
	b = append(b, value...)
	for _, v := range values {
		b = append(append(b, v...), ' ')
	}
	if err != nil {
		b = append(b, err.Error()...)
	}
	return b
}

// leaseOf returns the remaining TTL of the string or hash that contains value. A TTL of 0 means
// that the key never expires.
func (n *redisServer) leaseOf(value string) (ttl time.Duration, ok bool) {
	if value == "" {
		return 0, false
	}
	for _, key := range n.redis.Keys() {
		if t := n.redis.Type(key); t != "string" && t != "hash" {
			continue
		}
		if mentions(string(appendValue(nil, n.redis, key)), value) {
			return n.redis.TTL(key), true
		}
	}
	return 0, false
}
