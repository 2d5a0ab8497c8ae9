// Package adapters lets libraries with a lock interface of their own use handoff. Copy what you
// need: each adapter needs only handoff and its library.
package adapters

import (
	"context"
	"database/sql"

	"grablab/handoff"
	"grablab/handoff/adapter"

	"github.com/go-co-op/gocron/v2"
	goose "github.com/pressly/goose/v3/lock"
)

// Gocron is a locker for gocron.WithDistributedLocker: each run of a job happens on only one of
// several schedulers. A scheduler that finds the job running skips this run.
type Gocron struct{ Locks *handoff.Locker }

var _ gocron.Locker = Gocron{}

// Lock takes the lock of the job named key without waiting.
func (g Gocron) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := g.Locks.TryAcquire(ctx, "gocron:"+key)
	if err != nil {
		return nil, err // a nil *handoff.Lease in the interface would not be nil
	}
	return gocronLock{lease}, nil
}

// gocronLock is the lock of one run.
type gocronLock struct{ lease *handoff.Lease }

// Unlock ends the run.
func (l gocronLock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// Goose is a locker for goose.WithLocker: of several instances that start at the same time, one
// runs the migrations while the others wait. If the lease is lost, a running statement continues.
// So use it only for migrations that may run twice, or prefer goose's own database locks.
type Goose struct{ names *adapter.Names }

var _ goose.Locker = Goose{}

// NewGoose returns a Goose that takes its lock from the given Locker.
func NewGoose(locks *handoff.Locker) Goose { return Goose{adapter.NewNames(locks)} }

// migrations is the key of the lock.
const migrations = "goose:migrations"

// Lock waits until no other instance runs migrations. It does not use the database.
func (g Goose) Lock(ctx context.Context, _ *sql.DB) error { return g.names.Lock(ctx, migrations) }

// Unlock lets the next instance run.
func (g Goose) Unlock(ctx context.Context, _ *sql.DB) error { return g.names.Unlock(ctx, migrations) }
