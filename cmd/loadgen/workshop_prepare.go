package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/stack"
)

// prepareClass downloads the modules, builds an example lock once, and reports what is
// missing. The first build fills the build cache, so later builds are fast.
func (w *workshopSettings) prepareClass(ctx context.Context, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "loadgen-workshop-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "my.go")
	if err := os.WriteFile(file, []byte(workshop.OwnLock), 0o600); err != nil {
		return err
	}
	var missing []error
	for _, part := range []struct {
		what string
		do   func() error
	}{
		{"the modules, so that no build needs a network", func() error {
			said, err := goCommand(ctx, dir, (*exec.Cmd).CombinedOutput, "mod", "download")
			if err != nil {
				return fmt.Errorf("go mod download: %w: %s", err, strings.TrimSpace(string(said)))
			}
			return nil
		}},
		{"a lock of one's own, for exercise 12", func() error {
			own, err := takeIn(ctx, file)
			own.remove()
			return err
		}},
		{"servers, for the steps on -stack local of exercises 8 and 9", func() error { return stack.Installed(lock.Redis) }},
	} {
		began := time.Now()
		err := part.do()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(stdout, "missing  %s: %s\n", part.what, withoutPrefix(err, flags.ErrUsage).Error())
			missing = append(missing, err)
			continue
		}
		fmt.Fprintf(stdout, "ready    %s (%s)\n", part.what, time.Since(began).Round(time.Second))
	}
	switch {
	case len(missing) == 0:
		fmt.Fprintln(stdout, "\nAll is there: the class needs no network.")
	case len(missing) == 1 && errors.Is(missing[0], stack.ErrMissing):
		fmt.Fprintln(stdout, "\nThe class needs no network. Without servers the explorer stands in for them.")
	default:
		return errors.New("not all is there")
	}
	return nil
}
