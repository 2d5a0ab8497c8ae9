package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Kinds of requests of RESP.
const (
	plainCommand  = iota
	subscribing   // each of its channels is confirmed
	unsubscribing // likewise; without any the first confirmation counts as its reply
)

func scanRESP(s *session) (up, down scanner) {
	return &respRequests{session: s}, &respReplies{session: s}
}

// values is how much of some values of RESP is still to come. A value that holds
// others counts as so many more.
type values struct {
	left   int  // values
	skip   int  // bytes of a string, with its end
	inLine bool // the line of a value that is nothing else goes on
}

var errRESP = errors.New("no RESP")

// take takes bytes to the end of the last value, or as many as there are of whole
// lines and parts of strings.
func (v *values) take(data []byte) (n int, err error) {
	for v.left > 0 || v.skip > 0 {
		if v.skip > 0 {
			k := min(v.skip, len(data)-n)
			v.skip -= k
			n += k
			if v.skip > 0 {
				return n, nil
			}
			continue
		}
		rest := data[n:]
		end := bytes.IndexByte(rest, '\n')
		switch {
		case v.inLine && end < 0, end < 0 && len(rest) > 0 && isLine(rest[0]):
			v.inLine = true
			return len(data), nil
		case end < 0:
			return n, nil
		case v.inLine || isLine(rest[0]):
			v.inLine = false
			v.left--
		default:
			if err := v.open(rest[:end]); err != nil {
				return n, err
			}
		}
		n += end + 1
	}
	return n, nil
}

// isLine: simple strings, errors, numbers, null, doubles, booleans, big numbers.
func isLine(kind byte) bool { return strings.IndexByte("+-:_,#(", kind) >= 0 }

// open takes the first line of a value that consists of more.
func (v *values) open(line []byte) error {
	size, ok := sizeIn(line)
	if !ok {
		return fmt.Errorf("%w: %.40q", errRESP, line)
	}
	switch line[0] {
	case '$', '!', '=':
		v.left--
		if size >= 0 {
			v.skip = size + len("\r\n")
		}
	case '*', '~', '>':
		v.left += max(size, 0) - 1
	case '%':
		v.left += 2*max(size, 0) - 1
	case '|': // and then the value that it is about
		v.left += 2 * max(size, 0)
	default:
		return fmt.Errorf("%w: %.40q", errRESP, line)
	}
	return nil
}

// maxSize keeps sums of sizes from running over.
const maxSize = 1 << 40

// sizeIn is the number after the first byte of a line.
func sizeIn(line []byte) (n int, ok bool) {
	if len(line) == 0 {
		return 0, false
	}
	digits := bytes.TrimSuffix(line[1:], []byte("\r"))
	if bytes.Equal(digits, []byte("-1")) {
		return -1, true
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		if n = n*10 + int(d-'0'); n > maxSize {
			return 0, false
		}
	}
	return n, len(digits) > 0
}

// respRequests finds commands. One is looked at once it has come whole, or as much of it
// as there is room for.
type respRequests struct {
	*session
	values
}

func (s *respRequests) scan(data []byte, full bool) (n int, m message, err error) {
	if s.left > 0 || s.skip > 0 {
		n, err = s.take(data)
		if n == 0 && full && err == nil {
			err = errNoEnd
		}
		return n, m, err
	}
	if data[0] != '*' {
		return s.inline(data, full)
	}
	s.left = 1
	n, err = s.take(data)
	whole := s.left == 0 && s.skip == 0
	if err != nil || !whole && !full {
		s.values = values{}
		return 0, m, err
	}
	if n == 0 {
		return 0, m, errNoEnd
	}
	first, second := firstArgs(data[:n])
	if whole && first == nil { // which Redis passes over
		return n, m, nil
	}
	m, err = s.command(first, second, countIn(data)-1)
	m.raw, m.text = data[:n], arrayText
	return n, m, err
}

var errNoEnd = fmt.Errorf("%w: a line without end", errRESP)

// arrayText and inlineText name a command by how it was written.
func arrayText(raw []byte) string  { return commandText(argsIn(raw, maxArgs)) }
func inlineText(raw []byte) string { return commandText(bytes.Fields(raw)) }

// inline is a command as a person types it.
func (s *respRequests) inline(data []byte, full bool) (n int, m message, err error) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		if full {
			err = errNoEnd
		}
		return 0, m, err
	}
	args := bytes.Fields(data[:end])
	if len(args) == 0 {
		return end + 1, m, nil
	}
	m, err = s.command(args[0], append(args, nil)[1], len(args)-1)
	m.raw, m.text = data[:end], inlineText
	return end + 1, m, err
}

