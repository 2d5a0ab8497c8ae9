package workshop

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
)

// OwnLock is the source of the lock that the user must improve in exercise 12. It has two mistakes:
// it releases the lock with a plain DEL, and it writes without a check.
//
//go:embed own_lock.go.txt
var OwnLock string

// ownFile is the name of the file with the user's lock.
const ownFile = "my.go"

// template copies OwnLock to the user's file, unless the file exists already.
func (s *Session) template(e Exercise, f Facts) error {
	path := s.Path(e, ownFile)
	f["template"] = path
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return save(path, []byte(OwnLock), writeFile)
}
