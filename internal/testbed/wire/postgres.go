package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A PostgreSQL client's first message begins with one of these codes.
const (
	postgresVersion = 3 // the version number's upper half
	postgresCancel  = 80877102
	postgresTLS     = 80877103
	postgresGSS     = 80877104
)

// These are the kinds of PostgreSQL requests. They differ in how their replies end.
const (
	postgresQuery    = iota // a simple query or a function call; its reply ends with ReadyForQuery
	postgresSync            // messages of the extended protocol; their reply ends with ReadyForQuery
	postgresExecutes        // Execute messages without a Sync; each of them gets one result
)

const (
	postgresHeader = 5       // bytes of a message before its body: the type and the length
	maxMessage     = 1 << 30 // the largest body that the server sends or accepts
	maxStartup     = 10000   // the largest first message that the server accepts
)

var errPostgres = errors.New("not the PostgreSQL protocol")

func scanPostgres(s *session) (up, down scanner) {
	return &postgresRequests{session: s, statements: map[string]string{}, portals: map[string]string{}}, &postgresReplies{session: s}
}

// postgresMessage is a message whose header, at least, has arrived.
type postgresMessage struct {
	kind byte
	size int    // length of the body in bytes
	body []byte // the part of the body that has arrived
}

func (k postgresMessage) isWhole() bool { return len(k.body) == k.size }

// postgresMessageIn returns the message at the beginning of data. If its header has not arrived
// yet, ok is false. kinds contains the message types that the proxy supports.
func postgresMessageIn(data []byte, kinds string) (k postgresMessage, ok bool, err error) {
	if len(data) > 0 && strings.IndexByte(kinds, data[0]) < 0 {
		return k, false, fmt.Errorf("%w: the proxy does not support messages of type %q", errPostgres, data[0])
	}
	if len(data) < postgresHeader {
		return k, false, nil
	}
	k.kind, k.size = data[0], int(int32(binary.BigEndian.Uint32(data[1:])))-4
	if k.size < 0 || k.size > maxMessage {
		return k, false, fmt.Errorf("%w: a message has an invalid length: %d bytes", errPostgres, k.size)
	}
	k.body = data[postgresHeader:min(len(data), postgresHeader+k.size)]
	return k, true, nil
}

// postgresRequests finds the requests in the data from a client. A request is a simple query, or
// all messages up to a Sync or a Flush. These messages stay together, because the server may not
// reply before the last one.
type postgresRequests struct {
	*session
	loggedIn            bool              // whether the client has sent its startup message
	statements, portals map[string]string // texts of the prepared statements and portals, by name
	messages            []postgresMessage // the messages of the current request
}

func (s *postgresRequests) scan(data []byte, full bool) (n int, m message, err error) {
	if !s.loggedIn {
		n, err = s.logIn(data)
		return n, m, err
	}
	s.messages = s.messages[:0]
	for {
		k, ok, err := postgresMessageIn(data[n:], "QFPBDECSHXdcfp")
		switch {
		case err != nil:
			return 0, m, err
		case ok && k.isWhole():
			n += postgresHeader + k.size
			s.messages = append(s.messages, k)
			if strings.IndexByte("PBDEC", k.kind) < 0 {
				return n, s.request(k.kind), nil
			}
		case !full:
			return 0, m, nil
		case n > 0: // the bytes that have arrived fill the buffer
			return n, s.request('H'), nil
		case k.kind == 'E' || k.kind == 'S' || k.kind == 'H':
			return 0, m, fmt.Errorf("%w: a message of type %q has an invalid length: %d bytes", errPostgres, k.kind, k.size)
		default: // the message does not fit into the buffer
			s.messages = append(s.messages, k)
			return postgresHeader + k.size, s.request(k.kind), nil
		}
	}
}

// logIn reads a message that precedes the login, such as the startup message or a request for
// encryption. Such a message has no type.
func (s *postgresRequests) logIn(data []byte) (n int, err error) {
	if data[0] == tlsHandshake {
		return 0, fmt.Errorf("%w: the client uses TLS, which the proxy cannot read: connect with sslmode=disable", errPostgres)
	}
	if len(data) < 8 {
		return 0, nil
	}
	size, code := int(binary.BigEndian.Uint32(data)), binary.BigEndian.Uint32(data[4:])
	switch {
	case size < 8 || size > maxStartup:
		return 0, fmt.Errorf("%w: the first message has an invalid length: %d bytes", errPostgres, size)
	case len(data) < size:
		return 0, nil
	case code == postgresTLS || code == postgresGSS:
		s.tlsQuestions.Add(1)
	case code>>16 == postgresVersion:
		s.loggedIn = true
	case code != postgresCancel:
		return 0, fmt.Errorf("%w: the client uses protocol version %d.%d, but the proxy supports only version 3", errPostgres, code>>16, code&0xffff)
	}
	return size, nil
}

