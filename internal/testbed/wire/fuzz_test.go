package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
)

// chunks is a connection that returns a stream in pieces, and keeps the written data. The function cut
// chooses the size of each piece.
type chunks struct {
	net.Conn
	stream []byte
	cut    func(most int) int
	got    bytes.Buffer
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.stream) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(c.stream), c.cut(len(c.stream)))
	copy(p, c.stream[:n])
	c.stream = c.stream[n:]
	return n, nil
}

func (c *chunks) Write(p []byte) (int, error) { return c.got.Write(p) }
func (c *chunks) Close() error                { return nil }

// carry passes a stream through a carrier. It returns the output, and the messages that the carrier
// found, with their offsets in the output.
func carry(stream []byte, cut func(int) int, protocol Protocol, prepare func(*session), replies bool) (out []byte, found []string) {
	from, to := &chunks{stream: slices.Clone(stream), cut: cut}, &chunks{}
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &link{proxy: &Proxy{cfg: Config{Say: func(string) {}}}, client: from, server: to, ctx: ctx, cancel: cancel}
	up, down := protocol(&l.session)
	prepare(&l.session)
	c := &carrier{link: l, scan: up, from: from, to: to, buf: make([]byte, 1024)}
	if replies {
		c.scan = down
	}
	c.decide = func(m message, flush func() error, _ func() bool) bool {
		if flush() != nil {
			return false
		}
		text := fmt.Sprint(m.failed)
		if m.text != "" {
			text = m.text
		}
		found = append(found, fmt.Sprintf("%d: %s %d", to.got.Len(), text, m.kind))
		return true
	}
	c.run()
	return to.got.Bytes(), found
}

// compare checks that a carrier handles a stream in the same way if it arrives at once or in pieces. The
// function unchanged reports whether the output is correct for the input.
func compare(t *testing.T, stream []byte, seed uint64, protocol Protocol, prepare func(*session), replies bool, unchanged func(in, out []byte) bool) {
	t.Helper()
	whole, want := carry(stream, func(most int) int { return most }, protocol, prepare, replies)
	if !unchanged(stream, whole) {
		t.Errorf("%q became %q", stream, whole)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, cut := range []func(int) int{
		func(int) int { return 1 },
		func(most int) int { return 1 + rng.IntN(most) },
		func(int) int { return 1 + rng.IntN(9) },
	} {
		out, found := carry(stream, cut, protocol, prepare, replies)
		if !bytes.Equal(out, whole) {
			t.Errorf("in pieces %q became %q, at once %q", stream, out, whole)
		}
		if !slices.Equal(found, want) {
			t.Errorf("%q\nin pieces %q\nat once   %q", stream, found, want)
		}
	}
}

// greeted reports whether out equals in, except for at most four bytes. A greeting can differ that much,
// because the proxy removes capabilities from it.
func greeted(in, out []byte) bool {
	if len(in) != len(out) {
		return false
	}
	differ := 0
	for i := range in {
		if in[i] != out[i] {
			differ++
		}
	}
	return differ <= 4
}

// admitted reports whether out is correct for the data from a MySQL client. The proxy can remove one
// capability from the login.
func admitted(in, out []byte) bool {
	if len(in) < headerSize+32 || len(out) <= headerSize+3 {
		return bytes.Equal(in, out)
	}
	const last = headerSize + 3 // the last byte of the capabilities
	return in[last]&^0x08 == out[last]&^0x08 && bytes.Equal(in[:last], out[:last]) && bytes.HasPrefix(in[last+1:], out[last+1:])
}

func FuzzRESPRequests(f *testing.F) {
	for _, s := range []string{
		"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n",
		"PING\r\nSET a b\r\n\r\n*0\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n",
		"*2\r\n$4\r\nECHO\r\n$1500\r\n" + string(bytes.Repeat([]byte("x"), 1500)) + "\r\n*1\r\n$4\r\nPING\r\n",
		"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\nPING\r\n", "*1\r\n$-1\r\n", "*99999999999999999999\r\n",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		compare(t, stream, seed, RESP, func(*session) {}, false, bytes.Equal)
	})
}

