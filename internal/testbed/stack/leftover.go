package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"grablab/internal/testbed/proc"

	"github.com/gofrs/flock"
)

// A reaper holds the lock file in the folder of its run for as long as it lives, and
// writes down beside it whom it watches. So a later run can tell that a reaper was
// killed, and do its work.
const (
	dirPrefix    = "grablab-"
	lockFile     = "reaper.lock"
	childrenFile = "children"
)

// makeDir makes the folder of a run in base, locked. Nobody finds it before it is, but on
// Windows, which renames no folder with an open file in it: there a run that begins at the
// same moment may take it for a leftover, and this one fails.
func makeDir(base string) (dir string, lock *flock.Flock, err error) {
	hidden := "."
	if runtime.GOOS == "windows" {
		hidden = ""
	}
	made, err := os.MkdirTemp(base, hidden+dirPrefix)
	if err != nil {
		return "", nil, err
	}
	lock = flock.New(filepath.Join(made, lockFile))
	dir = filepath.Join(base, strings.TrimPrefix(filepath.Base(made), "."))
	free, err := lock.TryLock()
	switch {
	case err == nil && !free:
		err = fmt.Errorf("%s is taken for a leftover by another run", made)
	case err == nil && made != dir:
		err = os.Rename(made, dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, lock.Close(), os.RemoveAll(made))
	}
	return dir, lock, nil
}

// noteChildren writes down whom the reaper of the folder watches.
func noteChildren(dir string, watched map[int]string) error {
	var text strings.Builder
	fmt.Fprintln(&text, proc.BootID())
	for pid, began := range watched {
		fmt.Fprintln(&text, pid, began)
	}
	return os.WriteFile(filepath.Join(dir, childrenFile), []byte(text.String()), 0o600)
}

// children reads what noteChildren wrote; none if the system has been started since.
func children(dir string) (map[int]string, error) {
	f, err := os.Open(filepath.Join(dir, childrenFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	if !lines.Scan() || lines.Text() != proc.BootID() {
		return nil, lines.Err()
	}
	watched := map[int]string{}
	for lines.Scan() {
		number, began, _ := strings.Cut(lines.Text(), " ")
		if pid, err := strconv.Atoi(number); err == nil && pid > 1 {
			watched[pid] = began
		}
	}
	return watched, lines.Err()
}

// clearLeftovers ends what runs have left in base that were killed together with their
// reapers, and removes their folders. It goes by their lock files, and leaves alone
// what is another user's.
func clearLeftovers(base string) error {
	dirs, err := fs.Glob(os.DirFS(base), dirPrefix+"*")
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, clearLeftover(filepath.Join(base, dir)))
	}
	return errors.Join(errs...)
}

func clearLeftover(dir string) error {
	info, err := os.Lstat(filepath.Join(dir, lockFile))
	if err != nil || !info.Mode().IsRegular() || !proc.IsOwn(info) {
		return nil
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR))
	free, err := lock.TryLock()
	if err != nil || !free {
		return nil // its reaper lives, or it has just been cleared
	}
	defer lock.Close()
	watched, err := children(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // then it had none yet
		return err
	}
	return errors.Join(endAll(watched), lock.Close(), removeDir(dir)) // Windows removes no file that is open
}
