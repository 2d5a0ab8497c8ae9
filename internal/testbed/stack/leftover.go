package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/testbed/proc"

	"github.com/gofrs/flock"
)

// With these files in a run's temporary folder, a later run can clean up after a killed one. A
// helper process locks lockFile and lists the run's processes in childrenFile. If the lock is free,
// the run is dead, so the later run ends these processes.
const (
	dirPrefix    = "grablab-"
	lockFile     = "reaper.lock"
	childrenFile = "children"
)

// makeDir creates and locks a run's folder. Until it holds the lock, the folder name begins with a
// dot, so that other runs do not remove the folder.
func makeDir(base string) (dir string, lock *flock.Flock, err error) {
	made, err := os.MkdirTemp(base, "."+dirPrefix)
	if err != nil {
		return "", nil, err
	}
	lock = flock.New(filepath.Join(made, lockFile))
	dir = filepath.Join(base, strings.TrimPrefix(filepath.Base(made), "."))
	if err = lock.Lock(); err == nil {
		err = os.Rename(made, dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, lock.Close(), os.RemoveAll(made))
	}
	return dir, lock, nil
}

// noteChildren saves process IDs and start times. If this process is killed, a later run reads them
// to end those processes.
func noteChildren(dir string, watched map[int]string) error {
	var text strings.Builder
	fmt.Fprintln(&text, proc.BootID())
	for pid, began := range watched {
		fmt.Fprintln(&text, pid, began)
	}
	return os.WriteFile(filepath.Join(dir, childrenFile), []byte(text.String()), 0o600)
}

// children reads what noteChildren wrote. After a reboot, it returns nil, because the IDs may now
// belong to other processes.
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

// clearLeftovers cleans up after killed runs: it ends their processes and removes their folders. A
// run was killed if its folder exists but its lock file is not locked.
func clearLeftovers(base string) error {
	dirs, err := fs.Glob(os.DirFS(base), dirPrefix+"*")
	if err != nil {
		return err
	}
	return errors.Join(catalog.Map(dirs, func(dir string) error { return clearLeftover(filepath.Join(base, dir)) })...)
}

func clearLeftover(dir string) error {
	info, err := os.Lstat(filepath.Join(dir, lockFile))
	if err != nil || !info.Mode().IsRegular() || !proc.IsOwn(info) {
		return nil
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDWR))
	free, err := lock.TryLock()
	if err != nil || !free {
		return nil // the reaper is alive, or another run has just removed this folder
	}
	watched, err := children(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // if there is no file, the run had no children yet
		return errors.Join(err, lock.Close())
	}
	return errors.Join(endAll(watched, dir), removeDir(dir), lock.Close())
}
