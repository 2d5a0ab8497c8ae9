//go:build unix

package main

import (
	"errors"
	"os"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// replaceFile writes a file atomically.
func replaceFile(path string, data []byte) error { return renameio.WriteFile(path, data, 0o644) }

// replaceLink creates or replaces a symbolic link atomically.
func replaceLink(target, link string) error { return renameio.Symlink(target, link) }

// removeLocked removes a path and then unlocks it. In the opposite order, another process could
// lock the path and lose its files.
func removeLocked(path string, lock *flock.Flock) error {
	return errors.Join(os.RemoveAll(path), lock.Close())
}