func FuzzRESPReplies(f *testing.F) {
	for _, s := range []string{
		"+OK\r\n$3\r\nabc\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n-ERR no\r\n_\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n~2\r\n#t\r\n,1.5\r\n|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n=5\r\ntxt:x\r\n(123\r\n",
		">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n+OK\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n+OK\r\n",
		"$1500\r\n" + string(bytes.Repeat([]byte("x"), 1500)) + "\r\n+OK\r\n", "*-1\r\n", "$?\r\n",
	} {
		f.Add([]byte(s), []byte{0, 1, 2, 0, 0}, uint64(1))
	}
	f.Fuzz(func(t *testing.T, stream, kinds []byte, seed uint64) {
		compare(t, stream, seed, RESP, func(s *session) {
			for _, k := range kinds {
				s.push(request{kind: k % 3, left: int(k / 3)})
			}
		}, true, bytes.Equal)
	})
}

// packetsOf returns the payloads as MySQL packets, with sequence numbers that begin with seq.
func packetsOf(seq byte, payloads ...string) (stream []byte) {
	for _, p := range payloads {
		stream = append(stream, byte(len(p)), byte(len(p)>>8), byte(len(p)>>16), seq)
		stream = append(stream, p...)
		seq++
	}
	return stream
}

func FuzzMySQLRequests(f *testing.F) {
	login := make([]byte, 40)
	binary.LittleEndian.PutUint32(login, clientProtocol41)
	f.Add(append(packetsOf(1, string(login)), packetsOf(0, "\x03SELECT 1")...), uint64(1))
	f.Add(slices.Concat(packetsOf(1, string(login)), packetsOf(0, "\x16UPDATE a SET b = ?"), packetsOf(0, "\x17\xff\xff\xff\xff\x00\x01\x00\x00\x00"), packetsOf(0, "\x01")), uint64(2))
	f.Add(slices.Concat(packetsOf(1, string(login)), packetsOf(0, "\x03INSERT INTO a VALUES ('"+string(bytes.Repeat([]byte("x"), 3000))+"')"), packetsOf(0, "\x0e")), uint64(3))
	binary.LittleEndian.PutUint32(login, clientProtocol41|clientSSL)
	f.Add(packetsOf(1, string(login[:32])), uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		compare(t, stream, seed, MySQL, func(*session) {}, false, admitted)
	})
}

func FuzzMySQLReplies(f *testing.F) {
	hello := "\x0a8.0\x00\x01\x00\x00\x0012345678\x00\xff\xff\x21\x02\x00\xff\xff\x15" + string(make([]byte, 10)) + "901234567890\x00mysql_native_password\x00"
	ok, eof := "\x00\x00\x00\x02\x00\x00\x00", "\xfe\x00\x00\x02\x00"
	result := []string{"\x02", "column", "column", eof, "\x01a\x01b", "\xfb\x01c", eof}
	f.Add(slices.Concat(packetsOf(0, hello), packetsOf(2, ok), packetsOf(1, ok), packetsOf(1, result...), packetsOf(1, "\xff\x26\x04#23000Duplicate")), []byte{3, 3, 3}, uint64(1))
	f.Add(slices.Concat(packetsOf(0, hello), packetsOf(2, ok), packetsOf(1, "\x00\x01\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00", "param", eof, "column", eof), packetsOf(1, result...)), []byte{0x16, 0x17}, uint64(2))
	f.Add(slices.Concat(packetsOf(0, hello), packetsOf(2, ok), packetsOf(1, "\x01", "column", "\x01a", "\xfe\x00\x00\x0a\x00\x00\x00", ok), packetsOf(1, ok)), []byte{3, 0x0e}, uint64(3))
	f.Add(slices.Concat(packetsOf(0, hello), packetsOf(2, ok), packetsOf(1, "\xfbfile", ok), packetsOf(1, "statistics"), packetsOf(1, "field", eof)), []byte{3, 9, 4}, uint64(4))
	f.Fuzz(func(t *testing.T, stream, kinds []byte, seed uint64) {
		compare(t, stream, seed, MySQL, func(s *session) {
			for _, k := range kinds {
				s.push(request{kind: k})
			}
		}, true, greeted)
	})
}

