package order

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

func TestProductOf(t *testing.T) {
	for text, want := range map[string]string{
		"10.11.19-MariaDB-0+deb12u1":         "MariaDB 10.11.19",
		"5.5.5-10.4.1-MariaDB":               "MariaDB 10.4.1",
		"8.4.0":                              "MySQL 8.4.0",
		"8.0.36-0ubuntu0.22.04.1":            "MySQL 8.0.36",
		"8.0.11-TiDB-v7.5.0":                 "TiDB 7.5.0",
		"8.0.11-TiDB-v8.1.0-alpha-3-gabcdef": "TiDB 8.1.0",
		"8.0.30-Vitess":                      "Vitess, as MySQL 8.0.30",
		"SQLite 3.46.0":                      "SQLite 3.46.0",
		"":                                   "MySQL ",
	} {
		if got := ProductOf(text); got != want {
			t.Errorf("ProductOf(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestMySQLConfigSettles(t *testing.T) {
	cfg, err := mysqlConfig("u:p@tcp(h:3307)/d?clientFoundRows=true&parseTime=false&loc=Local&multiStatements=true&readTimeout=1s&timeout=2s&interpolateParams=false")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.ClientFoundRows || !cfg.ParseTime || cfg.Loc.String() != "UTC" || cfg.MultiStatements || !cfg.InterpolateParams {
		t.Errorf("the DSN has changed a fixed setting: %+v", cfg)
	}
	if cfg.Timeout.Seconds() != 2 || cfg.ReadTimeout < minReadTimeout || cfg.WriteTimeout <= 0 {
		t.Errorf("the DSN has the timeouts %v (connect), %v (read), %v (write)", cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout)
	}
}

// FuzzDSN checks that an accepted DSN gets all fixed settings. The error for a rejected DSN must be a
// single line without the password.
func FuzzDSN(f *testing.F) {
	for _, dsn := range []string{
		"", "root:hunter2@tcp(127.0.0.1:3306)/grablab", "root:hunter2@tcp(127.0.0.1:3306", "root:hun/ter2@tcp(h)", "hunter2(hunter2)/d",
		"u@unix(/tmp/s.sock)/d?tls=hunter2", "u:hunter2@/d?charset=hunter2&loc=hunter2", "mysql://root:hunter2@h/d", "sqlite:/tmp/x.db", "/", "@/",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		cfg, err := mysqlConfig(dsn)
		if err == nil {
			if cfg.ClientFoundRows || !cfg.ParseTime || cfg.Timeout <= 0 || cfg.ReadTimeout <= 0 || cfg.WriteTimeout <= 0 || cfg.DBName == "" {
				t.Errorf("settings for %q: %+v", dsn, cfg)
			}
			if _, err := mysql.NewConnector(cfg); err == nil {
				if again, err := mysqlConfig(cfg.FormatDSN()); err != nil || again.Addr != cfg.Addr || again.DBName != cfg.DBName {
					t.Errorf("%q: reads back as %+v, %v", dsn, again, err)
				}
			}
			return
		}
		if !errors.Is(err, ErrBadDSN) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("error for %q: %v", dsn, err)
		}
	})
}

func FuzzSQLitePath(f *testing.F) {
	for _, path := range []string{"", ":memory:", "x.db", "/no/such/folder/x.db", ".", "a?b", "a\x00b", "%2f"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		abs, err := sqlitePath(path)
		if err != nil && !errors.Is(err, ErrBadDSN) {
			t.Errorf("sqlitePath(%q): %v", path, err)
		}
		if err == nil && !strings.HasPrefix(abs, "/") {
			t.Errorf("%q: %q is not absolute", path, abs)
		}
	})
}

func FuzzParseGuard(f *testing.F) {
	for _, g := range Guards {
		f.Add(string(g))
	}
	f.Add("Fenced")
	f.Add("fenced\n")
	f.Fuzz(func(t *testing.T, name string) {
		g, err := ParseGuard(name)
		if err == nil && string(g) != name {
			t.Errorf("the guard %q was parsed as %q", name, g)
		}
		if err != nil && (g != "" || strings.ContainsAny(err.Error(), "\n\r")) {
			t.Errorf("ParseGuard(%q): %q, %q", name, g, err)
		}
	})
}
