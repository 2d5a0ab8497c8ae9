package stack

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/grab/lock"
)

// programDirs lists patterns of common installation folders, because some servers are not in PATH.
var programDirs = []string{
	"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec", "/usr/local/mysql/bin", "/usr/lib/postgresql/*/bin",
	"/opt/homebrew/bin", "/opt/homebrew/opt/redis/bin", "/opt/homebrew/opt/mariadb/bin", "/opt/homebrew/opt/mysql/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/redis/bin", "/usr/local/opt/mariadb/bin", "/usr/local/opt/mysql/bin", "/usr/local/opt/postgresql*/bin",
}

type programs struct {
	redis     string
	database  databaseProgram
	postgres  postgresPrograms
	zooKeeper zooKeeperProgram
	etcd      string
}

type postgresPrograms struct{ server, install string }

type databaseProgram struct {
	server  string
	install string // the program that creates the system tables; for MySQL, the server itself
	mariadb bool
}

// Installed checks that the programs for these servers are installed. If one is missing, the error
// wraps ErrMissing.
func Installed(needs lock.Backend) error {
	_, err := findPrograms(needs, false)
	return err
}

// findPrograms finds the programs for the servers and for a database: PostgreSQL if postgres is
// true, MariaDB or MySQL otherwise. If a program is missing, the error says how to install it.
func findPrograms(needs lock.Backend, postgres bool) (programs, error) {
	progs := programs{redis: find("redis-server", "valkey-server"), zooKeeper: findZooKeeper(), etcd: find("etcd")}
	if postgres {
		progs.postgres = postgresPrograms{server: find("postgres"), install: find("initdb")}
	} else {
		progs.database = findDatabase()
	}
	var missing, debian, mac []string
	for _, p := range []struct {
		needed, found         bool
		program, deb, formula string
	}{
		{needs&(lock.Redis|lock.RedisQuorum) != 0, progs.redis != "", "redis-server", "redis-server", "redis"},
		{postgres, progs.postgres.server != "" && progs.postgres.install != "", "postgres", "postgresql", "postgresql"},
		{!postgres, progs.database.install != "", "mariadbd or mysqld", "mariadb-server", "mariadb"},
		{needs&lock.ZooKeeper != 0, progs.zooKeeper.java != "" && progs.zooKeeper.classPath != "", "java with ZooKeeper", "zookeeper", "zookeeper"},
		{needs&lock.Etcd != 0, progs.etcd != "", "etcd", "etcd-server", "etcd"},
	} {
		if p.needed && !p.found {
			missing, debian, mac = append(missing, p.program), append(debian, p.deb), append(mac, p.formula)
		}
	}
	if missing == nil {
		return progs, nil
	}
	return progs, fmt.Errorf("%w: -stack local found no %s; install with `apt-get install %s` on Debian or Ubuntu, `brew install %s` on macOS",
		ErrMissing, strings.Join(missing, " and no "), strings.Join(debian, " "), strings.Join(mac, " "))
}

// findDatabase finds the MariaDB or MySQL server and its installer. If a program is missing, its
// path is "".
func findDatabase() databaseProgram {
	db := databaseProgram{server: find("mariadbd", "mysqld")}
	if db.server == "" {
		return db
	}
	// Ask for the version, because the MariaDB and MySQL servers may have the same file name.
	banner, _ := exec.Command(db.server, "--no-defaults", "--version").Output()
	if db.mariadb = strings.Contains(string(banner), "MariaDB"); !db.mariadb {
		db.install = db.server
		return db
	}
	db.install = find("mariadb-install-db", "mysql_install_db")
	return db
}

// find looks for a program under several names, in PATH and in programDirs. If a pattern matches several folders, such
// as those of several versions, it takes the last one. It returns "" if there is none.
func find(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	for _, name := range names {
		for _, dir := range programDirs {
			paths, _ := filepath.Glob(filepath.Join(dir, name)) // fails only for a malformed pattern
			for _, path := range slices.Backward(paths) {
				if path, err := exec.LookPath(path); err == nil {
					return path
				}
			}
		}
	}
	return ""
}