// TestMySQLRepliesInTurn sends each kind of reply, and then two more. The proxy must find where each of
// the three begins, with EOF packets after column definitions and without.
func TestMySQLRepliesInTurn(t *testing.T) {
	const (
		hello    = "\x0a8.0\x00\x01\x00\x00\x0012345678\x00\xff\xff\x21\x02\x00\xff\xff\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00901234567890\x00mysql_native_password\x00"
		ok       = "\x00\x00\x00\x02\x00\x00\x00"
		okAnd    = "\x00\x00\x00\x0a\x00\x00\x00" // another result follows
		failed   = "\xff\x26\x04#23000Duplicate"
		progress = "\xff\xff\xff\x01\x01\x01\x10\x00\x00\x04work"
		prepare  = "\x00\x01\x00\x00\x00"
		query    = comQuery
	)
	long := "\xfc\xe8\x03" + string(bytes.Repeat([]byte("x"), 1000))
	for _, deprecates := range []bool{false, true} {
		eof, last, more := []string{"\xfe\x00\x00\x02\x00"}, "\xfe\x00\x00\x02\x00", "\xfe\x00\x00\x0a\x00"
		if deprecates {
			eof, last, more = nil, last+"\x00\x00", more+"\x00\x00"
		}
		result := func(end string, rows ...string) []string {
			return slices.Concat([]string{"\x02", "column", "column"}, eof, rows, []string{end})
		}
		both := func(a, b []string) []string { return slices.Concat(a, b) }
		for name, tt := range map[string]struct {
			kind    byte
			packets []string
		}{
			"OK":                          {query, []string{ok}},
			"rows":                        {query, result(last, "\x01a\x01b", "\xfb\x01c", "\x00\x00")},
			"no rows":                     {query, result(last)},
			"long rows":                   {query, result(last, long+"\x00", "\x00"+long)},
			"error among the rows":        {query, result(failed, "\x01a\x01b")},
			"error instead of rows":       {query, result(failed)},
			"progress before the result":  {query, both([]string{progress}, result(last, "\x01a\x01b"))},
			"progress among the rows":     {query, result(last, progress, "\x01a\x01b", progress)},
			"two results":                 {query, both(result(more, "\x01a\x01b"), result(last, "\x01a\x01b"))},
			"a result, then OK":           {query, both(result(more), []string{ok})},
			"OK, then a result":           {query, both([]string{okAnd}, result(last))},
			"OK, then an error":           {query, []string{okAnd, failed}},
			"a result, then an error":     {query, both(result(more), []string{failed})},
			"a file":                      {query, []string{"\xfbfile", ok}},
			"a file, then an error":       {query, []string{"\xfbfile", failed}},
			"executed":                    {comExecute, result(last, "\x00\x00\x01")},
			"executed in bulk":            {comBulkExecute, []string{ok}},
			"processes":                   {comProcessInfo, result(last, "\x01a\x01b")},
			"prepared":                    {comPrepare, slices.Concat([]string{prepare + "\x01\x00\x02\x00\x00\x00\x00", "param", "param"}, eof, []string{"column"}, eof)},
			"prepared without parameters": {comPrepare, slices.Concat([]string{prepare + "\x02\x00\x00\x00\x00\x00\x00", "column", "column"}, eof)},
			"prepared without columns":    {comPrepare, slices.Concat([]string{prepare + "\x00\x00\x01\x00\x00\x00\x00", "param"}, eof)},
			"prepared without either":     {comPrepare, []string{prepare + "\x00\x00\x00\x00\x00\x00\x00"}},
			"fields":                      {comFieldList, []string{"field", "field", last}},
			"no fields":                   {comFieldList, []string{last}},
			"fetched":                     {comFetch, []string{"\x00\x00\x01", last}},
			"statistics":                  {comStatistics, []string{"Uptime: 5"}},
			"another user":                {comChangeUser, []string{ok}},
			"another user, asked again":   {comChangeUser, []string{"\xfeplugin\x00salt", ok}},
			"ping":                        {0x0e, []string{ok}},
		} {
			for what, packets := range map[string][]string{"": tt.packets, ", refused": {failed}} {
				stream := slices.Concat(packetsOf(0, hello), packetsOf(2, ok))
				var want []string
				for _, reply := range [][]string{packets, {ok}, {failed}} {
					var says error
					if reply[0] == failed {
						says = errorIn([]byte(failed))
					}
					want = append(want, fmt.Sprintf("%d: %v %d", len(stream), says, replies))
					stream = append(stream, packetsOf(1, reply...)...)
				}
				_, found := carry(stream, func(most int) int { return most }, MySQL, func(s *session) {
					for _, kind := range []byte{tt.kind, 0x0e, query} {
						s.push(request{kind: kind})
					}
				}, true)
				if !slices.Equal(found, want) {
					t.Errorf("%s%s, EOF deprecated %v:\n%q, want\n%q", name, what, deprecates, found, want)
				}
			}
		}
	}
}