// request combines the collected messages into one request. last is the type of the last message.
func (s *postgresRequests) request(last byte) (m message) {
	var names []string
	var prepared string
	for _, k := range s.messages {
		name, rest := cutString(k.body)
		switch k.kind {
		case 'Q':
			names = append(names, statementText(name))
		case 'F':
			names = append(names, fastPath)
		case 'P':
			statement, _ := cutString(rest)
			s.statements[string(name)] = statementText(statement)
			prepared = "PREPARE " + s.statements[string(name)]
		case 'B':
			statement, _ := cutString(rest)
			s.portals[string(name)] = s.statements[string(statement)]
		case 'E':
			names = append(names, cmp.Or(s.portals[string(name)], "EXECUTE"))
		case 'C':
			if of := map[byte]map[string]string{'S': s.statements, 'P': s.portals}; len(name) > 0 {
				delete(of[name[0]], string(name[1:]))
			}
		}
	}
	text := cmp.Or(strings.Join(names, Joint), prepared, "SYNC")
	m = message{kind: asks, text: text}
	switch {
	case last == 'Q', last == 'F':
	case last == 'S':
		m.request.kind = postgresSync
	case len(names) > 0:
		m.request = request{kind: postgresExecutes, left: len(names)}
	default: // the client waits for no result yet
		return message{}
	}
	return m
}

// fastPath is the name of a request that calls a function by its number, as lo_import does.
const fastPath = "CALL FUNCTION"

// cutString returns the text before the first zero byte, and the data after it.
func cutString(data []byte) (text, rest []byte) {
	text, rest, _ = bytes.Cut(data, []byte{0})
	return text, rest
}

type postgresReplies struct {
	*session
	ready   bool    // whether the server has accepted the client
	inReply bool    // whether a reply has begun but not ended
	current request // the request to which that reply belongs
}

func (s *postgresReplies) scan(data []byte, full bool) (n int, m message, err error) {
	switch {
	case s.tlsQuestions.Load() > 0 && data[0] == 'N':
		s.tlsQuestions.Add(-1)
		return 1, m, nil
	case s.tlsQuestions.Load() > 0 && data[0] != 'E':
		return 0, m, errors.New("the server encrypts the connection, so the proxy cannot read it: disable TLS")
	}
	k, ok, err := postgresMessageIn(data, "RKZSNAECDITn123tsdcHGWVv")
	if err != nil || !ok || k.kind == 'E' && !k.isWhole() && len(k.body) < errorBytes && !full {
		return 0, m, err
	}
	if m, err = s.reply(k); err != nil {
		return 0, m, err
	}
	return postgresHeader + k.size, m, nil
}

// reply reads a message from the server, and returns it if it is the beginning of a reply. A
// message that only describes a later result does not begin a reply.
func (s *postgresReplies) reply(k postgresMessage) (m message, err error) {
	switch {
	case !s.ready:
		s.ready = k.kind == 'Z'
		return m, nil
	case strings.IndexByte("SNA123tTn", k.kind) >= 0:
		return m, nil
	}
	if !s.inReply {
		r, ok := s.pop()
		for ok && k.kind == 'Z' && r.kind == postgresExecutes { // the server skipped this request after an error
			if r.tap != nil {
				r.tap.reply(ErrGone)
			}
			r, ok = s.pop()
		}
		if !ok { // no request is pending, so the server explains why it closes the connection
			return m, nil
		}
		s.inReply, s.current = true, r
		m = message{kind: replies, request: r}
		if k.kind == 'E' {
			m.failed = postgresError(k.body)
		}
	}
	switch {
	case k.kind == 'Z':
		s.inReply = false
	case k.kind == 'W', k.kind == 'G' && s.current.kind != postgresQuery:
		return message{}, errors.New("the proxy cannot read COPY FROM STDIN in the extended protocol, or replication: use INSERT")
	case s.current.kind == postgresExecutes && strings.IndexByte("CIsE", k.kind) >= 0:
		s.current.left--
		s.inReply = s.current.left > 0 && k.kind != 'E'
	}
	return m, nil
}

func postgresError(body []byte) *ReplyError {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return &ReplyError{"error"}
	}
	return &ReplyError{e.Code + " " + short([]byte(e.Message))}
}
