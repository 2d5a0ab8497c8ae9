package lock

import (
	"errors"
	"time"
)

var (
	errNoRedis = errors.New("lock: this strategy needs a Redis")
	errTTL     = errors.New("lock: a lease needs a TTL of at least 1ms")
)

// needRedis checks what every lock in a single Redis needs of its Env.
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