// messagesOf returns messages of PostgreSQL, each given as its type and its body.
func messagesOf(messages ...string) (stream []byte) {
	for _, m := range messages {
		stream = append(stream, m[0])
		stream = binary.BigEndian.AppendUint32(stream, uint32(len(m)-1+4))
		stream = append(stream, m[1:]...)
	}
	return stream
}

// TestPostgresResults checks the reply to several Execute messages without a Sync, for each kind of
// result, and with an error after any number of results. The reply must end with the last result or the
// error, so that the next request gets its own reply.
func TestPostgresResults(t *testing.T) {
	const failed = "ESERROR\x00C23505\x00Mtwice\x00\x00"
	for executes := 1; executes <= 3; executes++ {
		for _, result := range []string{"CINSERT 0 1\x00", "I", "s"} {
			for fails := range executes + 1 { // with executes, none of them fails
				stream := messagesOf("Z")
				results := slices.Repeat([]string{result}, executes)
				if fails < executes {
					results = append(results[:fails], failed)
				}
				says := error(nil)
				if results[0] == failed {
					says = &ReplyError{"23505 twice"}
				}
				want := []string{fmt.Sprintf("%d: %v %d", len(stream), says, replies)}
				stream = append(stream, messagesOf(results...)...)
				want = append(want, fmt.Sprintf("%d: %v %d", len(stream), error(nil), replies))
				stream = append(stream, messagesOf("Z")...)
				_, found := carry(stream, func(most int) int { return most }, Postgres, func(s *session) {
					s.push(request{kind: postgresExecutes, left: executes})
					s.push(request{kind: postgresSync})
				}, true)
				if !slices.Equal(found, want) {
					t.Errorf("%d results %q, number %d fails: %q, want %q", executes, result, fails, found, want)
				}
			}
		}
	}
}

// TestShort checks that short cuts a text at every control character, and at no other byte.
func TestShort(t *testing.T) {
	for c := range 256 {
		want := strings.ToValidUTF8("a"+string([]byte{byte(c)})+"b", "?")
		if c < ' ' || c == 0x7f {
			want = "a…"
		}
		if got := short([]byte{'a', byte(c), 'b'}); got != want {
			t.Errorf("byte %#x: %q, want %q", c, got, want)
		}
	}
}

