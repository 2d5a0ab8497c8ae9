package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

const postgresScheme = "postgres://"

func isPostgres(dsn string) bool { return strings.HasPrefix(dsn, postgresScheme) }

type postgresPrograms struct{ server, install string }

// findPostgres looks for the programs in PATH and in common package folders. If a program is
// missing, its path is "".
func findPostgres() postgresPrograms {
	locate := func(name string) string {
		if path := find(name); path != "" {
			return path
		}
		for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/opt/homebrew/opt/postgresql*/bin/", "/usr/local/opt/postgresql*/bin/"} {
			if found, _ := filepath.Glob(pattern + name); len(found) > 0 {
				return found[len(found)-1]
			}
		}
		return ""
	}
	return postgresPrograms{locate("postgres"), locate("initdb")}
}

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
