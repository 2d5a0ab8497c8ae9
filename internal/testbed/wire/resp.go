package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// These are the kinds of RESP requests.
const (
	plainCommand  = iota
	subscribing   // the server confirms each channel
	unsubscribing // the server confirms each channel; without channels, the first confirmation is the reply
	keepsChannels // unlike a plain command, the command is also possible while the client is subscribed in RESP2
)

// scanRESP returns the scanners of the Protocol RESP. The proxies in front of a user's service use them
// to match each reply to its request.
func scanRESP(s *session) (up, down scanner) {
	return &respRequests{session: s}, &respReplies{session: s}
}

// values counts the parts of a RESP message that have not arrived yet. Each array element counts as
// a part.
type values struct {
	left   int  // number of values that have not begun
	inLine bool // whether the line of a one-line value has begun but not ended
}

var errRESP = errors.New("not the Redis protocol")

// take consumes data up to the end of the message, and returns the number of bytes. The number exceeds
// the data if a string has not arrived completely.
func (v *values) take(data []byte) (n int, err error) {
	for v.left > 0 && n < len(data) {
		rest := data[n:]
		end := bytes.IndexByte(rest, '\n')
		switch {
		case v.inLine && end < 0, end < 0 && isLine(rest[0]):
			v.inLine = true
			return len(data), nil
		case end < 0:
			return n, nil
		case v.inLine || isLine(rest[0]):
			v.inLine = false
			v.left--
		default:
			size, err := v.open(rest[:end])
			if err != nil {
				return n, err
			}
			n += size
		}
		n += end + 1
	}
	return n, nil
}

// isLine reports whether values of this kind consist of a single line, such as a number.
func isLine(kind byte) bool { return strings.IndexByte("+-:_,#(", kind) >= 0 }

// open reads the first line of a string or an array. It records how many values follow, and returns
// the number of bytes that follow in a string and its line end.
func (v *values) open(line []byte) (follow int, err error) {
	size, ok := sizeIn(line)
	if !ok {
		return 0, fmt.Errorf("%w: %.40q", errRESP, line)
	}
	switch line[0] {
	case '$', '!', '=':
		v.left--
		if size >= 0 {
			follow = size + len("\r\n")
		}
	case '*', '~', '>':
		v.left += max(size, 0) - 1
	case '%':
		v.left += 2*max(size, 0) - 1
	case '|': // attributes precede the value that they describe
		v.left += 2 * max(size, 0)
	default:
		return 0, fmt.Errorf("%w: %.40q", errRESP, line)
	}
	return follow, nil
}

// maxSize limits the sizes that a message can announce, to prevent an overflow of their sum.
const maxSize = 1 << 40

// sizeIn returns the number after the first byte of a line, or -1 for a null value.
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

// respRequests finds the commands in the data from a client. It reads a command as soon as it has
// arrived completely or the buffer is full.
type respRequests struct {
	*session
	values
}

func (s *respRequests) scan(data []byte, full bool) (n int, m message, err error) {
	if s.left > 0 {
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
	whole := s.left == 0 && n <= len(data)
	if err != nil || !whole && !full {
		s.values = values{}
		return 0, m, err
	}
	if n == 0 {
		return 0, m, errNoEnd
	}
	args, count := argsIn(data[:min(n, len(data))])
	if whole && args == nil { // Redis ignores an empty command
		return n, m, nil
	}
	m, err = command(args, count-1)
	return n, m, err
}

var errNoEnd = fmt.Errorf("%w: a line is longer than 64 KB", errRESP)

// inline reads a command that consists of a line of words instead of an array.
func (s *respRequests) inline(data []byte, full bool) (n int, m message, err error) {
	if c := data[0]; c < ' ' && c != '\r' && c != '\n' && c != '\t' || c >= 0x7f {
		if c == tlsHandshake {
			return 0, m, fmt.Errorf("%w: the client uses TLS, which the proxy cannot read: connect without TLS", errRESP)
		}
		return 0, m, fmt.Errorf("%w: a command begins with the unexpected byte %#x", errRESP, c)
	}
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
	m, err = command(args, len(args)-1)
	return end + 1, m, err
}

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// command returns a name for a command with count arguments, and determines how many replies it
// gets. It rejects a command after which the proxy could not match replies to requests.
func command(args [][]byte, count int) (m message, err error) {
	m = message{kind: asks, text: commandText(args)}
	switch verb, _, _ := strings.Cut(m.text, " "); verb {
	case "SYNC", "PSYNC", "MONITOR", "CLIENT":
		if verb != "CLIENT" || m.text == "CLIENT REPLY" {
			return m, fmt.Errorf("the proxy cannot match replies to requests after the command %s: use a client that does not send it", m.text)
		}
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		m.request.kind, m.request.left = subscribing, count
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		m.request.kind, m.request.left = unsubscribing, count
	case "PING", "QUIT", "RESET":
		m.request.kind = keepsChannels
	}
	return m, nil
}

// maxArgs limits how many arguments of a command the proxy reads to find a name for it.
const maxArgs = 16

// argsIn returns up to maxArgs arguments of a command, and how many words its first line announces. It leaves
// out arguments that have not arrived completely.
func argsIn(data []byte) (args [][]byte, count int) {
	count, rest, _ := sizeLine(data)
	for len(args) < maxArgs {
		size, after, ok := sizeLine(rest)
		if !ok || rest[0] != '$' || size < 0 || len(after) < size {
			break
		}
		args, rest = append(args, after[:size:size]), after[min(size+len("\r\n"), len(after)):]
	}
	return args, count
}

// sizeLine returns the number in the first line of data, and the data after that line. If the line has not arrived
// completely or has no number, ok is false.
func sizeLine(data []byte) (size int, rest []byte, ok bool) {
	line, rest, whole := bytes.Cut(data, []byte("\n"))
	size, ok = sizeIn(line)
	return size, rest, whole && ok
}

// respReplies finds the replies in the data from a server. The data may also contain push messages.
type respReplies struct {
	*session
	values
	// subscribed means that the client has subscribed to a channel in RESP2, where an array may then
	// be a published message instead of a reply.
	subscribed bool
}

const replyLine = 512 // scan waits for this many bytes of a reply's first line

func (s *respReplies) scan(data []byte, full bool) (n int, m message, err error) {
	if s.left == 0 {
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
	case m.kind != noMessage: // return the message now; the next call reports the error
		err = nil
	case n == 0 && full && err == nil:
		err = errNoEnd
	}
	return n, m, err
}

// begin returns the reply at the beginning of data, or no message if something else is there. If it
// needs more data to decide, known is false.
func (s *respReplies) begin(data []byte, end int) (m message, known bool) {
	first, waits := s.first()
	if data[0] == '>' || data[0] == '*' && (s.subscribed || first.kind != plainCommand) {
		kind, known := kindOf(data)
		switch {
		case !known:
			return m, false
		case strings.HasSuffix(kind, "subscribe"):
			s.subscribed = data[0] == '*'
			if !waits || (first.kind == subscribing) == strings.HasSuffix(kind, "unsubscribe") || first.kind != subscribing && first.kind != unsubscribing || !s.confirm() {
				return m, true
			}
		case data[0] == '>' || strings.HasSuffix(kind, "message") && !(waits && first.kind == plainCommand): // in RESP2, a client that sends a plain command has left all channels
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

// kindOf returns the kind of a push message in lower case, or "" if data is something else. If it
// needs more data to decide, known is false.
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