func FuzzPostgresRequests(f *testing.F) {
	hello := "\x00\x00\x00\x08\x04\xd2\x16\x2f\x00\x00\x00\x0d\x00\x03\x00\x00user\x00"
	large := string(bytes.Repeat([]byte("x"), 3000))
	f.Add(append([]byte(hello), messagesOf("ppassword", "QSELECT 1\x00", "X")...), uint64(1))
	f.Add(append([]byte(hello), messagesOf("Pa\x00UPDATE a SET b = $1\x00", "Ds", "S", "B\x00a\x00", "E\x00", "E\x00", "H", "CSa\x00", "S")...), uint64(2))
	f.Add(append([]byte(hello), messagesOf("QINSERT INTO a VALUES ('"+large+"')\x00", "P\x00SELECT 1\x00", "B\x00\x00"+large, "E\x00", "S", "d"+large, "c")...), uint64(3))
	f.Add(append([]byte(hello), messagesOf(slices.Repeat([]string{"E\x00"}, 300)...)...), uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		compare(t, stream, seed, Postgres, func(*session) {}, false, bytes.Equal)
	})
}

func FuzzPostgresReplies(f *testing.F) {
	large := string(bytes.Repeat([]byte("x"), 3000))
	f.Add(append([]byte("N"), messagesOf("R", "Sa\x00b\x00", "Z", "T", "D"+large, "CSELECT 1", "Z", "1", "2", "ESERROR\x00C23505\x00Mtwice\x00\x00", "Z", "G", "C", "Z")...), []byte{0, 1, 0}, true, uint64(1))
	f.Add(messagesOf("Z", "2", "D", "C", "C", "A", "n", "s", "EC57014\x00\x00", "Z", "E"+large, "Z"), []byte{2, 2, 5, 1, 1}, false, uint64(2))
	f.Fuzz(func(t *testing.T, stream, kinds []byte, asks bool, seed uint64) {
		compare(t, stream, seed, Postgres, func(s *session) {
			if asks {
				s.tlsQuestions.Store(1)
			}
			for _, k := range kinds {
				s.push(request{kind: k % 3, left: int(k / 3)})
			}
		}, true, bytes.Equal)
	})
}

// TestGreeting checks that the proxy removes only those capabilities from a greeting that would hide
// statements. It must reject greetings that are incomplete or have an unknown version.
func TestGreeting(t *testing.T) {
	hello := []byte("\x0a8.0\x00\x01\x00\x00\x0012345678\x00\xff\xff\x21\x02\x00\xff\xff\x15")
	s := &mysqlReplies{session: new(session)}
	for n := 1; n < len(hello)-1; n++ { // the last byte is not needed
		if err := s.greet(slices.Clone(hello[:n])); err == nil {
			t.Errorf("a greeting of %d bytes is accepted", n)
		}
	}
	for version := range 256 {
		if err := s.greet(append([]byte{byte(version)}, hello[1:]...)); (err == nil) != (version == 10 || version == isError) {
			t.Errorf("handshake version %d: %v", version, err)
		}
	}
	want := slices.Clone(hello)
	lower := bytes.IndexByte(hello, 0) + 14
	binary.LittleEndian.PutUint16(want[lower:], 0xffff&^(clientSSL|clientCompress))
	binary.LittleEndian.PutUint16(want[lower+5:], 0xffff&^((clientQueryAttrs|clientZstd)>>16))
	if err := s.greet(hello); err != nil || !bytes.Equal(hello, want) {
		t.Errorf("greet: %q, %v, want %q", hello, err, want)
	}
}

func FuzzStatementText(f *testing.F) {
	for _, s := range []string{"SELECT 1", "/* a */ select * from `a`.`b` where x = 'it''s' -- end", "INSERT IGNORE INTO a (b) VALUES (1)", "'", "((", "SET a='b'"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sql []byte) { _ = statementText(sql) })
}

