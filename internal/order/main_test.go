package order_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"grablab/internal/order"

	"github.com/go-sql-driver/mysql"
)

func TestMain(m *testing.M) {
	code := m.Run()
	stopMariaDB()
	os.Exit(code)
}

// sqliteDSN returns the DSN of a new file.
func sqliteDSN(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "orders.db") }

// mariaDSN returns the DSN of a new database on a private server, which all tests of this package share.
// If MariaDB is not installed, it skips the test, or fails it if GRABLAB_REQUIRE_SERVERS is 1.
func mariaDSN(t testing.TB) string {
	t.Helper()
	root, err := startMariaDB()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("GRABLAB_REQUIRE_SERVERS") != "1" {
		t.Skip("needs a MariaDB server on PATH (Debian: apt install mariadb-server): ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", root)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(root)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DBName = name
	return cfg.FormatDSN()
}

// stores lists the databases that must behave in the same way.
var stores = []struct {
	name string
	dsn  func(testing.TB) string
}{{"SQLite", sqliteDSN}, {"MariaDB", mariaDSN}}

// connect opens a store, migrates it, and closes it at the end of the test.
func connect(t testing.TB, dsn string, opts order.Options) *order.SQL {
	t.Helper()
	s, err := order.Connect(t.Context(), dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	databases     atomic.Int64
	mariadb       io.Closer // stops the server
	startMariaDB  = sync.OnceValues(launchMariaDB)
	serverStarted sync.WaitGroup
)

func stopMariaDB() {
	if mariadb != nil {
		_ = mariadb.Close()
		serverStarted.Wait()
	}
}

// guard is a shell script that runs a server until the script's standard input ends, which happens even if
// the tests crash. It then removes the folder. Its arguments are the folder and the command.
const guard = `dir=$1; shift; "$@" >"$dir/log" 2>&1 & pid=$!; read -r _; kill -9 $pid; wait $pid 2>/dev/null; rm -rf "$dir"`

func launchMariaDB() (dsn string, err error) {
	server, err := find("mariadbd", "mysqld")
	if err != nil {
		return "", err
	}
	install, err := find("mariadb-install-db")
	if err != nil {
		return "", err
	}
	me, err := user.Current()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "order-test-")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	out, err := exec.Command(install, "--no-defaults", "--datadir="+data, "--user="+me.Username,
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()

	cmd := exec.Command("sh", "-c", guard, "sh", dir, server, "--no-defaults", "--datadir="+data,
		"--user="+me.Username, "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port),
		"--socket="+filepath.Join(dir, "sock"), "--pid-file="+filepath.Join(dir, "pid"),
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--max-connections=400")
	if mariadb, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	serverStarted.Go(func() { _ = cmd.Wait() })

	dsn = fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port)
	return dsn, awaitMariaDB(dsn, dir)
}

// awaitMariaDB waits until the server responds, and checks that it is the one that was started.
func awaitMariaDB(dsn, dir string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		var data string
		err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data)
		switch {
		case err == nil && filepath.Clean(data) == filepath.Join(dir, "data"):
			return nil
		case err == nil:
			return fmt.Errorf("another server listens on this port, with its data in %s", data)
		case ctx.Err() != nil:
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return fmt.Errorf("MariaDB does not answer: %w\n%s", err, log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// find returns the path of the first of these programs that is installed.
func find(names ...string) (path string, err error) {
	for _, name := range names {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
		if path, err = exec.LookPath(filepath.Join("/usr/sbin", name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", names[0], exec.ErrNotFound)
}
