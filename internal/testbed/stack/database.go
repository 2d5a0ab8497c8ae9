package stack

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"grablab/internal/order"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver
)

// databaseName names both the database and its user.
const databaseName = "grablab"

// initSQL creates the database and its user. Each statement must be on one line, because MySQL
// reads init files line by line.
const initSQL = `CREATE DATABASE IF NOT EXISTS grablab;
CREATE USER IF NOT EXISTS 'grablab'@'127.0.0.1';
GRANT ALL ON grablab.* TO 'grablab'@'127.0.0.1';
`

// serveDatabase starts a new MariaDB or MySQL server. By default, the server syncs every commit to
// disk.
func (s *Stack) serveDatabase(ctx context.Context, prog databaseProgram) (dsn, version string, err error) {
	data := filepath.Join(s.Dir, "db")
	if err := s.run(ctx, "db-install", prog.install, prog.installArgs(data)); err != nil {
		return "", "", err
	}
	initFile := filepath.Join(s.Dir, "db-init.sql")
	if err := os.WriteFile(initFile, []byte(initSQL), 0o600); err != nil {
		return "", "", fmt.Errorf("stack: db: %w", err)
	}
	addr, info, err := s.serve(ctx, server{
		name: "db",
		exe:  prog.server,
		args: func(addr string) ([]string, error) {
			return append(prog.commonArgs(data),
				"--bind-address=127.0.0.1", "--port="+portOf(addr), "--socket="+filepath.Join(s.Dir, "db.sock"),
				"--init-file="+initFile,
				"--skip-name-resolve", "--max-connections=2000", "--loose-mysqlx=OFF"), nil
		},
		ask: func(ctx context.Context, addr string) (serverInfo, error) { return askDatabase(ctx, dsnAt(addr)) },
	}, "")
	return dsnAt(addr), info.version, err
}

func dsnAt(addr string) string { return databaseName + "@tcp(" + addr + ")/" + databaseName }

// lockPostgresTable finds the table in all schemas and regardless of case. The table's name was read
// from a statement that may have omitted the schema or the quotes.
const lockPostgresTable = `DO $$ DECLARE found text := (SELECT string_agg(oid::regclass::text, ', ')
	FROM pg_class WHERE relkind IN ('r', 'p', 'v') AND relnamespace <> 'information_schema'::regnamespace AND lower(relname) = lower('%s'));
BEGIN EXECUTE 'LOCK TABLE ' || found || ' IN SHARE MODE'; END $$`

// ErrInUse means that LockTable could not lock the table because of an open transaction.
var ErrInUse = errors.New("the table is in use")

// LockTable blocks all writes to a table until the returned Heal is called. Reads still work. It
// first waits for open transactions, but at most lockTableWait.
func (s *Stack) LockTable(ctx context.Context, table string) (Heal, error) {
	if _, err := s.address("db"); err != nil {
		return nil, err
	}
	driver, unlocking := "mysql", "UNLOCK TABLES"
	locking := []string{
		fmt.Sprintf("SET SESSION lock_wait_timeout = %d", lockTableWait/time.Second),
		fmt.Sprintf("LOCK TABLES `%s` READ", table),
	}
	if s.IsPostgres() {
		driver, unlocking = "pgx", "ROLLBACK"
		locking = []string{
			"BEGIN",
			fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTableWait/time.Millisecond),
			fmt.Sprintf(lockPostgresTable, table),
		}
	}
	db, err := sql.Open(driver, s.DSN)
	if err != nil {
		return nil, fmt.Errorf("stack: db: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stack: db: %w", err), db.Close())
	}
	unlock := sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_, err := conn.ExecContext(ctx, unlocking)
		return errors.Join(err, conn.Close(), db.Close())
	})
	for _, statement := range locking {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			if isLockTimeout(err) {
				err = errors.Join(ErrInUse, err)
			}
			return nil, errors.Join(fmt.Errorf("stack: db: %s: %w", statement, err), unlock())
		}
	}
	return unlock, nil
}