func TestStatementText(t *testing.T) {
	for sql, want := range map[string]string{
		"select o1_0.id,o1_0.status from orders o1_0 where o1_0.id=?": "SELECT orders",
		"SELECT status FROM `shop`.`orders` WHERE id = 7 FOR UPDATE":  "SELECT orders FOR UPDATE",
		"/* ApplicationName=x */ UPDATE orders SET status = 1":        "UPDATE orders",
		"-- why\nDELETE FROM orders WHERE id = 1":                     "DELETE orders",
		"insert ignore into grabs (order_id) values (1)":              "INSERT grabs",
		"INSERT INTO grabs(order_id) VALUES (1)":                      "INSERT grabs",
		"REPLACE INTO a SELECT * FROM b":                              "REPLACE a",
		"SELECT GET_LOCK('grab:7', 1)":                                "SELECT GET_LOCK",
		"SELECT GET_LOCK('grab:7', 1) FROM dual":                      "SELECT GET_LOCK",
		"SELECT 1 FROM DUAL":                                          "SELECT DUAL",
		"SELECT COALESCE(GET_LOCK('a', 1), 0)":                        "SELECT GET_LOCK", "SELECT CASE WHEN pg_try_advisory_lock($1) THEN 1 END": "SELECT PG_TRY_ADVISORY_LOCK",
		"SELECT 1 WHERE pg_advisory_unlock(7)": "SELECT PG_ADVISORY_UNLOCK", "SELECT grab(1), release_lock('a')": "SELECT GRAB()", "SELECT get_lock FROM orders": "SELECT orders",
		"SELECT @@session.transaction_isolation": "SELECT",
		"SET autocommit=0":                       "SET autocommit=0", "set AUTOCOMMIT = 0": "SET autocommit=0", "SET @@session.autocommit = OFF": "SET autocommit=0", "SET SESSION autocommit=true": "SET autocommit=1",
		"SET autocommit=1, sql_mode=''": "SET autocommit=1", "SET autocommit=DEFAULT": "SET autocommit=DEFAULT",
		`SAVEPOINT "s139872345678592_x7"`: "SAVEPOINT", "RELEASE s1": "RELEASE",
		"SET NAMES utf8mb4":                 "SET NAMES utf8mb4",
		"set session transaction read only": "SET session transaction read",
		"START TRANSACTION READ ONLY":       "START TRANSACTION", "commit;": "COMMIT", "begin": "BEGIN", "END": "COMMIT", "abort work": "ROLLBACK",
		"SELECT " + strings.Repeat("o.c, ", 99) + "o.id FROM orders o FOR UPDATE": "SELECT orders FOR UPDATE", "UPDATE `a`": "UPDATE a",
		"(SELECT 1 FROM a) UNION (SELECT 2 FROM b)": "SELECT a", "": "EMPTY", "XA END 'x'": "XA END",
		"xa start 'x'": "BEGIN", "XA BEGIN 'x'": "BEGIN", "XA PREPARE 'x'": "XA PREPARE", "XA COMMIT 'x' ONE PHASE": "COMMIT", "xa rollback 'x'": "ROLLBACK", "XA": "XA",
		"prepare transaction 'x'": "PREPARE TRANSACTION", "COMMIT PREPARED 'x'": "COMMIT", "PREPARE a AS SELECT 1": "PREPARE a",
		"/* ping */": "EMPTY", "/* ping */ SELECT 1": "SELECT", "/* cut": "?", ";;": "EMPTY", "(": "(",
		"/*!40101 SET NAMES utf8 */": "SET NAMES utf8", "/*M!100100 UPDATE a SET b = 1 */": "UPDATE a",
		"INSERT orders VALUES (1)": "INSERT orders", "SELECT * FROM information_schema.tables": "SELECT information_schema",
		"WITH c AS (SELECT id FROM b) UPDATE orders SET winner = 1": "UPDATE orders", "WITH c AS (": "WITH",
		"SELECT id FROM orders WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED": "SELECT orders FOR UPDATE", "SELECT * FROM pg_catalog.pg_type": "SELECT pg_catalog",
		"WITH w AS (UPDATE orders SET s = 1 RETURNING id) SELECT id FROM w": "UPDATE orders",
		"DO $$ BEGIN DELETE FROM a; END $$; COMMIT":                         "DO BLOCK + COMMIT",
		"SELECT $a$;$a$, $1 FROM b":                                         "SELECT b", "SELECT pg_advisory_xact_lock($1)": "SELECT PG_ADVISORY_XACT_LOCK", "DO RELEASE_LOCK('a')": "SELECT RELEASE_LOCK",
		"SET @got = GET_LOCK('a', 1)": "SELECT GET_LOCK", "SET @got := (SELECT pg_catalog.pg_try_advisory_lock(7))": "SELECT PG_TRY_ADVISORY_LOCK", "SET @get_lock = 1": "SET @get_lock=1",
		"SELECT *, pg_try_advisory_xact_lock(id) FROM orders WHERE id = $1":                           "SELECT PG_TRY_ADVISORY_XACT_LOCK + SELECT orders",
		"BEGIN; UPDATE orders SET s = ';\\';' WHERE n = \"a;b\"; insert into wins values (1);COMMIT;": "BEGIN + UPDATE orders + INSERT wins + COMMIT",
		"SELECT data #>> '{status}' FROM orders WHERE id = $1 FOR UPDATE":                             "SELECT orders FOR UPDATE", "# a comment\nUPDATE a": "UPDATE a",
		"DO LANGUAGE plpgsql $$ BEGIN DELETE FROM a; END $$": "DO BLOCK", "DO $x$ BEGIN END $x$ LANGUAGE plpgsql": "DO BLOCK",
		"MERGE INTO wins w USING (VALUES (7)) s(id) ON w.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id)": "MERGE wins", "COPY public.\"wins\" (order_id) FROM STDIN": "COPY wins",
		"SELECT * FROM grab($1, $2)": "SELECT GRAB()", "SELECT ok, extract(epoch FROM age(at)) FROM shop.grab(1) g": "SELECT SHOP.GRAB()", "SELECT * FROM unnest($1)": "SELECT UNNEST",
		"SELECT extract(epoch FROM age(at)) FROM orders": "SELECT orders", "SELECT EXISTS(SELECT 1 FROM orders)": "SELECT orders", "SELECT * FROM ((a JOIN b ON true))": "SELECT a",
		"--claim\nUPDATE orders SET s = 1": "UPDATE orders", "UPDATE ONLY orders SET s = 1": "UPDATE orders",
		"SELECT n.name FROM ( SELECT t.* FROM pg_type t ) AS n": "SELECT pg_type", "SELECT a FROM LATERAL (SELECT 1 FROM wins) w": "SELECT wins",
		"SELECT grab($1, $2)": "SELECT GRAB()", "SELECT clock_timestamp()": "SELECT CLOCK_TIMESTAMP", "SELECT utc_timestamp()": "SELECT UTC_TIMESTAMP", "SELECT coalesce(1, 2)": "SELECT COALESCE", "SELECT to_winner(7)": "SELECT TO_WINNER()", "rollback to savepoint a": "ROLLBACK TO", "SAVEPOINT \"s140_x2\"": "SAVEPOINT", "ROLLBACK PREPARED 'a'": "ROLLBACK",
		"SELECT 1; -- ; DELETE FROM a\nDELETE FROM `a;b`": "SELECT + DELETE a;b",
	} {
		if got := statementText([]byte(sql)); got != want {
			t.Errorf("statementText(%s) = %q, want %q", sql, got, want)
		}
	}
}

