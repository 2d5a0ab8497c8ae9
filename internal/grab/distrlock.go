package grab

import (
	"cmp"
	"context"
	"errors"
	"time"

	"grablab/internal/grab/lock"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
)

// These are the limits of the /distrLock API.
const (
	distrTTL     = 50_000 * time.Millisecond
	distrTimeout = 5 * time.Second
	maxDistrName = 128 // for a key or a uuid, in bytes
	// distrPrefix is the prefix of all Redis keys that this API uses. It keeps them apart from the
	// keys of the lock strategies.
	distrPrefix = "distr:"
)

func (a api) distrLock(ctx context.Context, c *gin.Context) (any, error) {
	return a.distr(ctx, c, func(ctx context.Context, r redis.UniversalClient, key, uuid string) (any, error) {
		locked, err := lock.RawLock(ctx, r, key, uuid, distrTTL)
		return gin.H{"locked": locked}, err
	})
}

// distrUnlock answers 1 if the lock was released, and 0 otherwise.
func (a api) distrUnlock(ctx context.Context, c *gin.Context) (any, error) {
	return a.distr(ctx, c, func(ctx context.Context, r redis.UniversalClient, key, uuid string) (any, error) {
		released, err := lock.RawUnlock(ctx, r, key, uuid)
		return gin.H{"released": released}, err
	})
}

func (a api) distr(ctx context.Context, c *gin.Context, do func(ctx context.Context, r redis.UniversalClient, key, uuid string) (any, error)) (any, error) {
	key, uuid := c.Param("key"), c.Param("uuid")
	if err := cmp.Or(checkName("key", key), checkName("uuid", uuid)); err != nil {
		return nil, err
	}
	if a.cfg.Lock.Redis == nil {
		return nil, errNoRedis
	}
	ctx, cancel := context.WithTimeout(ctx, distrTimeout)
	defer cancel()
	return do(ctx, a.cfg.Lock.Redis, distrPrefix+key, uuid)
}

var errNoRedis = errors.New("this instance has no Redis: start it with -redis")

// checkName returns an error if name is not a valid key or uuid. what is "key" or "uuid", and
// appears in the error.
func checkName(what, name string) error {
	if name == "" || len(name) > maxDistrName {
		return badRequest("bad_"+what, "the %s must have 1 to %d bytes", what, maxDistrName)
	}
	return nil
}
