package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Capabilities of MySQL's protocol.
const (
	clientCompress     = 1 << 5
	clientProtocol41   = 1 << 9
	clientSSL          = 1 << 11
	clientOptionalMeta = 1 << 25 // a result set may come without its columns
	clientZstd         = 1 << 26
	clientQueryAttrs   = 1 << 27 // a statement may stand behind its attributes
	clientDeprecateEOF = 1 << 24
	clientProgress     = 1 << 29 // of MariaDB: errors that are none, but say how far a statement is

	hidden = clientCompress | clientSSL | clientOptionalMeta | clientZstd | clientQueryAttrs
)

// Commands of MySQL's protocol.
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

// commands are the names of the others that are understood.
var commands = map[byte]string{
	0x02: "USE", comFieldList: "FIELDS", 0x05: "CREATE DB", 0x06: "DROP DB", 0x07: "REFRESH", 0x08: "SHUTDOWN",
	comStatistics: "STATISTICS", comProcessInfo: "PROCESSES", 0x0c: "KILL", 0x0d: "DEBUG", 0x0e: "PING",
	comChangeUser: "CHANGE USER", 0x1a: "RESET STATEMENT", 0x1b: "SET OPTION", comFetch: "FETCH", 0x1f: "RESET",
}

// mysqlSession is what the two directions of such a connection know of each other.
type mysqlSession struct {
	caps   atomic.Uint32 // of the client, once it has said them
	inFile atomic.Bool   // the client sends a file, to its end

	mu         sync.Mutex
	statements map[uint32]string // prepared, by their numbers
	prepared   string            // the last that was
}

func scanMySQL(s *session) (up, down scanner) {
	s.mysql.statements = map[uint32]string{}
	return &mysqlRequests{session: s}, &mysqlReplies{session: s, state: greeting}
}

const (
	headerSize = 4
	maxPacket  = 1<<24 - 1 // a packet of that length is continued by the next one
)

// packets finds the packets of one direction.
type packets struct {
	rest      int  // of the payload of a packet that has begun
	continued bool // the next packet goes on with it
}

var errMySQL = errors.New("no protocol of MySQL")

// packet is the beginning of one.
type packet struct {
	seq     byte
	size    int
	payload []byte // as much as is there
	goesOn  bool   // it continues the one before
}

// next looks at the packet with which data begins. ok is false while there is less of it
// than want, or than all.
func (p *packets) next(data []byte, want int) (k packet, ok bool) {
	if len(data) < headerSize {
		return k, false
	}
	k.size = int(data[0]) | int(data[1])<<8 | int(data[2])<<16
	k.seq, k.goesOn = data[3], p.continued
	k.payload = data[headerSize:min(len(data), headerSize+k.size)]
	return k, p.continued || len(k.payload) >= min(want, k.size)
}

// take takes as much of the packet as is there.
func (p *packets) take(k packet) int {
	p.rest = k.size - len(k.payload)
	p.continued = k.size == maxPacket
	return headerSize + len(k.payload)
}

// skip takes what there is of a packet that was taken in part.
func (p *packets) skip(data []byte) int {
	n := min(p.rest, len(data))
	p.rest -= n
	return n
}

// mysqlRequests finds commands. One is looked at once it has come whole, or as much of it
// as there is room for.
type mysqlRequests struct {
	*session
	packets
}

func (s *mysqlRequests) scan(data []byte, full bool) (n int, m message, err error) {
	if s.rest > 0 {
		return s.skip(data), m, nil
	}
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
	case k.goesOn:
	case my.inFile.Load(): // which ends with an empty packet
		if k.size == 0 {
			my.inFile.Store(false)
		}
	case my.caps.Load() == 0:
		err = s.greet(k)
	case k.seq == 0:
		m, err = s.command(k.payload)
	}
	if err != nil {
		return 0, m, err
	}
	return s.take(k), m, nil
}

// greet takes what a client says first.
func (s *mysqlRequests) greet(k packet) error {
	if len(k.payload) < 32 {
		return fmt.Errorf("%w: a client that answers with %d bytes", errMySQL, k.size)
	}
	caps := binary.LittleEndian.Uint32(k.payload)
	switch {
	case caps&clientSSL != 0:
		return noTLS(k.seq + 1)
	case caps&clientProtocol41 == 0 || caps&hidden != 0:
		return fmt.Errorf("%w: a client with the capabilities %#x", errMySQL, caps)
	}
	s.mysql.caps.Store(caps)
	return nil
}

// noTLS is the error packet for a client that begins with TLS though none was offered.
func noTLS(seq byte) *refusal {
	const why = "the client insists on TLS, and the proxy that reads its statements offers none: connect without (sslMode=DISABLED, ssl-mode=DISABLED, tls=false)"
	payload := append([]byte{0xff}, binary.LittleEndian.AppendUint16(nil, 2026)...) // CR_SSL_CONNECTION_ERROR
	payload = append(payload, "#HY000"+why...)
	return &refusal{why, append([]byte{byte(len(payload)), byte(len(payload) >> 8), 0, seq}, payload...)}
}

