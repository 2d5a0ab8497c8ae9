package wire

import (
	"encoding/binary"
	"strings"
	"testing"
)

// scanOf scans data in one go, and returns how many bytes were read, the last message and the error.
func scanOf(s scanner, data string) (n int, last message, err error) {
	for n < len(data) {
		read, m, err := s.scan([]byte(data[n:]), false)
		if m.kind != noMessage {
			last = m
		}
		if n += read; err != nil || read == 0 {
			return n, last, err
		}
	}
	return n, last, nil
}

// TestMalformedMySQL cuts valid packets to every shorter length. The error must name the packet that is
// too short. The proxy must accept the complete packet.
func TestMalformedMySQL(t *testing.T) {
	login := make([]byte, 32)
	binary.LittleEndian.PutUint32(login, clientProtocol41)
	greeting := "\x0a8.4\x00" + strings.Repeat("i", 4) + strings.Repeat("s", 8) + "\x00" + "\xff\xf7" + "\x08" + "\x02\x00" + "\xff\xff"
	for _, tt := range []struct {
		name       string
		packet     string // a valid packet, which is cut
		shortest   int    // the shortest length to try
		why        string
		fromServer bool
		before     []string
		loggedIn   bool // whether the packet is a command
	}{
		{"login", string(login), 0, "the login packet has only", false, nil, false},
		{"command", "\x0e", 0, "an empty command packet", false, nil, true},
		{"greeting", greeting, 1, "handshake version", true, nil, false},
		{"empty greeting", greeting, 0, "", true, nil, false},
		{"PREPARE", "\x00\x07\x00\x00\x00\x00\x00\x00\x00", 1, "the reply to PREPARE has only", true, []string{greeting}, true},
	} {
		for size := tt.shortest; size <= len(tt.packet); size++ {
			var s session
			up, down := scanMySQL(&s)
			s.mysql.loggedIn.Store(tt.loggedIn)
			s.mysql.next.Store(1)
			by := up
			if tt.fromServer {
				by = down
				for _, p := range tt.before {
					if _, _, err := scanOf(down, string(packetsOf(0, p))); err != nil {
						t.Fatal(err)
					}
					s.push(request{kind: comPrepare, text: "SELECT", alone: true})
				}
			}
			packet := string(packetsOf(byte(len(tt.before)), tt.packet[:size]))
			n, _, err := scanOf(by, packet)
			if valid := size == len(tt.packet); valid != (err == nil) || valid && n != len(packet) || !valid && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%s of %d bytes: read %d of %d, %v", tt.name, size, n, len(packet), err)
			}
			if got := s.mysql.statements[7]; tt.name == "PREPARE" && size == len(tt.packet) && got != "SELECT" {
				t.Errorf("statement 7 is %q", got)
			}
		}
	}
}

// TestMySQLErrors reads error packets with and without an SQL state, some of them truncated. It also
// looks up the names of prepared statements, with valid and invalid IDs.
func TestMySQLErrors(t *testing.T) {
	for text, want := range map[string]string{
		"\xff": "error", "\xff\x28": "error", "\xff\x28\x04": "1064 ", "\xff\x28\x04#42": "1064 #42", "\xff\x28\x04#42000": "1064 ", "\xff\x28\x04#42000no": "1064 no", "\xff\x28\x04no state": "1064 no state",
	} {
		if got := errorIn([]byte(text)).Error(); got != want {
			t.Errorf("error in %q: %q, want %q", text, got, want)
		}
	}
	var s session
	my := &s.mysql
	my.statements, my.prepared = map[uint32]string{7: "INSERT a"}, "UPDATE b"
	for text, want := range map[string]string{"": "EXECUTE", "\x07\x00\x00": "EXECUTE", "\x07\x00\x00\x00": "INSERT a", "\x07\x00\x00\x00\x00": "INSERT a", "\x08\x00\x00\x00": "EXECUTE", "\xff\xff\xff\xff": "UPDATE b"} {
		if got := my.statement([]byte(text)); got != want {
			t.Errorf("statement %q: %q, want %q", text, got, want)
		}
	}
}

// startup returns a PostgreSQL client's first message, which has no type.
func startup(size int, code uint32) string {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(size)), code)
	return string(head) + strings.Repeat("\x00", max(0, min(size, 20000)-len(head)))
}

// typed returns a PostgreSQL message with a type.
func typed(kind byte, size int, body string) string {
	return string(kind) + string(binary.BigEndian.AppendUint32(nil, uint32(size))) + body
}

