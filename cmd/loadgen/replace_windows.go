package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// replaceFile writes a temporary file and renames it to path. Package renameio does not
// support Windows, because a rename there may not survive a crash of the system.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// replaceLink does nothing, because on Windows most users may not create symbolic links.
func replaceLink(string, string) error { return nil }

// removeLocked unlocks path, which is the lock file or its folder, and then removes it.
// Windows cannot remove an open file, so the file stays if another process has opened it.
func removeLocked(path string, lock *flock.Flock) error {
	err := lock.Close()
	_ = os.RemoveAll(path)
	return err
}