// isLockTimeout reports whether a statement failed because another session holds a lock.
func isLockTimeout(err error) bool {
	var ofMySQL *mysql.MySQLError
	var ofPostgres *pgconn.PgError
	return errors.As(err, &ofMySQL) && ofMySQL.Number == 1205 || errors.As(err, &ofPostgres) && ofPostgres.Code == "55P03"
}

const lockTableWait = 5 * time.Second

func askDatabase(ctx context.Context, dsn string) (info serverInfo, err error) {
	db, err := order.Connect(ctx, dsn, order.Options{MaxConns: 1})
	if err != nil {
		return info, err
	}
	defer db.Close()
	info.version, err = db.Version(ctx)
	return info, err
}

// installArgs returns the arguments for the program that creates the system tables.
func (p databaseProgram) installArgs(data string) []string {
	if p.mariadb {
		return append(p.commonArgs(data), "--skip-test-db", "--skip-name-resolve")
	}
	return append(p.commonArgs(data), "--initialize-insecure", "--innodb-flush-log-at-trx-commit=0",
		"--auto-generate-certs=OFF", "--caching-sha2-password-auto-generate-rsa-keys=OFF")
}

// commonArgs returns the arguments that the server and its installer share. --no-defaults must come
// first. Each server needs its own tmpdir, because MariaDB deletes the temporary tables of other
// servers in a shared one.
func (p databaseProgram) commonArgs(data string) []string {
	args := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + filepath.Dir(data)}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // both programs refuse to run as root without this
	}
	return args
}

const postgresScheme = "postgres://"

func isPostgres(dsn string) bool { return strings.HasPrefix(dsn, postgresScheme) }

// servePostgres starts a new PostgreSQL server. By default, the server syncs every commit to disk.
func (s *Stack) servePostgres(ctx context.Context, prog postgresPrograms) (dsn, version string, err error) {
	data := filepath.Join(s.Dir, "db")
	as, err := s.ownerOfPostgres(data)
	if err != nil {
		return "", "", fmt.Errorf("stack: db: %w", err)
	}
	install := append(as, prog.install, "-D", data, "-U", databaseName, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err := s.run(ctx, "db-install", install[0], install[1:]); err != nil {
		return "", "", err
	}
	start := slices.Concat(as, []string{prog.server, "-D", data, "-h", "127.0.0.1", "-k", "", "-N", "500"})
	addr, info, err := s.serve(ctx, server{
		name: "db",
		exe:  start[0],
		quit: syscall.SIGQUIT, // ends the sessions too, and the next start recovers as after a crash
		args: func(addr string) ([]string, error) {
			return slices.Concat(start[1:], []string{"-p", portOf(addr)}), nil
		},
		ask: askPostgres,
	}, "")
	return postgresAt(addr), info.version, err
}

func postgresAt(addr string) string {
	return postgresScheme + databaseName + "@" + addr + "/postgres?sslmode=disable"
}

// ownerOfPostgres creates the data folder. PostgreSQL refuses to run as root, so root gives the
// folder to another user. To run a command as that user, the caller puts the returned words in
// front of it.
func (s *Stack) ownerOfPostgres(data string) (as []string, err error) {
	if err := os.Mkdir(data, 0o700); err != nil || os.Geteuid() != 0 {
		return nil, err
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	return []string{"setpriv", "--reuid=" + nobody.Uid, "--regid=" + nobody.Gid, "--clear-groups"},
		errors.Join(os.Chown(data, uid, gid), os.Chmod(s.Dir, 0o711))
}

func askPostgres(ctx context.Context, addr string) (info serverInfo, err error) {
	conn, err := pgx.Connect(ctx, postgresAt(addr))
	if err != nil {
		return info, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)").Scan(&info.version)
	return info, err
}
