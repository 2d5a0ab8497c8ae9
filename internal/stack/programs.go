package stack

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// programDirs are where servers live that an ordinary user's PATH leaves out.
var programDirs = []string{
	"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec", "/usr/local/mysql/bin",
	"/opt/homebrew/bin", "/opt/homebrew/opt/redis/bin", "/opt/homebrew/opt/mariadb/bin", "/opt/homebrew/opt/mysql/bin",
	"/usr/local/opt/redis/bin", "/usr/local/opt/mariadb/bin", "/usr/local/opt/mysql/bin",
}

// programs are the ones that the local stack runs.
type programs struct {
	redis    string
	database databaseProgram
}

// databaseProgram is MariaDB or MySQL.
type databaseProgram struct {
	server  string
	install string // makes the system tables; MySQL's server does so itself
	mariadb bool
}

// findPrograms finds them, or says what is missing and how to install it.
func findPrograms(redis bool) (programs, error) {
	var progs programs
	var missing, debian, mac []string
	if redis {
		if progs.redis = find("redis-server", "valkey-server"); progs.redis == "" {
			missing, debian, mac = append(missing, "redis-server"), append(debian, "redis-server"), append(mac, "redis")
		}
	}
	if progs.database = findDatabase(); progs.database.install == "" {
		missing, debian, mac = append(missing, "mariadbd or mysqld"), append(debian, "mariadb-server"), append(mac, "mariadb")
	}
	if missing == nil {
		return progs, nil
	}
	return progs, fmt.Errorf("%w: -stack local found no %s; install with `apt-get install %s` on Debian or Ubuntu, `brew install %s` on macOS",
		ErrMissing, strings.Join(missing, " and no "), strings.Join(debian, " "), strings.Join(mac, " "))
}

// findDatabase finds a server and what makes its system tables. "": one of them
// is missing.
func findDatabase() databaseProgram {
	db := databaseProgram{server: find("mariadbd", "mysqld")}
	if db.server == "" {
		return db
	}
	// MariaDB's server goes by MySQL's name too.
	banner, _ := exec.Command(db.server, "--no-defaults", "--version").Output()
	if db.mariadb = strings.Contains(string(banner), "MariaDB"); !db.mariadb {
		db.install = db.server
		return db
	}
	db.install = find("mariadb-install-db", "mysql_install_db")
	return db
}

// find looks for a program by each of its names, on PATH and then elsewhere.
func find(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	for _, name := range names {
		for _, dir := range programDirs {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path
			}
		}
	}
	return ""
}
