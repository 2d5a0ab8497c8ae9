package wire

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"slices"
	"strings"
)

// longest is the length at which short cuts a word.
const longest = 80

// short returns b up to its first control character, as valid UTF-8.
func short(b []byte) string {
	for i, c := range b {
		if c < ' ' || c == 0x7f || i == longest {
			return string(b[:i]) + "…"
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// setOptions are the options of SET that its text shows, without their values.
var setOptions = []string{"NX", "XX", "PX", "EX", "PXAT", "EXAT", "GET", "KEEPTTL"}

// withSubcommand are the commands whose first argument is a subcommand and not a key.
var withSubcommand = []string{"CLIENT", "CONFIG", "SCRIPT", "COMMAND", "CLUSTER", "SENTINEL", "FUNCTION", "ACL"}

// withoutKey are the commands whose arguments are secrets or data, and not keys.
var withoutKey = []string{"AUTH", "HELLO", "ECHO", "PING", "EXEC", "MULTI"}

// commandText names a Redis command by its verb, its first key and the options of a SET.
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

// scriptName returns the name of a function, or the beginning of a script's digest.
func scriptName(command string, arg []byte) string {
	if !strings.HasPrefix(command, "EVAL") {
		return short(arg)
	}
	if !strings.HasPrefix(command, "EVALSHA") {
		arg = fmt.Appendf(nil, "%x", sha1.Sum(arg))
	}
	return strings.ToLower(short(arg[:min(len(arg), 7)]))
}

// Joint separates the names of statements that a client sends in one request.
const Joint = " + "

// maxStatements is the number of statements in one request that statementText names.
const maxStatements = 16

// EmptyStatement is the text of a request that holds nothing but comments.
const EmptyStatement = "EMPTY"

// statementText names each SQL statement in a request by its verb and its first table.
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

// statementName names one statement, of which words are the first words and signs.
func statementName(words []string) string {
	for len(words) > 1 && words[0] == "(" {
		words = words[1:]
	}
	verb, rest := strings.ToUpper(words[0]), words[1:]
	var table string
	switch verb {
	case "SELECT":
		if table = after(rest, "FROM"); table == "" && len(rest) > 1 && rest[1] == "(" {
			return verb + " " + strings.ToUpper(rest[0]) // SELECT GET_LOCK(…)
		}
	case "DELETE":
		table = after(rest, "FROM")
	case "INSERT", "REPLACE":
		if table = after(rest, "INTO"); table == "" {
			table = after(rest, "")
		}
	case "UPDATE":
		table = after(rest, "")
	case "SET":
		rest = rest[:min(3, len(rest))]
		if len(rest) == 3 && rest[1] == "=" {
			return verb + " " + strings.Join(rest, "")
		}
		return strings.Join(append([]string{verb}, rest...), " ")
	case "WITH":
		if main := mainStatement(rest); main != nil {
			return statementName(main)
		}
		return verb
	case "BEGIN", "COMMIT", "ROLLBACK", "DO":
		return verb
	default:
		return strings.Join(append([]string{verb}, rest[:min(1, len(rest))]...), " ")
	}
	if table == "" {
		return verb
	}
	return verb + " " + table
}

// mainStatement returns the words of the statement behind the common table expressions of a
// WITH. It returns nil if they are longer than the words.
func mainStatement(words []string) []string {
	depth := 0
	for i, w := range words {
		switch verb := strings.ToUpper(w); {
		case w == "(":
			depth++
		case w == ")":
			depth--
		case depth == 0 && slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT", "REPLACE"}, verb):
			return words[i:]
		}
	}
	return nil
}

// systemSchemas are the schemas that after returns in place of their tables.
var systemSchemas = []string{"information_schema", "performance_schema", "mysql", "sys"}

// after returns the table that follows a word. If the word is empty, it returns the table
// that follows the modifiers of a verb.
func after(words []string, word string) string {
	for i, w := range words {
		switch {
		case word != "" && strings.EqualFold(w, word):
			return after(words[i+1:], "")
		case word == "" && !strings.EqualFold(w, "LOW_PRIORITY") && !strings.EqualFold(w, "IGNORE") && w != "(":
			w = strings.NewReplacer("`", "", "\"", "").Replace(w)
			schema, _, _ := strings.Cut(strings.ToLower(w), ".")
			if schema != strings.ToLower(w) && slices.Contains(systemSchemas, schema) {
				return schema
			}
			return w[strings.LastIndexByte(w, '.')+1:]
		}
	}
	return ""
}

// maxWords is the number of words of a statement that nextStatement returns.
const maxWords = 64

// nextStatement returns the first words and signs of the statement at the beginning of sql
// without its comments, and what follows its semicolon. The rest is nil if there is none.
func nextStatement(sql []byte) (words []string, rest []byte) {
	for {
		sql = bytes.TrimLeft(sql, " \t\r\n")
		n := 1
		switch {
		case len(sql) == 0:
			return words, nil
		case sql[0] == ';':
			return words, sql[1:]
		case bytes.HasPrefix(sql, []byte("/*!")), bytes.HasPrefix(sql, []byte("/*M!")): // the server executes it
			sql = bytes.TrimLeft(sql[2:], "M!0123456789")
			continue
		case bytes.HasPrefix(sql, []byte("*/")): // its end
			sql = sql[2:]
			continue
		case bytes.HasPrefix(sql, []byte("/*")):
			end := bytes.Index(sql[2:], []byte("*/"))
			if end < 0 { // cut off, and a statement may follow
				return append(words, "?"), nil
			}
			sql = sql[2+end+2:]
			continue
		case sql[0] == '#' || bytes.HasPrefix(sql, []byte("-- ")) || bytes.HasPrefix(sql, []byte("--\n")):
			_, sql, _ = bytes.Cut(sql, []byte("\n"))
			continue
		case sql[0] == '\'':
			n = quotedLen(sql)
		case !isSign(sql[0]):
			n = wordLen(sql)
		}
		if len(words) < maxWords {
			words = append(words, short(sql[:n]))
		}
		sql = sql[n:]
	}
}

// wordLen returns the length of the word at the beginning of sql, which may have quoted parts.
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

// quotedLen returns the length of the string or name in quotes at the beginning of sql.
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

// isSign reports whether a byte is part of neither a name nor a number.
func isSign(b byte) bool { return strings.IndexByte(" \t\r\n;,()=+-*/<>!?'#|&%", b) >= 0 }
