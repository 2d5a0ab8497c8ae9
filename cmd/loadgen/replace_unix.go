//go:build unix

package main

import (
	"errors"
	"os"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// replaceFile writes a file whole or not at all.
func replaceFile(path string, data []byte) error { return renameio.WriteFile(path, data, 0o644) }

// replaceLink has the link point at target.
func replaceLink(target, link string) error { return renameio.Symlink(target, link) }

// removeLocked removes a lock file, or the folder that it is in, and gives the lock up.
// In the other order it could remove what is the next one's by then.
func removeLocked(path string, lock *flock.Flock) error {
	return errors.Join(os.RemoveAll(path), lock.Close())
}
