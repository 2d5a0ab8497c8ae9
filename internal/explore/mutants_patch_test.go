package explore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errPatch = errors.New("the patch does not apply")

// A tree holds the project's files, with some of them changed.
type tree struct {
	root    string
	changed map[string]string // maps the path of each changed file to its text
}

func (t tree) read(path string) (string, error) {
	if text, ok := t.changed[path]; ok {
		return text, nil
	}
	text, err := os.ReadFile(filepath.Join(t.root, path))
	return string(text), err
}

// apply applies a unified diff. It finds each hunk by its lines, which must occur exactly once, and not by
// line numbers. Therefore, the diff still applies after other changes to the file.
func (t tree) apply(diff string) error {
	path := ""
	var was, is strings.Builder // the old and the new lines of the current hunk
	end := func() error {
		defer func() { was.Reset(); is.Reset() }()
		return t.replace(path, was.String(), is.String())
	}
	for line := range strings.Lines(diff) {
		switch text := line[1:]; {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "@@ "):
			if err := end(); err != nil {
				return err
			}
		case strings.HasPrefix(line, "+++ b/"):
			path = strings.TrimSpace(line[len("+++ b/"):])
		case line[0] == ' ':
			was.WriteString(text)
			is.WriteString(text)
		case line[0] == '-':
			was.WriteString(text)
		case line[0] == '+':
			is.WriteString(text)
		default:
			return fmt.Errorf("%w: no line of a diff: %q", errPatch, line)
		}
	}
	return end()
}

// replace replaces a text in a file. The text before must occur exactly once. replace does nothing if
// both texts are empty, as they are before the first hunk of a file.
func (t tree) replace(path, before, after string) error {
	if before == "" && after == "" {
		return nil
	}
	text, err := t.read(path)
	if err != nil {
		return err
	}
	if n := strings.Count(text, before); n != 1 {
		return fmt.Errorf("%w: %s has these lines %d times:\n%s", errPatch, path, n, before)
	}
	t.changed[path] = strings.Replace(text, before, after, 1)
	return nil
}

func TestPatch(t *testing.T) {
	const file = "one\ntwo\nthree\nfour\ntwo\n"
	for name, c := range map[string]struct {
		diff, want string // want is empty if the diff does not apply
	}{
		"changes a line":    {"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", "one\n2\nthree\nfour\ntwo\n"},
		"has moved":         {"--- a/f\n+++ b/f\n@@ -9,3 +9,2 @@\n three\n-four\n two\n", "one\ntwo\nthree\ntwo\n"},
		"has two hunks":     {"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+1\n@@ -4 +4 @@\n-four\n+4\n", "1\ntwo\nthree\n4\ntwo\n"},
		"fits twice":        {"--- a/f\n+++ b/f\n@@ -2 +2 @@\n-two\n+2\n", ""},
		"fits nowhere":      {"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-2\n+two\n", ""},
		"is of no file":     {"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-one\n+1\n", ""},
		"is not a diff":     {"--- a/f\n+++ b/f\n@@ -1 +1 @@\none\n", ""},
		"adds what was not": {"--- a/f\n+++ b/f\n@@ -3,2 +3,3 @@\n three\n+and\n four\n", "one\ntwo\nthree\nand\nfour\ntwo\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := tree{t.TempDir(), map[string]string{"f": file}}
			err := tr.apply(c.diff)
			if (err == nil) != (c.want != "") {
				t.Fatal(err)
			}
			if err == nil && tr.changed["f"] != c.want {
				t.Errorf("patched text is %q, want %q", tr.changed["f"], c.want)
			}
		})
	}
}
