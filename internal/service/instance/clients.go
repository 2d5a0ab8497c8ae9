package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"grablab/handoff"
	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// Each client has at most poolSize connections, enough for a burst of commands, and opens
	// minIdle of them in advance.
	poolSize     = 512
	minIdle      = 32
	minIdleNode  = 16
	redisTimeout = 3 * time.Second
	keepAlive    = 15 * time.Second
)

// clients contains an instance's clients for all servers except the database.
type clients struct {
	redis     redis.UniversalClient // nil unless -redis or -sentinel is given
	redlock   []redis.UniversalClient
	zooKeeper *lock.Ensemble
	etcd      *clientv3.Client

	pings   map[string]func(context.Context) error // pings each server, by server name
	closers []func() error                         // close the clients and, in NewEnv, also the database
}

// newClients returns clients for the servers in cfg, and counts the commands to Redis in sent.
func newClients(cfg Config, sent *atomic.Uint64) (*clients, error) {
	c := &clients{pings: map[string]func(context.Context) error{}}
	if len(cfg.ZooKeeper) > 0 {
		c.zooKeeper = &lock.Ensemble{Servers: cfg.ZooKeeper, Around: tap.Around(cfg.tap, cfg.Instance, "zookeeper")}
		c.pings["zookeeper"] = c.zooKeeper.Ping
	}
	if len(cfg.Etcd) > 0 {
		var err error
		if c.etcd, err = lock.DialEtcd(cfg.Etcd, tap.Etcd(cfg.tap, cfg.Instance, "etcd")...); err != nil {
			return nil, err
		}
		c.closers = append(c.closers, c.etcd.Close)
		c.pings["etcd"] = func(ctx context.Context) error {
			_, err := c.etcd.Get(ctx, "grablab")
			return err
		}
	}
	opts := redis.UniversalOptions{Addrs: cfg.Redis, MinIdleConns: cmp.Or(cfg.MinIdle, minIdle)}
	if len(cfg.Sentinel) > 0 {
		opts.Addrs, opts.MasterName = cfg.Sentinel, cfg.SentinelMaster
	}
	if len(opts.Addrs) > 0 {
		c.redis = c.dialRedis(cfg, "redis", opts, sent)
	}
	for i, node := range cfg.Redlock {
		master, addr, watched := strings.Cut(node, "@")
		if !watched {
			master, addr = "", node
		}
		c.redlock = append(c.redlock, c.dialRedis(cfg, fmt.Sprintf("redlock-%d", i+1),
			redis.UniversalOptions{Addrs: []string{addr}, MasterName: master, MinIdleConns: cmp.Or(cfg.MinIdle, minIdleNode)}, sent))
	}
	return c, nil
}

// dialRedis returns a client that never retries a command, because a second SET NX would find the
// client's own key and fail. It dials only once, so that a dead node costs a single timeout.
func (c *clients) dialRedis(cfg Config, target string, opts redis.UniversalOptions, sent *atomic.Uint64) redis.UniversalClient {
	dialer := &net.Dialer{Timeout: redisTimeout, KeepAlive: keepAlive}
	opts.Dialer = tap.CountRedis(dialer.DialContext, sent)
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = redisTimeout, redisTimeout, redisTimeout
	opts.ContextTimeoutEnabled = true
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.PoolSize = poolSize
	opts.PipelinePoolSize = -1
	opts.ReadBufferSize, opts.WriteBufferSize = 4<<10, 4<<10 // small buffers suffice, because commands are short
	opts.Protocol = 2
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := newRedis(&opts)
	if cfg.tap != nil {
		client.AddHook(tap.Redis(cfg.tap, cfg.Instance, target))
	}
	handoff.Combine(client)
	c.pings[target] = func(ctx context.Context) error { return client.Ping(ctx).Err() }
	c.closers = append(c.closers, client.Close)
	return client
}

// newRedis returns a Redis client. A Cluster client looks for promoted replicas every second
// instead of every minute.
func newRedis(opts *redis.UniversalOptions) redis.UniversalClient {
	if opts.MasterName != "" || len(opts.Addrs) < 2 {
		return redis.NewUniversalClient(opts)
	}
	cluster := opts.Cluster()
	cluster.ClusterStateReloadInterval = time.Second
	return redis.NewClusterClient(cluster)
}

func (c *clients) Close() error {
	return errors.Join(catalog.Map(c.closers, func(closeClient func() error) error { return closeClient() })...)
}

// Sent counts the commands that an instance has sent to its servers.
type Sent struct {
	Redis atomic.Uint64 // number of commands to Redis
	DB    atomic.Uint64 // number of statements to the database
}

// NewEnv returns the clients and settings that locking strategies need. Package lockbench uses it to
// measure locks without a service. If cfg.DB is empty, NewEnv does not connect to a database. close
// closes all clients and the database.
func NewEnv(ctx context.Context, cfg Config, sent *Sent, log *slog.Logger) (env lock.Env, close func() error, err error) {
	c, err := newClients(cfg, &sent.Redis)
	if err != nil {
		return env, nil, err
	}
	var store order.Store
	if cfg.DB != "" {
		db, err := openStore(ctx, cfg, &sent.DB, log)
		if err != nil {
			return env, nil, errors.Join(err, c.Close())
		}
		store, c.closers = db, append(c.closers, db.Close)
	}
	return newEnv(cfg, c, store, cfg.now, log), c.Close, nil
}