func (s *mysqlRequests) command(payload []byte) (m message, err error) {
	if len(payload) == 0 {
		return m, fmt.Errorf("%w: an empty command", errMySQL)
	}
	m = message{kind: asks, request: request{kind: payload[0]}, raw: payload[1:]}
	my := &s.mysql
	switch payload[0] {
	case comQuit, comCloseStmt, comLongData:
		m.kind = tells
	case comQuery:
		m.text = statementText
	case comPrepare:
		m.request.text = statementText(m.raw)
		m.text = func([]byte) string { return "PREPARE " + m.request.text }
		my.mu.Lock()
		defer my.mu.Unlock()
		my.prepared = m.request.text
	case comExecute, comBulkExecute:
		m.text = my.statement
	default:
		name, ok := commands[payload[0]]
		if !ok {
			return m, fmt.Errorf("%w: command %#x is not understood", errMySQL, payload[0])
		}
		m.text = func([]byte) string { return name }
	}
	return m, nil
}

// statement is the text of the prepared one with whose number the payload begins.
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
	if id == 1<<32-1 { // of MariaDB: the last that was prepared, whose number is not yet known
		return s.prepared
	}
	return "EXECUTE"
}

// state is what the next packet of a server is.
type state int

const (
	between   state = iota // the first of a reply
	greeting               // the very first
	signingIn              // about who the client is
	results                // the first of a result, or of one more
	columns                // one of so many definitions of columns
	endOfColumns
	rows   // one of any number, or their end
	fields // likewise, and no more results after it
	afterFile
)

// mysqlReplies finds replies.
type mysqlReplies struct {
	*session
	packets
	state   state
	columns int   // that are still to come
	then    []int // how many of what follows on them: parameters, then columns
	inRows  bool
}

const (
	looksAt    = 32  // bytes of any packet, for an end of rows or an OK
	errorBytes = 512 // and of the first one of a reply, which may be an error
)

func (s *mysqlReplies) scan(data []byte, _ bool) (n int, m message, err error) {
	for n < len(data) && m.kind == none {
		if s.rest > 0 {
			n += s.skip(data[n:])
			continue
		}
		first := s.state == between && !s.continued
		if first && n > 0 {
			break
		}
		want := looksAt
		if first || s.state == greeting {
			want = errorBytes
		}
		k, ok := s.next(data[n:], want)
		if !ok {
			break
		}
		if !k.goesOn {
			if m, err = s.packet(k); err != nil {
				break
			}
		}
		n += s.take(k)
	}
	return n, m, err
}

// What the first byte of a packet says.
const (
	isOK     = 0x00
	isInFile = 0xfb
	isEOF    = 0xfe
	isError  = 0xff
)

// packet takes one, and says whether a reply begins with it.
func (s *mysqlReplies) packet(k packet) (m message, err error) {
	p := k.payload[:min(len(k.payload), errorBytes)]
	if len(p) == 0 && s.state != rows {
		return m, fmt.Errorf("%w: an empty packet", errMySQL)
	}
	switch s.state {
	case greeting:
		return m, s.greet(p)
	case between:
		r, ok := s.pop()
		if !ok { // it says that the connection ends
			return m, nil
		}
		m = message{kind: replies, request: r}
		if p[0] == isError {
			m.failed = errorIn(p)
		}
		return m, s.begin(r, k)
	case signingIn:
		if p[0] == isOK || p[0] == isError {
			s.state = between
		}
		return m, nil
	case columns:
		s.columns--
		s.afterColumns()
	case endOfColumns:
		s.endColumns(status(p))
	case results, afterFile:
		return m, s.result(k)
	case rows, fields:
		s.row(k)
	}
	return m, nil
}

// greet takes out of a server's greeting what would hide statements.
func (s *mysqlReplies) greet(p []byte) error {
	s.state = signingIn
	if p[0] == isError {
		s.state = between
		return nil
	}
	end := bytes.IndexByte(p, 0)
	lower := end + 1 + 4 + 8 + 1 // behind the version: number of the connection, salt, 0
	if p[0] != 10 || end < 0 || len(p) < lower+7 {
		return fmt.Errorf("%w: a greeting of version %d", errMySQL, p[0])
	}
	offered := binary.LittleEndian.Uint16(p[lower:])
	binary.LittleEndian.PutUint16(p[lower:], offered&^(hidden&0xffff))
	upper := p[lower+2+1+2:] // character set, status
	offered = binary.LittleEndian.Uint16(upper)
	binary.LittleEndian.PutUint16(upper, offered&^(hidden>>16))
	return nil
}

