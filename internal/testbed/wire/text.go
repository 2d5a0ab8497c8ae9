package wire

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"grablab/internal/catalog"
)

// longest is the maximum length of a shortened text, in bytes.
const longest = 80

// short returns b as valid UTF-8. It cuts b at the first control character, or after 80 bytes.
func short(b []byte) string {
	for i, c := range b {
		if c < ' ' || c == 0x7f || i == longest {
			return string(b[:i]) + "…"
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// setOptions lists the SET options that are part of a command's name.
var setOptions = []string{"NX", "XX", "PX", "EX", "PXAT", "EXAT", "GET", "KEEPTTL"}

// withSubcommand lists the commands that begin with a subcommand instead of a key.
var withSubcommand = []string{"CLIENT", "CONFIG", "SCRIPT", "COMMAND", "CLUSTER", "SENTINEL", "FUNCTION", "ACL"}

// withoutKey lists the commands whose arguments are not keys. Some of the arguments are secret.
var withoutKey = []string{"AUTH", "HELLO", "ECHO", "PING", "EXEC", "MULTI"}

// commandText returns a name for a Redis command: the verb, the first key and, for SET, the
// options.
func commandText(args [][]byte) string {
	if len(args) == 0 {
		return "?"
	}
	name := strings.ToUpper(short(args[0]))
	words := []string{name}
	switch args = args[1:]; {
	case slices.Contains(withoutKey, name) || len(args) == 0:
	case strings.HasPrefix(name, "EVAL") || strings.HasPrefix(name, "FCALL"):
		words = append(words, scriptName(name, args[0]))
		if len(args) > 2 && string(args[1]) != "0" {
			words = append(words, short(args[2]))
		}
	case slices.Contains(withSubcommand, name):
		words = append(words, strings.ToUpper(short(args[0])))
	default:
		words = append(words, short(args[0]))
		for _, a := range args[1:] {
			if option := strings.ToUpper(string(a[:min(len(a), 8)])); name == "SET" && slices.Contains(setOptions, option) {
				words = append(words, option)
			}
		}
	}
	return strings.Join(words, " ")
}

// scriptName returns a name for a script or function: the first digits of the script's SHA-1, or
// the function name.
func scriptName(command string, arg []byte) string {
	if !strings.HasPrefix(command, "EVAL") {
		return short(arg)
	}
	if !strings.HasPrefix(command, "EVALSHA") {
		arg = fmt.Appendf(nil, "%x", sha1.Sum(arg))
	}
	return strings.ToLower(short(arg[:min(len(arg), 7)]))
}

// Joint separates the statements in the name of a multi-statement request.
const Joint = " + "

// maxStatements limits how many statements appear in a request's name.
const maxStatements = 16

// EmptyStatement is the name of a request that contains only comments.
const EmptyStatement = "EMPTY"

// statementText returns a name for a request's SQL statements. For each statement, the name usually
// contains the verb and the first table.
func statementText(sql []byte) string {
	var names []string
	for len(names) < maxStatements {
		var words []string
		words, sql = nextStatement(sql)
		if words != nil {
			names = append(names, statementName(words))
		}
		if sql == nil {
			break
		}
	}
	if names == nil {
		return EmptyStatement
	}
	return strings.Join(names, Joint)
}

// statementName returns a name such as "UPDATE orders", which usually consists of the verb and the
// first table.
func statementName(words []string) string {
	for len(words) > 1 && words[0] == "(" {
		words = words[1:]
	}
	words[0] = strings.ToUpper(words[0])
	verb, rest := words[0], words[1:]
	var table, lock string
	if call := lockCall.FindStringSubmatch(strings.Join(rest, " ")); call != nil {
		lock = "SELECT " + strings.ToUpper(call[1])
	}
	switch verb {
	case "SELECT":
		return selectName(rest, lock)
	case "DELETE":
		table = after(rest, "FROM")
	case "INSERT", "REPLACE", "MERGE":
		if table = after(rest, "INTO"); table == "" {
			table = after(rest, "")
		}
	case "UPDATE", "COPY":
		table = after(rest, "")
	case "SET":
		if lock != "" { // as in SET @got = GET_LOCK(…)
			return lock
		}
		if value := setsAutocommit.FindStringSubmatch(strings.Join(rest, " ")); value != nil {
			if slices.Contains([]string{"1", "on", "true"}, strings.ToLower(value[1])) {
				return AutocommitOn
			}
			return AutocommitOff
		}
		if len(rest) > 2 && rest[1] == "=" {
			return verb + " " + strings.Join(rest[:3], "")
		}
		return strings.Join(words[:min(4, len(words))], " ")
	case "WITH":
		if main := mainStatement(rest); main != nil {
			return statementName(main)
		}
		return verb
	case "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "DO": // clients may give each savepoint a new name
		if verb == "DO" && slices.ContainsFunc(rest, func(w string) bool { return w[0] == '$' }) { // LANGUAGE may come before the block
			return DoBlock
		}
		if verb == "DO" && lock != "" { // as in DO RELEASE_LOCK(…)
			return lock
		}
		if verb == "ROLLBACK" && slices.ContainsFunc(rest, func(w string) bool { return strings.EqualFold(w, "TO") }) {
			return "ROLLBACK TO" // the transaction goes on from its savepoint
		}
		return verb
	case "XA": // a distributed transaction in MySQL
		if len(rest) > 0 {
			switch step := strings.ToUpper(rest[0]); step {
			case "START", "BEGIN":
				return "BEGIN"
			case "COMMIT", "ROLLBACK":
				return step
			}
		}
		return strings.ToUpper(strings.Join(words[:min(2, len(words))], " "))
	case "END": // PostgreSQL's other names for COMMIT and ROLLBACK
		return "COMMIT"
	case "ABORT":
		return "ROLLBACK"
	default:
		if len(rest) > 0 && strings.EqualFold(rest[0], "TRANSACTION") { // as in START TRANSACTION and PREPARE TRANSACTION
			return verb + " TRANSACTION"
		}
		return strings.Join(words[:min(2, len(words))], " ")
	}
	if table == "" {
		return verb
	}
	return verb + " " + table
}

// selectName returns the name of a SELECT from the words after the verb. If the statement calls a function that
// acquires or releases a lock, lock is the name of that call. Otherwise, lock is "".
func selectName(words []string, lock string) string {
	from, call := fromClause(words), words // as in SELECT GET_LOCK(…)
	table := cmp.Or(after(from, ""), after(words, "FROM"))
	if len(from) > 1 && !slices.Contains(beforeTable, strings.ToUpper(from[0])) && from[1] == "(" {
		call, table = from, "" // as in SELECT * FROM grab(…)
	}
	if table == "" || strings.EqualFold(table, "DUAL") {
		function := ""
		if len(call) > 1 && call[1] == "(" {
			function = strings.ToUpper(call[0])
		}
		switch {
		case function != "" && !builtIn.MatchString(function):
			return "SELECT " + function + Stored
		case lock != "": // as in SELECT COALESCE(GET_LOCK(…), 0)
			return lock
		case function != "":
			return "SELECT " + function
		}
	}
	switch {
	case table == "":
		return "SELECT"
	case locksRows(words):
		table += ForUpdate
	}
	if lock != "" { // the statement also reads a table
		return lock + Joint + "SELECT " + table
	}
	return "SELECT " + table
}

// fromClause returns the words after the first FROM that is not in parentheses, or nil if there is
// none.
func fromClause(words []string) []string {
	depth := 0
	for i, w := range words {
		switch {
		case w == "(":
			depth++
		case w == ")":
			depth--
		case depth == 0 && strings.EqualFold(w, "FROM"):
			return words[i+1:]
		}
	}
	return nil
}

// lockCall matches a call of a server's function that acquires or releases a lock.
var lockCall = regexp.MustCompile(`(?i)(?:^|[ .])(GET_LOCK|RELEASE_LOCK|RELEASE_ALL_LOCKS|PG_(?:TRY_)?ADVISORY_\w+) \(`)

// Stored ends the name of a SELECT that calls a stored function, which may write.
const Stored = "()"

// builtIn matches the built-in functions of database servers that services often call in a separate
// statement, as in SELECT NOW(). A SELECT that calls any other function calls a stored function.
var builtIn = regexp.MustCompile(`^(PG_.*|(CURRENT|STATEMENT|TRANSACTION|CLOCK|TXID|UNIX|UTC|DATE|JSONB?)_.*|TO_(CHAR|DATE|JSONB?|NUMBER|TIMESTAMP)|.*_LOCKS?|(REGEXP|STRING|GENERATE)_.*|UNNEST|(CURR|LAST|NEXT)VAL|(GEN_RANDOM_)?UUID|(LOCAL|SYS|CUR)(DATE|TIME).*` +
	`|ABS|CAST|CEIL|COALESCE|CONCAT|CONNECTION_ID|CONVERT|COUNT|DATABASE|EXISTS|EXTRACT|FLOOR|FOUND_ROWS|GREATEST|HEX|IF|IFNULL|LAST_INSERT_ID|LEAST|LENGTH|LOWER|MD5|NOW|NULLIF|RAND(OM)?|ROUND|ROW|ROW_COUNT|SCHEMA|SET_CONFIG|SHA[12]?|SLEEP|UPPER|USER|VERSION)$`)

// Tables returns the tables that a query names. The first one is the first table of the main FROM clause.
func Tables(query string) (tables []string) {
	words, _ := nextStatement([]byte(query))
	var ctes []string
	for i := range words {
		if i+2 < len(words) && strings.EqualFold(words[i+1], "AS") && words[i+2] == "(" && i > 0 {
			ctes = append(ctes, words[i]) // a name from the WITH clause
		}
	}
	add := func(table string) {
		if table != "" && !slices.Contains(ctes, table) {
			tables = append(tables, table)
		}
	}
	_, first, _ := strings.Cut(statementText([]byte(query)), " ")
	add(strings.TrimSuffix(first, ForUpdate))
	lists := false // whether a comma may separate two tables here
	for i, w := range words {
		switch from := strings.EqualFold(w, "FROM"); {
		case from, strings.EqualFold(w, "JOIN"), w == "," && lists:
			add(after(words[i+1:], ""))
			lists = lists || from
		case slices.Contains([]string{"WHERE", "GROUP", "ORDER", "ON", "USING", "SELECT"}, strings.ToUpper(w)), w == ")":
			lists = false
		}
	}
	return catalog.Distinct(tables)
}

// ForUpdate ends the name of a SELECT that locks rows.
const ForUpdate = " FOR UPDATE"

// DoBlock is the name of a DO statement, which executes a code block in PostgreSQL.
const DoBlock = "DO BLOCK"

// PrepareTransaction is the name of the statement that prepares the commit of a distributed transaction in
// PostgreSQL.
const PrepareTransaction = "PREPARE TRANSACTION"

// These are the names of the statements that turn MySQL's autocommit off and on. JDBC drivers begin a transaction with the
// first one. The second one commits it.
const (
	AutocommitOff = "SET autocommit=0"
	AutocommitOn  = "SET autocommit=1"
)

// setsAutocommit matches the part of a statement that turns autocommit on or off, after SET.
var setsAutocommit = regexp.MustCompile(`(?i)^(?:(?:session |local )|@@(?:session\.|local\.)?)?autocommit = (0|1|off|on|false|true)(?: ,|$)`)

// Begins reports whether a statement with this name only begins a transaction.
func Begins(name string) bool {
	return name == "BEGIN" || name == "START TRANSACTION" || name == AutocommitOff
}

// Ends reports whether a statement with this name ends a transaction.
func Ends(name string) bool { return name == "COMMIT" || name == "ROLLBACK" }

// locksRows reports whether a SELECT with these words locks rows, because it contains FOR UPDATE or
// FOR NO KEY UPDATE.
func locksRows(words []string) bool {
	text := strings.ToUpper(strings.Join(words, " "))
	return strings.Contains(text, ForUpdate) || strings.Contains(text, " FOR NO KEY UPDATE")
}

// mainStatement returns the part of a WITH statement that gives the statement its name. This is the
// first part that writes or, if there is none, the last part. If words ends before that part, it
// returns nil.
func mainStatement(words []string) []string {
	depth := 0
	for i, w := range words {
		switch verb := strings.ToUpper(w); {
		case i > 0 && words[i-1] == "(" && slices.Contains([]string{"UPDATE", "DELETE", "INSERT", "MERGE"}, verb):
			return words[i:]
		case w == "(":
			depth++
		case w == ")":
			depth--
		case depth == 0 && slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT", "REPLACE", "MERGE"}, verb):
			return words[i:]
		}
	}
	return nil
}

// systemSchemas lists the schemas of system tables. A statement's name contains the schema instead
// of the system table.
var systemSchemas = []string{"information_schema", "performance_schema", "mysql", "sys", "pg_catalog"}

// beforeTable lists words that may precede the name of a table.
var beforeTable = []string{"(", "IGNORE", "LATERAL", "LOW_PRIORITY", "ONLY"}

// after returns the first table name after word, or the very first one if word is empty. It skips
// words that cannot be table names, such as IGNORE. In place of a subquery, it returns the first table of the
// subquery.
func after(words []string, word string) string {
	for i, w := range words {
		switch {
		case word != "" && strings.EqualFold(w, word):
			return after(words[i+1:], "")
		case word == "" && i > 0 && words[i-1] == "(" && strings.EqualFold(w, "SELECT"):
			return after(words[i+1:], "FROM")
		case word == "" && !slices.Contains(beforeTable, strings.ToUpper(w)):
			w = strings.NewReplacer("`", "", "\"", "").Replace(w)
			schema, _, _ := strings.Cut(strings.ToLower(w), ".")
			if slices.Contains(systemSchemas, schema) {
				return schema
			}
			return w[strings.LastIndexByte(w, '.')+1:]
		}
	}
	return ""
}

// nextStatement returns the words and signs of the first statement, without comments. rest is the
// text after the semicolon, or nil if there is none.
func nextStatement(sql []byte) (words []string, rest []byte) {
	for {
		sql = bytes.TrimLeft(sql, " \t\r\n")
		n := 1
		switch {
		case len(sql) == 0:
			return words, nil
		case sql[0] == ';':
			return words, sql[1:]
		case bytes.HasPrefix(sql, []byte("/*!")), bytes.HasPrefix(sql, []byte("/*M!")): // the server executes such a comment
			sql = bytes.TrimLeft(sql[2:], "M!0123456789")
			continue
		case bytes.HasPrefix(sql, []byte("*/")): // end of an executed comment
			sql = sql[2:]
			continue
		case bytes.HasPrefix(sql, []byte("/*")):
			end := bytes.Index(sql[2:], []byte("*/"))
			if end < 0 { // the comment has no end, and a statement may follow it
				return append(words, "?"), nil
			}
			sql = sql[2+end+2:]
			continue
		case sql[0] == '#' && !bytes.HasPrefix(sql, []byte("#>")) || bytes.HasPrefix(sql, []byte("-- ")) || bytes.HasPrefix(sql, []byte("--\n")),
			words == nil && bytes.HasPrefix(sql, []byte("--")):
			_, sql, _ = bytes.Cut(sql, []byte("\n")) // but #> reads a JSON field in PostgreSQL
			continue
		case sql[0] == '\'':
			n = quotedLen(sql)
		case sql[0] == '$' && dollarQuote.Match(sql):
			quote := dollarQuote.Find(sql)
			n = len(sql)
			if end := bytes.Index(sql[len(quote):], quote); end >= 0 {
				n = end + 2*len(quote)
			}
		case !isSign(sql[0]):
			n = wordLen(sql)
		}
		words, sql = append(words, short(sql[:n])), sql[n:]
	}
}

// dollarQuote matches the opening quote of a PostgreSQL dollar-quoted string, such as $$ or $body$.
var dollarQuote = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)?\$`)

// wordLen returns the length of the word at the beginning of sql, including its quoted parts.
func wordLen(sql []byte) int {
	for i := 0; i < len(sql); i++ {
		switch c := sql[i]; {
		case c == '`' || c == '"':
			i += quotedLen(sql[i:]) - 1
		case isSign(c):
			return i
		}
	}
	return len(sql)
}

// quotedLen returns the length of the quoted string or name at the beginning of sql.
func quotedLen(sql []byte) int {
	quote := sql[0]
	for i := 1; i < len(sql); i++ {
		switch {
		case sql[i] == '\\' && quote != '`':
			i++
		case sql[i] == quote:
			return i + 1
		}
	}
	return len(sql)
}

// isSign reports whether a byte separates words in SQL, like a space or a comma.
func isSign(b byte) bool { return strings.IndexByte(" \t\r\n;,()=+-*/<>!?'#|&%", b) >= 0 }
