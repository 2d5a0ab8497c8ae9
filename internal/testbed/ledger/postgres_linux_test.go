package ledger_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	_ "github.com/jackc/pgx/v5/stdlib"
)

func init() {
	databases["postgresql"] = func(t *testing.T) (string, *sql.DB) {
		dsn := startPostgres(t)
		return dsn, sqlOpenWhenReady(t, dsn)
	}
}

// postgresProgram finds a program of PostgreSQL, which Debian keeps off PATH.
func postgresProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// startPostgres starts a private server for the test.
func startPostgres(t *testing.T) (dsn string) {
	t.Helper()
	initdb, server := postgresProgram("initdb"), postgresProgram("postgres")
	if initdb == "" || server == "" {
		stacktest.Check(t, fmt.Errorf("%w: no postgres; install it with `apt-get install postgresql`", stack.ErrMissing))
	}
	dir, err := os.MkdirTemp("", "grablab-pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	runtime.LockOSThread() // at whose end the server ends, also that of this process
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 { // as which it refuses to run
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(dir, "data")
	var output bytes.Buffer
	command := func(exe string, args ...string) *exec.Cmd {
		cmd := exec.Command(exe, args...)
		cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = dir, attr, &output, &output
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		return cmd
	}
	if err := command(initdb, "-D", data, "-U", "grablab", "-A", "trust", "--no-sync").Run(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, &output)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	cmd := command(server, "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", "", "-F")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // fast shutdown
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", &output)
		}
	})
	return fmt.Sprintf("postgres://grablab@127.0.0.1:%d/postgres?sslmode=disable", port)
}

func sqlOpenWhenReady(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := open(t, "pgx", dsn)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := db.PingContext(t.Context())
		if err == nil {
			return db
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
