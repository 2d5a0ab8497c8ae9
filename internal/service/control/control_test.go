package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
)

// A harness learns what a call was answered, and from the code whether its
// deadline had passed.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want control.Answer
	}{
		{nil, control.Answer{}},
		{errors.New("refused"), control.Answer{Error: "refused"}},
		{fmt.Errorf("lock: %w", context.DeadlineExceeded), control.Answer{Error: "lock: context deadline exceeded", Code: control.Deadline}},
		{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), control.Answer{Error: "read: i/o timeout", Code: control.Deadline}},
	} {
		s := control.NewServer("8004", 0, history.Discard)
		c := s.Client()
		if err := c.SetHold(t.Context(), "all", control.Hold{First: 7, Count: 1, Drivers: []int64{1}}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			op := tap.Op{Order: 7, Driver: 1, Phase: tap.Acquire, Target: "redis"}
			ended <- s.Do(t.Context(), op, func(context.Context) error { return tt.err })
		}()
		held, err := c.Held(t.Context(), "all", 1, time.Minute)
		if err != nil || len(held) != 1 {
			t.Fatalf("held %v, %v", held, err)
		}
		if a, err := c.Release(t.Context(), "all", held[0].Call, control.Delivered); err != nil || a != tt.want {
			t.Errorf("%v: %+v, %v, want %+v", tt.err, a, err, tt.want)
		}
		if err := <-ended; err != tt.err {
			t.Errorf("the caller got %v, want %v", err, tt.err)
		}
	}
}
