package instance

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Sent counts the commands that an instance has sent to its servers.
type Sent struct {
	Redis atomic.Uint64 // number of commands to Redis
	DB    atomic.Uint64 // number of statements to the database
}

// NewEnv returns the clients and settings that locking strategies need, without starting the
// service. If cfg.DB is empty, it does not connect to a database. close closes all clients.
func NewEnv(ctx context.Context, cfg Config, sent *Sent, log *slog.Logger) (env lock.Env, close func() error, err error) {
	var store order.Store
	closeStore := func() error { return nil }
	if cfg.DB != "" {
		db, err := openStore(ctx, cfg, &sent.DB, log)
		if err != nil {
			return env, nil, err
		}
		store, closeStore = db, db.Close
	}
	clients, err := newClients(cfg, &sent.Redis)
	if err != nil {
		return env, nil, errors.Join(err, closeStore())
	}
	return newEnv(cfg, clients, store, cfg.now, log), func() error { return errors.Join(clients.Close(), closeStore()) }, nil
}