// begin takes the first packet of a reply.
func (s *mysqlReplies) begin(r request, k packet) error {
	p := k.payload
	switch r.kind {
	case comQuery, comExecute, comBulkExecute, comProcessInfo:
		s.state = results
		return s.result(k)
	case comPrepare:
		if p[0] != isOK {
			return nil
		}
		if len(p) < 9 {
			return fmt.Errorf("%w: a statement was prepared in %d bytes", errMySQL, len(p))
		}
		s.mysql.mu.Lock()
		s.mysql.statements[binary.LittleEndian.Uint32(p[1:])] = r.text
		s.mysql.mu.Unlock()
		cols, params := int(binary.LittleEndian.Uint16(p[5:])), int(binary.LittleEndian.Uint16(p[7:]))
		s.inRows = false
		s.then = []int{params, cols}
		s.nextColumns()
	case comFieldList, comFetch:
		s.state = fields
		s.row(k)
	case comChangeUser:
		if p[0] != isOK && p[0] != isError {
			s.state = signingIn
		}
	}
	return nil
}

// result takes the first packet of a result.
func (s *mysqlReplies) result(k packet) error {
	p := k.payload
	switch {
	case p[0] == isError && s.progress(p):
	case p[0] == isError:
		s.state = between
	case p[0] == isOK:
		s.end(okStatus(p))
	case p[0] == isInFile:
		s.mysql.inFile.Store(true)
		s.state = afterFile
	default:
		n, size := lengthIn(p)
		if size == 0 || n > 1<<16 || s.state == afterFile {
			return fmt.Errorf("%w: a result of %d columns", errMySQL, n)
		}
		if size < k.size && p[size] == 0 { // of MariaDB: the client knows them
			n = 0
		}
		s.inRows, s.then, s.columns = true, nil, int(n)
		s.afterColumns()
	}
	return nil
}

// progress says whether an error is none.
func (s *mysqlReplies) progress(p []byte) bool {
	return len(p) >= 3 && p[1] == 0xff && p[2] == 0xff && s.mysql.caps.Load()&clientProgress != 0
}

func (s *mysqlReplies) deprecatesEOF() bool { return s.mysql.caps.Load()&clientDeprecateEOF != 0 }

// afterColumns says what follows once a definition has come.
func (s *mysqlReplies) afterColumns() {
	switch {
	case s.columns > 0:
		s.state = columns
	case s.deprecatesEOF():
		s.endColumns(0)
	default:
		s.state = endOfColumns
	}
}

func (s *mysqlReplies) endColumns(status uint16) {
	const cursor = 0x0040 // the rows are to be fetched
	switch {
	case !s.inRows:
		s.nextColumns()
	case status&cursor != 0:
		s.state = between
	default:
		s.state = rows
	}
}

// nextColumns goes on with the next kind of definitions of a prepared statement.
func (s *mysqlReplies) nextColumns() {
	for len(s.then) > 0 {
		s.columns, s.then = s.then[0], s.then[1:]
		if s.columns > 0 {
			s.state = columns
			return
		}
	}
	s.state = between
}

// row takes a row, or what ends them.
func (s *mysqlReplies) row(k packet) {
	p := k.payload
	if len(p) == 0 {
		return
	}
	switch {
	case p[0] == isError && s.progress(p):
	case p[0] == isError:
		s.state = between
	case p[0] == isEOF && k.size < 9 && !s.deprecatesEOF():
		s.end(status(p))
	case p[0] == isEOF && k.size < maxPacket && s.deprecatesEOF():
		s.end(okStatus(p))
	}
}

// end is told the status at the end of a result.
func (s *mysqlReplies) end(status uint16) {
	const more = 0x0008
	if status&more != 0 && s.state != fields {
		s.state = results
		return
	}
	s.state = between
}

// status is that of an EOF packet.
func status(p []byte) uint16 {
	if len(p) < 5 {
		return 0
	}
	return binary.LittleEndian.Uint16(p[3:])
}

// okStatus is that of an OK packet: behind two numbers.
func okStatus(p []byte) uint16 {
	at := 1
	for range 2 {
		_, size := lengthIn(p[min(at, len(p)):])
		at += size
	}
	if len(p) < at+2 {
		return 0
	}
	return binary.LittleEndian.Uint16(p[at:])
}

// lengthIn is a number as MySQL packs it, with its size; 0: there is none.
func lengthIn(p []byte) (n uint64, size int) {
	if len(p) == 0 {
		return 0, 0
	}
	switch p[0] {
	case 0xfc:
		size = 2
	case 0xfd:
		size = 3
	case 0xfe:
		size = 8
	case 0xfb, 0xff:
		return 0, 0
	default:
		return uint64(p[0]), 1
	}
	if len(p) < 1+size {
		return 0, 0
	}
	for i := size; i > 0; i-- {
		n = n<<8 | uint64(p[i])
	}
	return n, 1 + size
}

// errorIn is the error of a packet: its number and its text.
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
