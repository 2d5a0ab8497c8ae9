package fleet

import (
	"regexp"
	"slices"
	"strings"

	"grablab/internal/testbed/wire"
)

// redisNoise lists Redis commands that cannot affect who wins an order, so tests inject no faults
// there.
var redisNoise = []string{
	"ACL", "ASKING", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "ECHO", "FUNCTION", "HELLO", "INFO", "LASTSAVE", "LATENCY",
	"MEMORY", "MODULE", "PING", "PUBSUB", "QUIT", "READONLY", "READWRITE", "RESET", "ROLE", "SCRIPT", "SELECT", "SLOWLOG",
	"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE",
}

// sqlNoise lists statements and protocol commands that do not access business tables.
var sqlNoise = []string{
	"CHANGE", "DEALLOCATE", "DEBUG", "DESC", "DESCRIBE", "DISCARD", wire.EmptyStatement, "EXPLAIN", "FIELDS", "HELP", "PING", "PREPARE", "PROCESSES", "RESET", "SET", "SHOW",
	"STATISTICS", "SYNC", "USE",
}

// selectNoise lists tables and functions from which a SELECT cannot read business data.
var selectNoise = []string{
	"", "DUAL", "information_schema", "performance_schema", "mysql", "sys", "pg_catalog", "CONNECTION_ID", "CURRENT_SCHEMA", "CURRENT_SETTING", "CURRENT_TIMESTAMP", "CURRENT_USER", "DATABASE", "FOUND_ROWS",
	"LAST_INSERT_ID", "NOW", "PG_BACKEND_PID", "PG_IS_IN_RECOVERY", "SET_CONFIG", "ROW_COUNT", "SCHEMA", "SYSDATE", "UNIX_TIMESTAMP", "USER", "UUID", "VERSION",
}

// These words in the name of a key or table help to tell statistics from business data.
var (
	statistics = []string{"metric", "metrics", "monitoring", "prometheus", "stat", "stats", "statistic", "statistics", "statsd", "telemetry"}
	// A name with one of these words belongs to statistics, unless it also contains one of
	// businessWords.
	counters      = []string{"counter", "counters", "hits", "visits"}
	totals        = []string{"count", "requests", "total"} // names of counters, if INCR or a similar command writes them
	businessWords = []string{"driver", "drivers", "grab", "grabs", "order", "orders"}
	// A name with one of these words never belongs to statistics.
	guardWords = []string{
		"claim", "claims", "fence", "fencing", "lease", "leases", "ledger", "lock", "locks", "mutex", "seq", "sequence", "sold", "stock", "token", "tokens",
		"win", "winner", "winners", "wins",
	}
	nameWords = regexp.MustCompile(`[a-z]+`)
)

// statisticsVerbs lists commands with which a service may record statistics.
var statisticsVerbs = []string{
	"EXPIRE", "HINCRBY", "HINCRBYFLOAT", "HMSET", "HSET", "INCR", "INCRBY", "INCRBYFLOAT", "INSERT", "LPUSH", "LTRIM", "PEXPIRE", "PFADD", "PUBLISH", "RPUSH",
	"TS.ADD", "TS.INCRBY", "UPDATE", "XADD", "ZADD", "ZINCRBY",
}

// isCatalog matches the system tables of PostgreSQL that clients may name without a schema.
var isCatalog = regexp.MustCompile(`^pg_(attribute|class|constraint|database|enum|index|namespace|proc|range|roles|settings|type)$`)

// isNoise reports whether a request to the database or to Redis cannot affect who wins an order. In
// text, * stands for the order ID.
func isNoise(isSQL bool, text string) bool {
	verb, name, _ := strings.Cut(text, " ")
	switch {
	case isSQL && (text == wire.PrepareTransaction || text == wire.AutocommitOff):
		return false
	case !isSQL && slices.Contains(redisNoise, verb), isSQL && slices.Contains(sqlNoise, verb):
		return true
	case isSQL && verb == "SELECT":
		return slices.Contains(selectNoise, name) || isCatalog.MatchString(name)
	}
	return slices.Contains(statisticsVerbs, verb) && isStatistics(verb, name)
}

// rowVerbs lists statements that may wait for a row lock, because they write or may call a function that does.
var rowVerbs = []string{"CALL", "COPY", "DELETE", "EXECUTE", "INSERT", "LOAD", "MERGE", "REPLACE", "UPDATE"}

// mayAwaitRows reports whether one of a request's statements may wait for a row lock of another transaction.
func mayAwaitRows(text string) bool {
	return slices.ContainsFunc(strings.Split(text, wire.Joint), func(s string) bool {
		verb, _, _ := strings.Cut(s, " ")
		return slices.Contains(rowVerbs, verb) || s == wire.DoBlock || strings.HasSuffix(s, wire.ForUpdate) || strings.HasSuffix(s, wire.Stored)
	})
}

// isStatistics reports whether a key or table seems to contain only statistics, judging by its
// name.
func isStatistics(verb, name string) bool {
	words := nameWords.FindAllString(strings.ToLower(name), -1)
	has := func(list []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
	}
	counts := has(counters) || strings.Contains(verb, "INCR") && has(totals)
	switch {
	case strings.Contains(name, "*") || has(guardWords):
		return false
	default:
		return has(statistics) || counts && !has(businessWords)
	}
}
