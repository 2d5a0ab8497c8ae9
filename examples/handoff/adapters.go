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

// Gocron lets several schedulers share jobs: one scheduler runs each job, and the others skip it.
// Pass it to gocron.WithDistributedLocker.
type Gocron struct{ Locks *handoff.Locker }

var _ gocron.Locker = Gocron{}

// Lock tries once to acquire a job's lock. It returns an error if another scheduler holds the lock.
func (g Gocron) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := g.Locks.TryAcquire(ctx, "gocron:"+key)
	if err != nil {
		return nil, err // a nil *handoff.Lease would become a non-nil interface
	}
	return gocronLock{lease}, nil
}

type gocronLock struct{ lease *handoff.Lease }

// Unlock releases the job's lock.
func (l gocronLock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// Goose lets one instance run the migrations while the others wait. Pass it to goose.WithLocker. A
// running statement continues even if the lock is lost, so use goose's own locks for migrations
// that must not run twice.
type Goose struct{ names *adapter.Names }

var _ goose.Locker = Goose{}

// NewGoose returns a Goose that acquires its lock from locks.
func NewGoose(locks *handoff.Locker) Goose { return Goose{adapter.NewNames(locks)} }

const migrations = "goose:migrations"

// Lock waits until no other instance runs migrations. It uses Redis instead of the database.
func (g Goose) Lock(ctx context.Context, _ *sql.DB) error { return g.names.Lock(ctx, migrations) }

// Unlock lets another instance run migrations.
func (g Goose) Unlock(ctx context.Context, _ *sql.DB) error { return g.names.Unlock(ctx, migrations) }
