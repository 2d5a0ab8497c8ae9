package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFileLimits checks that every command refuses a file that is too large or endless, and states the
// limit. Otherwise, such a file would fill the memory.
func TestFileLimits(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	commands := []struct{ args, file, limit string }{
		{"run -targets http://127.0.0.1:1,http://127.0.0.1:2 -target-file FILE", "t.yaml", "16 MB"},
		{"run -targets http://127.0.0.1:1,http://127.0.0.1:2 -expectations FILE", "e.yaml", "16 MB"},
		{"run -stack local -schedule FILE", "s.txt", "16 MB"},
		{"run -resume folder", "folder/run.json", "1024 MB"},
		{"explore -replay FILE", "s.txt", "16 MB"},
		{"explore -file FILE", "x.go", "16 MB"},
		{"report FILE", "run.json", "1024 MB"},
		{"report folder", "folder/run.json", "1024 MB"},
		{"compare FILE FILE", "run.json", "1024 MB"},
	}
	refused := func(args []string, limit string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), args, &stdout, &stderr)
		if code != int(exitUsage) || !strings.Contains(stderr.String(), limit) || strings.Count(stderr.String(), "\n") != 1 {
			t.Fatalf("%s: exit %d, %s\nwant %d and the limit, %s", args, code, &stderr, exitUsage, limit)
		}
	}
	for _, c := range commands {
		if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
			t.Fatal(err)
		}
		size := int64(16<<20 + 1)
		if c.limit != "16 MB" {
			size = 1<<30 + 1
		}
		if err := os.WriteFile(c.file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(c.file, size); err != nil { // a sparse file needs no disk space
			t.Fatal(err)
		}
		args := strings.Fields(strings.ReplaceAll(c.args, "FILE", c.file))
		refused(args, c.limit)
		if err := os.Remove(c.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/zero", c.file); err != nil {
			t.Fatal(err)
		}
		limit := "16 MB"
		if c.args == "report FILE" || c.args == "compare FILE FILE" { // these treat any path that is not a regular file as a folder
			limit = "run.json"
		}
		refused(args, limit)
		if err := os.Remove(c.file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStrategyTwice checks that every command refuses a strategy that is named twice, because the table
// has only one cell for it.
func TestStrategyTwice(t *testing.T) {
	for _, names := range []string{"none,none", "setnx,none,setnx", "peers,peers", " setnx, setnx"} {
		explore, err := parseExplore([]string{"-strategies", names})
		if err != nil {
			t.Fatal(err)
		}
		for command, err := range map[string]error{
			"run":     second(parseRun([]string{"-strategies", names})),
			"bench":   second(parseBench([]string{"-strategies", names})),
			"explore": explore.choose(),
			"targets": second(parseRun([]string{"-strategies", names, "-targets", "http://h:1"})),
		} {
			if err == nil || !strings.Contains(err.Error(), "named twice") {
				t.Errorf("%s -strategies %q: %v", command, names, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestForeignDatabase checks that run refuses a database that belongs to another program, and creates no
// tables in it.
func TestForeignDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT)"); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	code := exitOf(t.Context(), []string{"run", "-stack", "external", "-db", "sqlite:" + path, "-strategies", "none"}, &stdout, &stderr)
	if code != int(exitUsage) || !strings.Contains(stderr.String(), "use an empty database") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	var tables int
	if err := db.QueryRow("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("%d tables (%v), want 1", tables, err)
	}
}
