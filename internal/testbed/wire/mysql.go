package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// These are capability flags in the MySQL protocol.
const (
	clientCompress   = 1 << 5
	clientProtocol41 = 1 << 9
	clientSSL        = 1 << 11
	clientZstd       = 1 << 26
	clientQueryAttrs = 1 << 27 // attributes may precede a statement

	// unreadable lists capabilities that would hide statements from the proxy. To keep clients from
	// using them, the proxy removes them from the server's greeting.
	unreadable = clientCompress | clientSSL | clientZstd | clientQueryAttrs
)

// These are commands in the MySQL protocol.
const (
	comQuit        = 0x01
	comQuery       = 0x03
	comFieldList   = 0x04
	comStatistics  = 0x09
	comProcessInfo = 0x0a
	comChangeUser  = 0x11
	comPrepare     = 0x16
	comExecute     = 0x17
	comLongData    = 0x18
	comCloseStmt   = 0x19
	comFetch       = 0x1c
	comBulkExecute = 0xfa
)

// commands names the MySQL commands that do not contain an SQL statement.
var commands = map[byte]string{
	0x02: "USE", comFieldList: "FIELDS", 0x05: "CREATE DB", 0x06: "DROP DB", 0x07: "REFRESH", 0x08: "SHUTDOWN",
	comStatistics: "STATISTICS", comProcessInfo: "PROCESSES", 0x0c: "KILL", 0x0d: "DEBUG", 0x0e: "PING",
	comChangeUser: "CHANGE USER", 0x1a: "RESET STATEMENT", 0x1b: "SET OPTION", comFetch: "FETCH", 0x1f: "RESET",
}

// mysqlSession is the state that both directions of a MySQL connection share.
type mysqlSession struct {
	offered  atomic.Uint32 // capabilities in the server's greeting, including those that the proxy removes
	loggedIn atomic.Bool   // whether the client has sent its login packet
	next     atomic.Uint32 // sequence number that follows the client's last packet

	mu         sync.Mutex
	statements map[uint32]string // names of the prepared statements, by number
	prepared   string            // name of the statement that was prepared last
}

func scanMySQL(s *session) (up, down scanner) {
	s.mysql.statements = map[uint32]string{}
	return &mysqlRequests{session: s}, &mysqlReplies{session: s}
}

const (
	headerSize = 4
	maxPacket  = 1<<24 - 1 // a packet of this size continues in the next packet
)

// packets finds where MySQL packets begin and end in a stream.
type packets struct {
	continued bool // whether the next packet continues the current one
}

var errMySQL = errors.New("not the MySQL protocol")

// packet is a MySQL packet of which at least the header has arrived.
type packet struct {
	seq       byte
	size      int
	payload   []byte // the part that has arrived
	continues bool   // whether the packet continues the previous one
}

// next returns the packet at the beginning of data. If neither the whole packet nor want bytes of
// its payload have arrived, ok is false.
func (p *packets) next(data []byte, want int) (k packet, ok bool) {
	if len(data) < headerSize {
		return k, false
	}
	k.size = int(data[0]) | int(data[1])<<8 | int(data[2])<<16
	k.seq, k.continues = data[3], p.continued
	k.payload = data[headerSize:min(len(data), headerSize+k.size)]
	return k, p.continued || len(k.payload) >= min(want, k.size)
}

// take consumes the packet, and returns its length.
func (p *packets) take(k packet) int {
	p.continued = k.size == maxPacket
	return headerSize + k.size
}

// mysqlRequests finds the commands in the data from a client. It reads a command as soon as its
// packet has arrived or the buffer is full.
type mysqlRequests struct {
	*session
	packets
}

