//go:build unix

package main

import (
	"errors"
	"os"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// replaceFile writes a file and replaces an existing one atomically.
func replaceFile(path string, data []byte) error { return renameio.WriteFile(path, data, 0o644) }

// replaceLink creates the symbolic link, or changes it to point at target.
func replaceLink(target, link string) error { return renameio.Symlink(target, link) }

// removeLocked removes path, which is the lock file or its folder, and then unlocks it.
// Unlocking first would let another process take the lock before its file is removed.
func removeLocked(path string, lock *flock.Flock) error {
	return errors.Join(os.RemoveAll(path), lock.Close())
}
