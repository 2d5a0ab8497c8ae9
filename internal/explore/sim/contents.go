package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// contentsOf returns one line for each key on a Redis server, with the key's value and expiry. The
// checks read from this text what the server stores.
func contentsOf(m *miniredis.Miniredis, now time.Time) string {
	var b strings.Builder
	for _, key := range m.Keys() {
		fmt.Fprintf(&b, "%s = %s", key, valueOf(m, key))
		if ttl := m.TTL(key); ttl > 0 {
			fmt.Fprintf(&b, " until %s", now.Add(ttl).Sub(epoch).Round(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// valueOf returns a key's value as text. If it cannot, it returns the value's type or the error
// instead.
func valueOf(m *miniredis.Miniredis, key string) (value string) {
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
	for _, v := range values {
		value += v + " "
	}
	if err != nil {
		value += err.Error()
	}
	return value
}

// leaseOf returns the remaining TTL of the string or hash that contains value, or 0 if the key
// never expires.
func (n *redisServer) leaseOf(value string) (ttl time.Duration, ok bool) {
	if value == "" {
		return 0, false
	}
	for _, key := range n.redis.Keys() {
		if t := n.redis.Type(key); t != "string" && t != "hash" {
			continue
		}
		if mentions(valueOf(n.redis, key), value) {
			return n.redis.TTL(key), true
		}
	}
	return 0, false
}
