package infile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestRead checks that Read returns the whole file if its size is at most the limit, and an error if
// the file is larger. This must also work for files without a known size, such as pipes.
func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for size, ok := range map[int]bool{0: true, 1: true, 1 << 20: true, 1<<20 + 1: false, 5 << 20: false} {
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(name, want, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(name, 1<<20)
		if ok && (err != nil || !bytes.Equal(got, want)) {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(got), err)
		}
		if !ok && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "limit is 1 MB")) {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(got), err)
		}
	}
	if _, err := Read("/dev/zero", Record); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "16 MB") {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := Read(name+"-missing", Small); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() { _, _ = w.WriteString("piped"); _ = w.Close() }()
	if got, err := Read("/proc/self/fd/"+strconv.FormatUint(uint64(r.Fd()), 10), Small); err != nil || string(got) != "piped" {
		t.Errorf("a pipe: %q, %v", got, err)
	}
}
