// Package adapters connects handoff to libraries that have their own lock interface. Copy the
// adapter that you need.
package adapters

import (
	"context"
	"database/sql"

	"grablab/handoff"
	"grablab/handoff/adapter"

	"github.com/go-co-op/gocron/v2"
	goose "github.com/pressly/goose/v3/lock"
)

// Gocron is a lock for gocron.WithDistributedLocker, with which one scheduler runs each job and the
// others skip it.
type Gocron struct{ Locks *handoff.Locker }

var _ gocron.Locker = Gocron{}

// Lock takes the lock of a job without waiting. It returns an error if another scheduler has the
// lock.
func (g Gocron) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := g.Locks.TryAcquire(ctx, "gocron:"+key)
	if err != nil {
		return nil, err // do not return a nil *handoff.Lease as a non-nil interface
	}
	return gocronLock{lease}, nil
}

type gocronLock struct{ lease *handoff.Lease }

// Unlock releases the lock of the job.
func (l gocronLock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// Goose is a lock for goose.WithLocker, with which one instance runs the migrations while the
// others wait. A running statement continues even if the lock is lost, so use goose's own locks for
// migrations that must not run twice.
type Goose struct{ names *adapter.Names }

var _ goose.Locker = Goose{}

// NewGoose returns a Goose that takes its lock from locks.
func NewGoose(locks *handoff.Locker) Goose { return Goose{adapter.NewNames(locks)} }

const migrations = "goose:migrations"

// Lock waits until no other instance runs migrations. It uses Redis instead of the database.
func (g Goose) Lock(ctx context.Context, _ *sql.DB) error { return g.names.Lock(ctx, migrations) }

// Unlock lets another instance run migrations.
func (g Goose) Unlock(ctx context.Context, _ *sql.DB) error { return g.names.Unlock(ctx, migrations) }
