package wire

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"slices"
	"strings"
)

// longest word of a text.
const longest = 80

func short(b []byte) string {
	for i, c := range b {
		if c < ' ' || c == 0x7f || i == longest {
			return string(b[:i]) + "…"
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// setOptions are words of SET that say what it is for. Their values are left out.
var setOptions = []string{"NX", "XX", "PX", "EX", "PXAT", "EXAT", "GET", "KEEPTTL"}

// keyless are commands whose first argument is no key, but part of the name.
var keyless = []string{"CLIENT", "CONFIG", "SCRIPT", "COMMAND", "CLUSTER", "SENTINEL", "FUNCTION", "ACL"}

// unnamed are commands whose arguments are secrets, or say nothing.
var unnamed = []string{"AUTH", "HELLO", "ECHO", "PING", "EXEC", "MULTI"}

// commandText names a command of Redis: what it does, to which key, and of SET how.
func commandText(args [][]byte) string {
	if len(args) == 0 {
		return "?"
	}
	name := strings.ToUpper(short(args[0]))
	words := []string{name}
	switch args = args[1:]; {
	case slices.Contains(unnamed, name) || len(args) == 0:
	case strings.HasPrefix(name, "EVAL") || strings.HasPrefix(name, "FCALL"):
		words = append(words, scriptName(name, args[0]))
		if len(args) > 2 && string(args[1]) != "0" {
			words = append(words, short(args[2]))
		}
	case slices.Contains(keyless, name):
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

// scriptName is the beginning of a script's digest, however it is sent, or a function's name.
func scriptName(command string, arg []byte) string {
	if !strings.HasPrefix(command, "EVAL") {
		return short(arg)
	}
	if !strings.HasPrefix(command, "EVALSHA") {
		arg = fmt.Appendf(nil, "%x", sha1.Sum(arg))
	}
	return strings.ToLower(short(arg[:min(len(arg), 7)]))
}

// statementText names a statement of SQL: what it does, and to which table first.
func statementText(sql []byte) string {
	words := tokens(sql, 64)
	for len(words) > 0 && words[0] == "(" {
		words = words[1:]
	}
	if len(words) == 0 {
		return "?"
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
		table = after(rest, "INTO")
	case "UPDATE":
		table = after(rest, "")
	case "SET":
		rest = rest[:min(3, len(rest))]
		if len(rest) == 3 && rest[1] == "=" {
			return verb + " " + strings.Join(rest, "")
		}
		return strings.Join(append([]string{verb}, rest...), " ")
	case "BEGIN", "COMMIT", "ROLLBACK", "WITH", "DO":
		return verb
	default:
		return strings.Join(append([]string{verb}, rest[:min(1, len(rest))]...), " ")
	}
	if table == "" {
		return verb
	}
	return verb + " " + table
}

// after is the table that is named behind a word, or behind the modifiers of a verb.
func after(words []string, word string) string {
	for i, w := range words {
		switch {
		case word != "" && strings.EqualFold(w, word):
			return after(words[i+1:], "")
		case word == "" && !strings.EqualFold(w, "LOW_PRIORITY") && !strings.EqualFold(w, "IGNORE") && w != "(":
			w = w[strings.LastIndexByte(w, '.')+1:]
			return strings.Trim(w, "`\"")
		}
	}
	return ""
}

// tokens are the first words and signs of a statement, without its comments.
func tokens(sql []byte, most int) (words []string) {
	for len(words) < most {
		sql = bytes.TrimLeft(sql, " \t\r\n;")
		n := 1
		switch {
		case len(sql) == 0:
			return words
		case bytes.HasPrefix(sql, []byte("/*")):
			_, sql, _ = bytes.Cut(sql[2:], []byte("*/"))
			continue
		case sql[0] == '#' || bytes.HasPrefix(sql, []byte("-- ")):
			_, sql, _ = bytes.Cut(sql, []byte("\n"))
			continue
		case sql[0] == '\'':
			if n = bytes.IndexByte(sql[1:], '\'') + 2; n == 1 { // it is cut off
				return words
			}
		case !isSign(sql[0]):
			if n = bytes.IndexFunc(sql, func(r rune) bool { return r < 0x80 && isSign(byte(r)) }); n < 0 {
				n = len(sql)
			}
		}
		words = append(words, short(sql[:n]))
		sql = sql[n:]
	}
	return words
}

// isSign says whether a byte is neither part of a name nor of a number.
func isSign(b byte) bool { return strings.IndexByte(" \t\r\n;,()=+-*/<>!?'#|&%", b) >= 0 }
