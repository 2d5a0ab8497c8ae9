package explore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"grablab/internal/order"
)

// TestGuardsAgree checks that each guard gives the same results in SQL and in the simulated database.
func TestGuardsAgree(t *testing.T) {
	for _, guard := range order.Guards {
		if difference, err := checkGuard(t.Context(), guard); difference != "" || err != nil {
			t.Errorf("%s: %s, %v", guard, difference, err)
		}
	}
}

// A wrongStore is a database whose guard has a mistake: claim changes its result.
type wrongStore struct {
	*order.Mem
	claim func(context.Context, order.Claim, error) error
}

func (w wrongStore) Claim(ctx context.Context, c order.Claim, g order.Guard) error {
	return w.claim(ctx, c, w.Mem.Claim(ctx, c, g))
}

// A wrongReader is a database whose reads return the wrong row.
type wrongReader struct{ *order.Mem }

func (w wrongReader) Read(ctx context.Context, id int64, fence uint64) (order.Order, error) {
	row, err := w.Mem.Read(ctx, id, fence)
	row.Driver = 7
	return row, err
}

// TestReadsDiffer checks that the comparison includes the row that a read returns.
func TestReadsDiffer(t *testing.T) {
	g := guardCheck{order.Guarded, [2]order.Store{&order.Mem{}, wrongReader{&order.Mem{}}}}
	got, err := g.compare(t.Context(), 1)
	if want := "after read with token 0, the guard guarded gives"; !strings.HasPrefix(got, want) || !strings.Contains(got, "Driver:7") || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestNoSpace checks that a database that cannot use its file is an error, and no mistake of the guard.
func TestNoSpace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no.db")
	if err := os.WriteFile(file, bytes.Repeat([]byte("no database"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	_, failure := order.Connect(t.Context(), "sqlite:"+file, order.Options{})
	if !order.IsFileFailure(failure) {
		t.Fatalf("%v is no failure of the file", failure)
	}
	g := guardCheck{order.Guarded, [2]order.Store{&order.Mem{}, wrongStore{&order.Mem{}, func(context.Context, order.Claim, error) error { return failure }}}}
	if difference, err := g.compare(t.Context(), 1); difference != "" || !errors.Is(err, failure) {
		t.Errorf("difference %q, error %v, want only the error %v", difference, err, failure)
	}
	t.Setenv("TMPDIR", file)
	if difference, err := compareGuard(t.Context(), order.Guarded); difference != "" || err == nil || !strings.Contains(err.Error(), file+" has free space") {
		t.Errorf("without a folder: difference %q, error %v", difference, err)
	}
}

// TestGuardsDiffer checks that the comparison of a wrong guard with a right one shows a difference, and that it
// names the calls that lead there.
func TestGuardsDiffer(t *testing.T) {
	var twice *order.Mem // the database of the case in which a write is repeated
	for _, c := range []struct {
		name, want string
		guard      order.Guard
		claim      func(context.Context, order.Claim, error) error
	}{
		{"a refused write is unknown", `read with token 1, write of driver 2 with token 2, the guard fenced gives "not written" in SQL`, order.Fenced, func(_ context.Context, _ order.Claim, err error) error {
			if errors.Is(err, order.ErrNotWritten) {
				return errors.New("no answer")
			}
			return err
		}},
		{"taken counts as stale", `write of driver 1 with token 0, the guard guarded gives`, order.Guarded, func(_ context.Context, _ order.Claim, err error) error {
			if errors.Is(err, order.ErrTaken) {
				return order.ErrStale
			}
			return err
		}},
		{"a write is made twice", `1/0/token-1-0 1/0/token-1-0`, order.Naive, func(ctx context.Context, c order.Claim, err error) error {
			return errors.Join(err, twice.Claim(ctx, c, order.Naive))
		}},
	} {
		twice = &order.Mem{}
		g := guardCheck{c.guard, [2]order.Store{&order.Mem{}, wrongStore{twice, c.claim}}}
		got, err := g.compare(t.Context(), 1)
		if !strings.Contains(got, c.want) || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}
