// Package infile reads files that users provide, up to a size limit. So a huge or endless file
// cannot fill the memory.
package infile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// These are size limits for Read, in bytes.
const (
	Small  int64 = 16 << 20 // limit for files that people write
	Record int64 = 1 << 30  // limit for run.json and other files that a run records
)

// ErrTooLarge means that a file exceeds its size limit.
var ErrTooLarge = errors.New("the file is too large")

// Read returns a file's content, or ErrTooLarge if the file exceeds limit. For a device, the limit
// is at most Small.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeDevice != 0 {
		limit = min(limit, Small)
	}
	size, read := info.Size(), []byte(nil)
	if size <= limit {
		if read, err = io.ReadAll(io.LimitReader(f, limit+1)); err != nil {
			return nil, err
		}
		size = max(size, int64(len(read)))
	}
	if size > limit {
		return nil, fmt.Errorf("%w: %s has %d bytes or more, and the limit is %d MB: name a smaller file", ErrTooLarge, path, size, limit>>20)
	}
	return read, nil
}
