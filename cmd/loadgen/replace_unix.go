//go:build unix

package main

import (
	"errors"
	"os"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// replaceFile writes a file. If the file exists, it is replaced atomically.
func replaceFile(path string, data []byte) error { return renameio.WriteFile(path, data, 0o644) }

// replaceLink creates a symbolic link, or atomically changes an existing one to point at target.
func replaceLink(target, link string) error { return renameio.Symlink(target, link) }

// removeLocked removes path, which is the lock file or its folder, and only then unlocks it. In
// the opposite order, another process could take the lock before its file is removed.
func removeLocked(path string, lock *flock.Flock) error {
	return errors.Join(os.RemoveAll(path), lock.Close())
}
