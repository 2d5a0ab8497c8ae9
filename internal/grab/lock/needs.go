package lock

import (
	"errors"
	"time"
)

var (
	errNoRedis    = errors.New("lock: this strategy needs a Redis")
	errNoDatabase = errors.New("lock: this strategy needs a database")
	errTTL        = errors.New("lock: a lease needs a TTL of at least 1ms")
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
