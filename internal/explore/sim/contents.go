package sim

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// appendContents appends a line for each key: its value, and when it ends.
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

// appendValue knows the types that locks are made of; what it cannot read is
// shown as an error, which no two states share by accident.
func appendValue(b []byte, m *miniredis.Miniredis, key string) []byte {
	switch m.Type(key) {
	case "string":
		value, err := m.Get(key)
		return appendOr(b, value, err)
	case "hash":
		fields, err := m.HKeys(key)
		for _, f := range fields {
			b = fmt.Appendf(b, "%s:%s ", f, m.HGet(key, f))
		}
		return appendOr(b, "", err)
	case "list":
		values, err := m.List(key)
		for _, v := range values {
			b = append(append(b, v...), ' ')
		}
		return appendOr(b, "", err)
	case "zset":
		members, err := m.ZMembers(key)
		for _, member := range members {
			score, _ := m.ZScore(key, member)
			b = append(append(b, member...), '@')
			b = append(strconv.AppendFloat(b, score, 'g', -1, 64), ' ')
		}
		return appendOr(b, "", err)
	case "set":
		members, err := m.SMembers(key)
		for _, member := range members {
			b = append(append(b, member...), ' ')
		}
		return appendOr(b, "", err)
	default:
		return append(b, "of type "+m.Type(key)...)
	}
}

func appendOr(b []byte, value string, err error) []byte {
	if err != nil {
		return append(b, err.Error()...)
	}
	return append(b, value...)
}

// leaseOf finds the key that has a value in it, and for how long it lives; 0: for
// ever. A queue is no lease.
func (n *node) leaseOf(value string) (ttl time.Duration, ok bool) {
	if value == "" {
		return 0, false
	}
	for _, key := range n.redis.Keys() {
		if t := n.redis.Type(key); t != "string" && t != "hash" {
			continue
		}
		if bytes.Contains(appendValue(nil, n.redis, key), []byte(value)) {
			return n.redis.TTL(key), true
		}
	}
	return 0, false
}