// TestCommentsInStatements puts comments of each kind into each gap of statements. The comments contain words that would
// change the name of a statement.
func TestCommentsInStatements(t *testing.T) {
	comments := []string{"-- FROM a; SELECT\n", "--\n", "# FROM a; SELECT\n", "#\n", "/* FROM a; SELECT */", "/**/", "/* -- */", "/* # */", "-- /*\n", "# /*\n"}
	for sql, want := range map[string]string{
		"SELECT id FROM orders WHERE id = 1 FOR UPDATE": "SELECT orders FOR UPDATE",
		"UPDATE orders SET s = 1":                       "UPDATE orders",
		"DELETE FROM orders":                            "DELETE orders",
		"BEGIN ; INSERT INTO wins VALUES ( 7 ) ;":       "BEGIN + INSERT wins",
	} {
		words := strings.Fields(sql)
		for i := range len(words) + 1 {
			for _, c := range comments {
				for _, again := range []int{1, 2} {
					with := strings.Join(words[:i], " ") + " " + strings.Repeat(c, again) + " " + strings.Join(words[i:], " ")
					if got := statementText([]byte(with)); got != want {
						t.Errorf("statementText(%q) = %q, want %q", with, got, want)
					}
				}
			}
		}
		for _, c := range []string{"-- FROM a", "# FROM a", "#"} { // a comment at the end needs no line break
			if got := statementText([]byte(sql + " " + c)); got != want {
				t.Errorf("statementText(%q) = %q, want %q", sql+" "+c, got, want)
			}
		}
	}
}

