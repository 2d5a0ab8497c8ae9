package stack

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"

	_ "github.com/glebarez/go-sqlite" // driver "sqlite"
	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const sqlitePrefix = "sqlite:"

// RedisOptions reads an address as every part of the project takes it:
// host:port, or a redis:// URL where a password or TLS is needed.
func RedisOptions(addr string) (*redis.Options, error) {
	if !strings.Contains(addr, "://") {
		return &redis.Options{Addr: addr}, nil
	}
	opts, err := redis.ParseURL(addr)
	if err != nil {
		return nil, fmt.Errorf("stack: bad Redis address: %w", err)
	}
	return opts, nil
}

// redisInfo is what a server says of itself.
type redisInfo struct {
	version string // "Redis 7.0.15"
	runID   string
	pid     string
}

// askRedis asks once, and does not wait for a server that is not there yet.
func askRedis(ctx context.Context, addr string) (redisInfo, error) {
	opts, err := RedisOptions(addr)
	if err != nil {
		return redisInfo{}, err
	}
	// go-redis prints what it cannot dial, which is no news here.
	conn, err := new(net.Dialer).DialContext(ctx, cmp.Or(opts.Network, "tcp"), opts.Addr)
	if err != nil {
		return redisInfo{}, fmt.Errorf("Redis at %s: %w", opts.Addr, err)
	}
	conn.Close()

	opts.MaxRetries, opts.DialerRetries = -1, 1
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(opts)
	defer client.Close()
	text, err := client.Info(ctx, "server").Result()
	if err != nil {
		return redisInfo{}, fmt.Errorf("Redis at %s: %w", opts.Addr, err)
	}
	return parseInfo(text), nil
}

func parseInfo(text string) redisInfo {
	field := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			field[name] = value
		}
	}
	info := redisInfo{runID: field["run_id"], pid: field["process_id"]}
	// Valkey says a Redis version too, for the clients that ask for one.
	if v := field["valkey_version"]; v != "" {
		info.version = "Valkey " + v
	} else {
		info.version = strings.TrimSpace("Redis " + field["redis_version"])
	}
	return info
}

// databaseVersion asks the database behind dsn what it is.
func databaseVersion(ctx context.Context, dsn string) (string, error) {
	if path, ok := strings.CutPrefix(dsn, sqlitePrefix); ok {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			return "", fmt.Errorf("SQLite: %w", err)
		}
		version, err := queryString(ctx, db, "SELECT sqlite_version()")
		if err != nil {
			return "", fmt.Errorf("SQLite at %s: %w", path, err)
		}
		return "SQLite " + version, nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", fmt.Errorf("bad -db: %w", err)
	}
	version, err := queryMySQL(ctx, cfg, "SELECT VERSION()")
	if err != nil {
		return "", err
	}
	return nameDatabase(version), nil
}

// nameDatabase makes a name of what VERSION() says, which is a bare number on
// MySQL, and number and name on everything that merely speaks its protocol.
func nameDatabase(version string) string {
	number, rest, _ := strings.Cut(version, "-")
	switch {
	case strings.Contains(rest, "MariaDB"):
		// A replica of MySQL is lied to: "5.5.5-10.11.19-MariaDB".
		if number == "5.5.5" {
			number, _, _ = strings.Cut(rest, "-")
		}
		return "MariaDB " + number
	case strings.HasPrefix(rest, "TiDB-"):
		return "TiDB " + strings.TrimPrefix(rest, "TiDB-v")
	case strings.Contains(rest, "Vitess"):
		return "Vitess " + version
	default:
		return "MySQL " + number
	}
}

// queryMySQL makes one query over a connection of its own.
func queryMySQL(ctx context.Context, cfg *mysql.Config, query string) (string, error) {
	cfg = cfg.Clone()
	cfg.Logger = &mysql.NopLogger{} // a server that is not ready yet is no news
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return "", err
	}
	answer, err := queryString(ctx, sql.OpenDB(connector), query)
	if err != nil {
		return "", fmt.Errorf("database at %s: %w", cfg.Addr, err)
	}
	return answer, nil
}

// queryString asks for one value, and closes db.
func queryString(ctx context.Context, db *sql.DB, query string) (answer string, err error) {
	defer db.Close()
	err = db.QueryRowContext(ctx, query).Scan(&answer)
	return answer, err
}