func (s *mysqlRequests) scan(data []byte, full bool) (n int, m message, err error) {
	want := maxPacket
	if full {
		want = 0
	}
	k, ok := s.next(data, want)
	if !ok {
		return 0, m, nil
	}
	my := &s.mysql
	switch {
	case k.continues:
	case !my.loggedIn.Load():
		err = s.login(k)
	case k.seq == 0 && my.next.Load() != 0: // after 255 packets, this packet continues a LOAD DATA LOCAL file
		m, err = s.command(k.payload)
	}
	if err != nil {
		return 0, m, err
	}
	my.next.Store(uint32(k.seq + 1))
	return s.take(k), m, nil
}

// login reads the client's capabilities from its login packet.
func (s *mysqlRequests) login(k packet) error {
	if len(k.payload) < 32 {
		return fmt.Errorf("%w: the login packet has only %d bytes, but must have at least 32", errMySQL, k.size)
	}
	asked := binary.LittleEndian.Uint32(k.payload)
	compresses := asked & s.mysql.offered.Load() & (clientCompress | clientZstd) // the server ignores what it did not offer
	switch {
	case asked&clientSSL != 0:
		return errors.New("the client requires TLS, which the proxy cannot read: connect without TLS (sslMode=DISABLED, ssl-mode=DISABLED, tls=false)")
	case asked&clientProtocol41 == 0:
		return fmt.Errorf("%w: the client uses a protocol older than version 4.1: use a newer client", errMySQL)
	case compresses != 0:
		return fmt.Errorf("the client compresses its packets, although the proxy does not offer compression: disable it in the client")
	}
	// Some clients ask for query attributes in any case, but send none unless the greeting offers them.
	// The server must not expect any either.
	binary.LittleEndian.PutUint32(k.payload, asked&^clientQueryAttrs)
	s.mysql.loggedIn.Store(true)
	return nil
}

// command describes the request in a command packet, or returns an error if the proxy does not
// support it.
func (s *mysqlRequests) command(payload []byte) (m message, err error) {
	if len(payload) == 0 {
		return m, fmt.Errorf("%w: the client sent an empty command packet", errMySQL)
	}
	_, waits := s.first()
	m = message{kind: asks, request: request{kind: payload[0], alone: !waits}}
	body := payload[1:]
	my := &s.mysql
	switch payload[0] {
	case comQuit, comCloseStmt, comLongData:
		m.kind = tells
		if payload[0] == comCloseStmt {
			my.forget(body)
		}
	case comQuery:
		m.text = statementText(body)
	case comPrepare:
		m.request.text = statementText(body)
		m.text = "PREPARE " + m.request.text
		my.mu.Lock()
		defer my.mu.Unlock()
		my.prepared = m.request.text
	case comExecute, comBulkExecute:
		m.text = my.statement(body)
	default:
		var ok bool
		if m.text, ok = commands[payload[0]]; !ok {
			return m, fmt.Errorf("%w: the proxy does not support the command %#x", errMySQL, payload[0])
		}
	}
	return m, err
}

// statement returns the name of the prepared statement whose number is at the beginning of payload.
func (s *mysqlSession) statement(payload []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(payload) < 4 {
		return "EXECUTE"
	}
	id := binary.LittleEndian.Uint32(payload)
	if text, ok := s.statements[id]; ok {
		return text
	}
	if id == 1<<32-1 { // in MariaDB, this number means the last prepared statement
		return s.prepared
	}
	return "EXECUTE"
}

// forget removes the prepared statement whose number is at the beginning of payload.
func (s *mysqlSession) forget(payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(payload) >= 4 {
		delete(s.statements, binary.LittleEndian.Uint32(payload))
	}
}

// mysqlReplies finds the replies in the data from a server. A reply's sequence numbers continue
// those of the client's last packet.
type mysqlReplies struct {
	*session
	packets
	greeted bool
	last    byte // sequence number of the last packet
}

// errorBytes is how many bytes of a reply scan waits for, so that it can read an error text.
const errorBytes = 512