// command says what a command does to the replies that follow.
func (s *respRequests) command(name, arg []byte, count int) (m message, err error) {
	m.kind = asks
	is := func(word string) bool { return bytes.EqualFold(name, []byte(word)) }
	switch len(name) {
	case len("SYNC"), len("PSYNC"), len("CLIENT"), len("MONITOR"):
		if is("SYNC") || is("PSYNC") || is("MONITOR") || is("CLIENT") && bytes.EqualFold(arg, []byte("REPLY")) {
			return m, fmt.Errorf("%s %s changes how replies come", short(name), short(arg))
		}
	case len("SUBSCRIBE"), len("PSUBSCRIBE"):
		if is("SUBSCRIBE") || is("PSUBSCRIBE") || is("SSUBSCRIBE") {
			m.request.kind, m.request.left = subscribing, count
		}
	case len("UNSUBSCRIBE"), len("PUNSUBSCRIBE"):
		if is("UNSUBSCRIBE") || is("PUNSUBSCRIBE") || is("SUNSUBSCRIBE") {
			m.request.kind, m.request.left = unsubscribing, count
		}
	}
	return m, nil
}

// countIn is the number of arguments that a command says it has.
func countIn(data []byte) int {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return 0
	}
	n, _ := sizeIn(data[:end])
	return n
}

// argIn is the argument of a command with which data begins, and what follows it; nil:
// it has not come whole.
func argIn(data []byte) (arg, rest []byte) {
	if len(data) == 0 || data[0] != '$' {
		return nil, nil
	}
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return nil, nil
	}
	n, ok := sizeIn(data[:end])
	rest = data[end+1:]
	if !ok || n < 0 || len(rest) < n {
		return nil, nil
	}
	return rest[:n:n], rest[min(n+len("\r\n"), len(rest)):]
}

func behindLine(data []byte) []byte { return data[bytes.IndexByte(data, '\n')+1:] }

func firstArgs(data []byte) (first, second []byte) {
	first, rest := argIn(behindLine(data))
	second, _ = argIn(rest)
	return first, second
}

// maxArgs is how many arguments of a command its text may be made of.
const maxArgs = 16

// argsIn are the first arguments of a command, as far as they have come.
func argsIn(data []byte, most int) (args [][]byte) {
	for rest := behindLine(data); len(args) < most; {
		var arg []byte
		if arg, rest = argIn(rest); arg == nil {
			break
		}
		args = append(args, arg)
	}
	return args
}

// respReplies finds replies, and what comes without having been asked for.
type respReplies struct {
	*session
	values
	// subscribed: the connection has listened to a channel, and so an array may be no
	// reply. RESP3 has a type of its own for that.
	subscribed bool
}

const replyLine = 512 // bytes of a reply's first line that are waited for

func (s *respReplies) scan(data []byte, full bool) (n int, m message, err error) {
	if s.left == 0 && s.skip == 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 && !full && len(data) < replyLine {
			return 0, m, nil
		}
		var known bool
		if m, known = s.begin(data, end); !known {
			return 0, m, nil
		}
		s.left = 1
	}
	n, err = s.take(data)
	switch {
	case m.kind != none: // what it goes on with is looked at next
		err = nil
	case n == 0 && full && err == nil:
		err = errNoEnd
	}
	return n, m, err
}

// begin says what a value is that begins. known is false if more of it must come first.
func (s *respReplies) begin(data []byte, end int) (m message, known bool) {
	first, waits := s.first()
	if data[0] == '>' || data[0] == '*' && (s.subscribed || first.kind != plainCommand) {
		kind, known := kindOf(data)
		switch {
		case !known:
			return m, false
		case strings.HasSuffix(kind, "subscribe"):
			s.subscribed = true
			if !waits || (first.kind == subscribing) == strings.HasSuffix(kind, "unsubscribe") || first.kind == plainCommand || !s.confirm() {
				return m, true
			}
		case data[0] == '>' || strings.HasSuffix(kind, "message"):
			return m, true
		}
	}
	if !waits {
		return m, true
	}
	m.kind = replies
	m.request, _ = s.pop()
	if data[0] == '-' {
		if end < 0 || end > replyLine {
			end = replyLine
		}
		m.failed = &ReplyError{string(bytes.TrimSpace(data[1:end]))}
	}
	return m, true
}

// kindOf is the first element of an array, in small letters; "": it is not among those
// that matter. known is false while it has not come.
func kindOf(data []byte) (kind string, known bool) {
	line, rest, ok := bytes.Cut(data, []byte("\n"))
	if !ok {
		return "", false
	}
	if n, _ := sizeIn(line); n > 0 && len(rest) == 0 {
		return "", false
	} else if n <= 0 || rest[0] != '$' {
		return "", true
	}
	line, rest, ok = bytes.Cut(rest, []byte("\n"))
	if !ok {
		return "", false
	}
	n, _ := sizeIn(line)
	if n < 0 || n > len("punsubscribe") {
		return "", true
	}
	if len(rest) < n {
		return "", false
	}
	return strings.ToLower(string(rest[:n])), true
}
