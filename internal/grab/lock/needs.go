package lock

import (
	"errors"
	"time"
)

var (
	errNoRedis    = errors.New("lock: this strategy needs a Redis server, but none is configured")
	errNoDatabase = errors.New("lock: this strategy needs a database, but none is configured")
	errTTL        = errors.New("lock: the TTL of a lease must be at least 1ms")
)

// serverTimeout limits how long a strategy's New function waits for a server.
const serverTimeout = 5 * time.Second

// needRedis returns an error if env has no Redis client or its TTL is too short.
func needRedis(env Env) error {
	if env.Redis == nil {
		return errNoRedis
	}
	return needTTL(env)
}

func needTTL(env Env) error {
	if env.TTL < time.Millisecond {
		return errTTL
	}
	return nil
}
