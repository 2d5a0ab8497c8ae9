package workshop

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// OwnLock is the source of the lock with which exercise 12 starts. It is setnx with two flaws: a
// release with a plain DEL, and a blind write.
//
//go:embed own_lock.go.txt
var OwnLock string

// ownFile is the name of the file with the user's own lock.
const ownFile = "my.go"

// template copies OwnLock to the user's file. It does nothing if the file exists.
func (s *Session) template(e Exercise, f Facts) error {
	path := s.Path(e, ownFile)
	f["template"] = path
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			err = os.WriteFile(path, []byte(OwnLock), 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("workshop: %w", err)
	}
	return nil
}