func (s *mysqlReplies) scan(data []byte, _ bool) (n int, m message, err error) {
	for n < len(data) && m.kind == noMessage {
		k, ok := s.next(data[n:], 0)
		if !ok {
			break
		}
		if !s.greeted || !k.continues && s.begins(k) {
			if n > 0 || len(k.payload) < min(errorBytes, k.size) {
				break
			}
			if m, err = s.open(k); err != nil {
				break
			}
		}
		s.last = k.seq
		n += s.take(k)
	}
	return n, m, err
}

// begins reports whether a reply begins with this packet. Sequence numbers have one byte, so number
// 1 after 0 may also continue a reply of more than 255 packets. But if the request is alone, the
// client has already seen the end of the previous reply, so the packet begins a new one.
func (s *mysqlReplies) begins(k packet) bool {
	r, waits := s.first()
	return waits && (k.seq == 1 && s.last != 0 || r.alone && uint32(k.seq) == s.mysql.next.Load())
}

// These first bytes mark special packets at the beginning of a reply.
const (
	isOK       = 0x00
	isError    = 0xff
	isFileName = 0xfb // the server asks for the content of a file, as LOAD DATA LOCAL needs it
)

// open reads the server's greeting, or the first packet of a reply. For a reply, it returns a
// message.
func (s *mysqlReplies) open(k packet) (m message, err error) {
	p := k.payload[:min(len(k.payload), errorBytes)]
	if len(p) == 0 {
		return m, fmt.Errorf("%w: the server sent an empty packet", errMySQL)
	}
	if !s.greeted {
		s.greeted = true
		return m, s.greet(p)
	}
	if r, _ := s.first(); r.kind == comQuery && r.alone && p[0] == isFileName { // the reply follows after the file
		return m, nil
	}
	r, _ := s.pop()
	m = message{kind: replies, request: r}
	switch {
	case p[0] == isError && !isProgress(p):
		m.failed = errorIn(p)
	case r.kind == comPrepare && p[0] == isOK:
		if len(p) < 9 {
			return m, fmt.Errorf("%w: the reply to PREPARE has only %d bytes, but must have at least 9", errMySQL, len(p))
		}
		s.mysql.mu.Lock()
		defer s.mysql.mu.Unlock()
		s.mysql.statements[binary.LittleEndian.Uint32(p[1:])] = r.text
	}
	return m, nil
}

// greet reads the server's greeting, and removes the capabilities that would hide statements from
// the proxy.
func (s *mysqlReplies) greet(p []byte) error {
	if p[0] == isError {
		return nil
	}
	end := bytes.IndexByte(p, 0)
	lower := end + 1 + 4 + 8 + 1 // the version is followed by the connection number, the salt and a zero byte
	if p[0] != 10 || end < 0 || len(p) < lower+7 {
		return fmt.Errorf("%w: the server uses handshake version %d, but the proxy supports only version 10", errMySQL, p[0])
	}
	upper := lower + 2 + 1 + 2 // the lower half is followed by the character set and the status
	offered := uint32(binary.LittleEndian.Uint16(p[lower:])) | uint32(binary.LittleEndian.Uint16(p[upper:]))<<16
	s.mysql.offered.Store(offered)
	offered &^= unreadable
	binary.LittleEndian.PutUint16(p[lower:], uint16(offered))
	binary.LittleEndian.PutUint16(p[upper:], uint16(offered>>16))
	return nil
}

// isProgress reports whether a packet that looks like an error is actually a MariaDB progress
// report. Such a packet has an error code that no error has.
func isProgress(p []byte) bool { return len(p) >= 3 && p[1] == 0xff && p[2] == 0xff }

func errorIn(p []byte) *ReplyError {
	if len(p) < 3 {
		return &ReplyError{"error"}
	}
	text := p[3:]
	if len(text) >= 6 && text[0] == '#' {
		text = text[6:]
	}
	return &ReplyError{fmt.Sprintf("%d %s", binary.LittleEndian.Uint16(p[1:]), short(text))}
}