// TestPostgresFirstMessages reads every kind of first message, with lengths at the limits. The proxy
// must name the reason if it cannot read one, and must wait for the rest of a truncated one.
func TestPostgresFirstMessages(t *testing.T) {
	for _, tt := range []struct {
		text      string
		why       string
		questions int32 // the number of requests for encryption in text
		loggedIn  bool
	}{
		{startup(8, 80877103), "", 1, false},  // SSLRequest
		{startup(8, 80877104), "", 1, false},  // GSSENCRequest
		{startup(16, 80877102), "", 0, false}, // CancelRequest
		{startup(8, 80877104) + startup(8, 80877103) + startup(9, 3<<16), "", 2, true},
		{startup(8, 3<<16), "", 0, true},
		{startup(10000, 3<<16|2), "", 0, true},
		{startup(10001, 3<<16), "invalid length: 10001", 0, false},
		{startup(7, 3<<16), "invalid length: 7", 0, false},
		{startup(9, 2<<16), "version 2.0", 0, false},
		{startup(9, 4<<16|1), "version 4.1", 0, false},
		{startup(9, 80877105), "version 1234.5681", 0, false},
		{"\x16\x03\x01\x00\x05\x01\x00\x00", "sslmode=disable", 0, false},
	} {
		var s session
		up, _ := scanPostgres(&s)
		n, _, err := scanOf(up, tt.text)
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) || err == nil && n != len(tt.text) {
			t.Errorf("%q: read %d, %v, want %q", tt.text, n, err, tt.why)
		}
		if in := up.(*postgresRequests).loggedIn; in != tt.loggedIn || s.tlsQuestions.Load() != tt.questions {
			t.Errorf("%q: logged in %v, %d requests for encryption", tt.text, in, s.tlsQuestions.Load())
		}
		for cut := 1; err == nil && tt.questions+1 < 3 && cut < len(tt.text); cut += max(1, len(tt.text)/20) {
			var s session
			up, _ := scanPostgres(&s)
			if n, _, err := scanOf(up, tt.text[:cut]); n != 0 || err != nil || up.(*postgresRequests).loggedIn {
				t.Errorf("%q: read %d of its first %d bytes, %v", tt.text, n, cut, err)
			}
		}
	}
}

// TestPostgresLengths reads messages with valid and invalid lengths and types, in both directions. The
// error must give the reason.
func TestPostgresLengths(t *testing.T) {
	for _, tt := range []struct {
		text string
		full bool
		why  string
		n    int
	}{
		{typed('Q', 3, ""), false, "invalid length: -1", 0},
		{typed('Q', 1<<30+5, ""), false, "invalid length: 1073741825", 0},
		{typed('Q', 1<<30+4, ""), false, "", 0},
		{typed('Q', 1<<31, ""), false, "invalid length: -2147483652", 0},
		{typed('Z', 4, ""), false, `messages of type 'Z'`, 0},
		{typed('Q', 14, "SELECT"), true, "", 15},
		{typed('E', 14, "SELECT"), true, `type 'E' has an invalid length: 10`, 0},
		{typed('S', 14, "SELECT"), true, `type 'S' has an invalid length: 10`, 0},
		{typed('H', 14, "SELECT"), true, `type 'H' has an invalid length: 10`, 0},
	} {
		var s session
		up, _ := scanPostgres(&s)
		up.(*postgresRequests).loggedIn = true
		n, _, err := up.scan([]byte(tt.text), tt.full)
		if n != tt.n || (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%q: read %d, %v, want %d, %q", tt.text, n, err, tt.n, tt.why)
		}
	}
	for _, tt := range []struct {
		questions int32
		text      string
		why       string
		n         int
	}{
		{1, "N", "", 1}, {1, "S", "the server encrypts the connection", 0}, {1, "G", "the server encrypts the connection", 0}, {0, "N\x00\x00\x00\x04", "", 5},
		{1, typed('E', 7, "no\x00"), "", 8}, {0, typed('E', 7, "no"), "", 0}, {0, typed('Q', 4, ""), `messages of type 'Q'`, 0},
	} {
		var s session
		_, down := scanPostgres(&s)
		s.tlsQuestions.Store(tt.questions)
		n, m, err := down.scan([]byte(tt.text), false)
		if n != tt.n || m.kind != noMessage || (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%d questions, %q: read %d, %v, want %d, %q", tt.questions, tt.text, n, err, tt.n, tt.why)
		}
		if left := s.tlsQuestions.Load(); tt.text == "N" && left != 0 {
			t.Errorf("%d questions are left", left)
		}
	}
}

// TestPostgresShortMessages cuts the body of each kind of message to every shorter length. The proxy must
// forward each of them completely, and must recognize a cut error as one.
func TestPostgresShortMessages(t *testing.T) {
	for _, whole := range []string{"QSELECT 1\x00", "Pa\x00SELECT 1\x00", "Ba\x00b\x00", "DSa\x00", "Ea\x00\x00\x00\x00\x00", "CSa\x00", "CPa\x00", "ppassword\x00"} {
		for size := 1; size <= len(whole); size++ {
			var s session
			up, _ := scanPostgres(&s)
			up.(*postgresRequests).loggedIn = true
			stream := string(messagesOf(whole[:size], "S"))
			if n, _, err := scanOf(up, stream); n != len(stream) || err != nil {
				t.Errorf("request %q: read %d of %d, %v", whole[:size], n, len(stream), err)
			}
		}
	}
	const failed = "ESERROR\x00C23505\x00Mtwice\x00\x00"
	for size := 1; size <= len(failed); size++ {
		var s session
		s.push(request{})
		_, down := scanPostgres(&s)
		stream := string(messagesOf("Z", failed[:size]))
		if n, m, err := scanOf(down, stream); n != len(stream) || err != nil || m.failed == nil {
			t.Errorf("reply %q: read %d of %d, %+v, %v", failed[:size], n, len(stream), m, err)
		}
	}
}