// TestPartsThatWrite checks that a WITH statement has the name of its first part that writes, for every verb and at every
// position.
func TestPartsThatWrite(t *testing.T) {
	for part, want := range map[string]string{
		"UPDATE orders SET s = 1 RETURNING id": "UPDATE orders", "DELETE FROM orders RETURNING id": "DELETE orders", "INSERT INTO wins VALUES (1) RETURNING id": "INSERT wins",
		"MERGE INTO wins w USING orders o ON o.id = w.id WHEN MATCHED THEN DELETE RETURNING w.id": "MERGE wins",
	} {
		for _, sql := range []string{
			"WITH w AS (%s) SELECT id FROM w", "WITH a AS (SELECT 1), w AS (%s) SELECT id FROM w", "WITH w AS (%s), a AS (UPDATE a SET b = 1) SELECT id FROM w",
			"with w as (%s) select id from w", "WITH w AS MATERIALIZED (%s) SELECT id FROM w", "WITH a AS (SELECT (1) FROM b) %s",
		} {
			sql = fmt.Sprintf(sql, part)
			for _, text := range []string{sql, strings.ToLower(sql)} {
				if got := statementText([]byte(text)); got != want {
					t.Errorf("statementText(%s) = %q, want %q", text, got, want)
				}
			}
		}
	}
}

// TestTables checks which tables are found in a ledger query: all that it reads, but no name from a WITH clause.
func TestTables(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?":                                   "wins",
		"SELECT o.id, w.driver_id FROM orders o JOIN shop.wins w ON w.order_id = o.id WHERE o.id IN ({orders})": "orders wins",
		"select o.id, w.driver_id from `orders` as o, wins w where o.id = w.order_id and o.id in (1, 2)":        "orders wins",
		"SELECT (SELECT name FROM drivers), w.driver_id FROM wins w LEFT JOIN orders ON true":                   "wins drivers orders",
		"WITH w AS (SELECT * FROM wins), o AS (SELECT id FROM orders) SELECT w.order_id, w.driver FROM w, o":    "wins orders",
		"SELECT order_id, driver FROM (SELECT * FROM wins) AS w FOR UPDATE":                                     "wins",
		"SELECT 1": "", "": "",
	} {
		if got := strings.Join(Tables(query), " "); got != want {
			t.Errorf("Tables(%s) = %q, want %q", query, got, want)
		}
	}
}
