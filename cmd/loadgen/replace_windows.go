package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// replaceFile writes a file whole or not at all, as far as Windows replaces one: package
// renameio leaves it out, because that is not said to survive a crash of the system.
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

// replaceLink makes no link: on Windows that takes a right that users lack.
func replaceLink(string, string) error { return nil }

// removeLocked gives the lock up and removes its file, or the folder that it is in, unless
// the next one has it open: Windows removes no file that is.
func removeLocked(path string, lock *flock.Flock) error {
	err := lock.Close()
	_ = os.RemoveAll(path)
	return err
}
