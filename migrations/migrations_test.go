package migrations

import (
	"database/sql"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	_ "github.com/glebarez/go-sqlite"
)

// TestFiles checks that every migration can be undone. No migration may use foreign keys, which
// some databases lack, or unique keys, which would hide a second win. The tests of the store run
// the migrations.
func TestFiles(t *testing.T) {
	db, err := sql.Open("sqlite", "") // the test runs no statement on it
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	comment := regexp.MustCompile(`--.*`)
	for _, d := range []Dialect{MySQL, SQLite} {
		if _, err := provider(db, d); err != nil {
			t.Errorf("provider(%s): %v", d, err)
		}
		names, err := fs.Glob(files, path.Join(string(d), "*.sql"))
		if err != nil || len(names) == 0 {
			t.Fatalf("Glob(%s): %v, %v", d, names, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "-- +goose Down") {
				t.Errorf("%s: the migration has no Down section", name)
			}
			upper := strings.ToUpper(comment.ReplaceAllString(string(text), ""))
			for _, no := range []string{"FOREIGN KEY", "REFERENCES", "UNIQUE"} {
				if strings.Contains(upper, no) {
					t.Errorf("%s: contains %s", name, no)
				}
			}
		}
	}
}

func TestUnknownDialect(t *testing.T) {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := Up(t.Context(), db, "oracle"); err == nil {
		t.Error("Up accepted an unknown dialect")
	}
}
