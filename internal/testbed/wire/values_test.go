package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// respValue returns a random RESP value of any type, nested up to a depth.
func respValue(r *rand.Rand, depth int) string {
	text := strings.Repeat("x", r.IntN(30))
	if r.IntN(8) == 0 {
		text = "\r\n*1\r\n" // a text that looks like the protocol
	}
	several := func(n int) (all string) {
		for range n {
			all += respValue(r, depth-1)
		}
		return all
	}
	n := r.IntN(3)
	switch kinds := "+-:_,#($!=*~%|"; kinds[r.IntN(len(kinds)-4*max(0, 1-depth))] {
	case '$':
		if r.IntN(4) == 0 {
			return "$-1\r\n"
		}
		return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
	case '!':
		return fmt.Sprintf("!%d\r\n%s\r\n", len(text), text)
	case '=':
		return fmt.Sprintf("=%d\r\ntxt:%s\r\n", len(text)+4, text)
	case '*':
		if r.IntN(4) == 0 {
			return "*-1\r\n"
		}
		return fmt.Sprintf("*%d\r\n%s", n, several(n))
	case '~':
		return fmt.Sprintf("~%d\r\n%s", n, several(n))
	case '%':
		return fmt.Sprintf("%%%d\r\n%s", n, several(2*n))
	case '|':
		return fmt.Sprintf("|%d\r\n%s%s", n, several(2*n), respValue(r, depth-1))
	case '+':
		return "+OK\r\n"
	case '-':
		return "-ERR no\r\n"
	case ':':
		return ":-12\r\n"
	case '_':
		return "_\r\n"
	case ',':
		return ",1.5\r\n"
	case '#':
		return "#t\r\n"
	default:
		return "(123456789012345678901234567890\r\n"
	}
}

// TestRepliesByDefinition sends random replies of all types, some of them after push messages. The proxy
// must find exactly one reply for each request, at the correct offset.
func TestRepliesByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for range 400 {
		var stream string
		var want []string
		n := 1 + r.IntN(5)
		for range n {
			for r.IntN(4) == 0 {
				stream += fmt.Sprintf(">%d\r\n$10\r\ninvalidate\r\n%s", 2, respValue(r, 1))
			}
			reply := respValue(r, 3)
			failed := "<nil>"
			if strings.HasPrefix(reply, "-") {
				failed = "ERR no"
			}
			want = append(want, fmt.Sprintf("%d: %s %d", len(stream), failed, replies))
			stream += reply
		}
		for _, most := range []int{1, 7, 1 << 20} {
			out, found := carry([]byte(stream), func(left int) int { return min(left, most) }, RESP, func(s *session) {
				for range n {
					s.push(request{})
				}
			}, true)
			if string(out) != stream || !slices.Equal(found, want) {
				t.Fatalf("%q in pieces of %d\nfound %q\nwant  %q", stream, most, found, want)
			}
		}
	}
}

// TestCommandsByDefinition sends random commands, as arrays and as lines. The proxy must find each
// command at the correct offset, and give it the correct name.
func TestCommandsByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 400 {
		var stream string
		var want []string
		for range 1 + r.IntN(5) {
			key := fmt.Sprint("k", r.IntN(100))
			args, text := []string{"GET", key}, "GET "+key
			if r.IntN(2) == 0 {
				args, text = []string{"ECHO", []string{strings.Repeat("y", r.IntN(20)), "\r\n*1\r\n"}[r.IntN(2)]}, "ECHO"
			}
			switch r.IntN(6) {
			case 0: // Redis ignores these
				stream += []string{"*0\r\n", "\r\n", "*-1\r\n"}[r.IntN(3)]
				continue
			case 1:
				want = append(want, fmt.Sprintf("%d: GET %s %d", len(stream), key, asks))
				stream += "GET  " + key + "\r\n"
				continue
			}
			want = append(want, fmt.Sprintf("%d: %s %d", len(stream), text, asks))
			stream += fmt.Sprintf("*%d\r\n", len(args))
			for _, a := range args {
				stream += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
			}
		}
		for _, most := range []int{1, 7, 1 << 20} {
			out, found := carry([]byte(stream), func(left int) int { return min(left, most) }, RESP, func(*session) {}, false)
			if string(out) != stream || !slices.Equal(found, want) {
				t.Fatalf("%q in pieces of %d\nfound %q\nwant  %q", stream, most, found, want)
			}
		}
	}
}

// TestPendingRequests compares the queue of a connection with a plain list, for random sequences of
// requests, replies and confirmations. Some queues become long, because then they reuse their memory.
func TestPendingRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 3))
	for n := range 12 {
		var s session
		var want []request
		for i := range 6000 {
			switch grows := n%2 == 0 && i < 3000; {
			case r.IntN(10) < 5 && (grows || r.IntN(10) < 9) || len(want) == 0:
				q := request{kind: byte(i % 3), left: r.IntN(3), text: fmt.Sprint(i)}
				s.push(q)
				want = append(want, q)
			case grows && r.IntN(4) > 0:
			case r.IntN(4) == 0:
				want[0].left--
				if last := s.confirm(); last != (want[0].left <= 0) {
					t.Fatalf("%+v is confirmed: %v", want[0], last)
				}
			default:
				if got, ok := s.pop(); !ok || got != want[0] {
					t.Fatalf("pop: %+v %v, want %+v", got, ok, want[0])
				}
				want = want[1:]
			}
			if first, ok := s.first(); ok != (len(want) > 0) || ok && first != want[0] {
				t.Fatalf("the first is %+v %v, of %d", first, ok, len(want))
			}
		}
		if rest := s.abandon(); !slices.Equal(rest, want) {
			t.Fatalf("%d are abandoned, want %d", len(rest), len(want))
		}
		if _, ok := s.pop(); ok {
			t.Fatal("a request is left")
		}
	}
}

// TestFirstUnreadable checks that a proxy tells the user about every connection that it cannot read, and
// that Unreadable returns the reason for the first one.
func TestFirstUnreadable(t *testing.T) {
	var said []string
	p := &Proxy{cfg: Config{Server: "redis", Say: func(text string) { said = append(said, text) }}}
	for n := range uint64(3) {
		(&link{proxy: p, number: n + 1}).noteUnreadable(fmt.Errorf("reason %d", n+1))
	}
	want := []string{"connection 1 to redis: reason 1", "connection 2 to redis: reason 2", "connection 3 to redis: reason 3"}
	if p.Unreadable() != want[0] || !slices.Equal(said, want) {
		t.Errorf("%q, said %q", p.Unreadable(), said)
	}
}

// TestEveryWaitingTapGetsTheError makes the proxy give up reading a connection while the taps of several
// requests wait for replies. Each tap must get ErrGone, but the data must still pass.
func TestEveryWaitingTapGetsTheError(t *testing.T) {
	for taps := range 4 {
		ctx, cancel := context.WithCancelCause(context.Background())
		l := &link{proxy: &Proxy{cfg: Config{Say: func(string) {}}}, ctx: ctx, cancel: cancel}
		var waiting []*tapped
		for n := range taps {
			l.session.push(request{}) // a request without a tap
			w := l.start(func(ctx context.Context, _ Event, send func(context.Context) error) error { return send(ctx) }, Event{N: uint64(n)})
			waiting = append(waiting, w)
			l.session.push(request{tap: w})
		}
		(&carrier{link: l}).giveUp(errRESP)
		for n, w := range waiting {
			select {
			case <-w.ended:
			case <-time.After(10 * time.Second):
				t.Fatalf("tap %d of %d waits for its reply", n+1, taps)
			}
			if !errors.Is(w.err, ErrGone) {
				t.Errorf("tap %d of %d: %v", n+1, taps, w.err)
			}
		}
		cancel(nil)
	}
}

// TestTapOfAnUnreadableConnection holds a request while the proxy gives up reading the replies on its
// connection. The request must still pass, and its tap must get ErrGone instead of waiting.
func TestTapOfAnUnreadableConnection(t *testing.T) {
	p := &Proxy{cfg: Config{Say: func(string) {}}}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	l := &link{proxy: p, ctx: ctx, cancel: cancel}
	ended := make(chan error, 1)
	p.Use(func(ctx context.Context, _ Event, send func(context.Context) error) error {
		(&carrier{link: l}).giveUp(errRESP)
		err := send(ctx)
		ended <- err
		return err
	})
	if !l.send(message{kind: asks}, func() error { return nil }, func() bool { return true }) {
		t.Error("the request does not pass")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the tap waits for a reply")
	}
}

// TestRequestsAreNumbered sends requests with and without a tap on two connections. The event numbers
// must count only the requests with a tap, separately for each connection.
func TestRequestsAreNumbered(t *testing.T) {
	p := &Proxy{cfg: Config{Server: "redis"}}
	var got []string
	seen := Tap(func(ctx context.Context, e Event, send func(context.Context) error) error {
		got = append(got, fmt.Sprint(e.Server, " ", e.Conn, " ", e.N, " ", e.Text))
		return send(ctx)
	})
	var want []string
	for conn := uint64(1); conn <= 2; conn++ {
		ctx, cancel := context.WithCancelCause(context.Background())
		l := &link{proxy: p, number: conn, ctx: ctx, cancel: cancel}
		n := 0
		for i, kind := range []messageKind{asks, asks, tells, asks, asks, tells, asks} {
			p.Use(nil)
			if i != 1 && i != 4 {
				p.Use(seen)
			}
			if kind == asks && i != 1 && i != 4 {
				n++
				want = append(want, fmt.Sprint("redis ", conn, " ", n, " request ", i))
			}
			m := message{kind: kind, text: fmt.Sprint("request ", i)}
			if !l.send(m, func() error { return nil }, func() bool { return true }) {
				t.Fatalf("request %d does not pass", i)
			}
		}
		if waiting := len(l.session.abandon()); waiting != 5 {
			t.Errorf("%d requests wait for a reply, want 5", waiting)
		}
		cancel(nil)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the numbered requests are %q, want %q", got, want)
	}
}

// ending is a connection that records whether it was closed.
type ending struct {
	chunks
	closed bool
}

func (e *ending) Close() error { e.closed = true; return nil }

// TestCut makes the proxy cut a connection at a message. All earlier messages must have passed, and the
// connections to both sides must be closed.
func TestCut(t *testing.T) {
	for _, passes := range []int{0, 1, 2} { // the number of messages before the cut
		from, to := &ending{}, &ending{}
		from.stream, from.cut = []byte(strings.Repeat("PING\r\n", 4)), func(most int) int { return min(most, 9) }
		ctx, cancel := context.WithCancelCause(context.Background())
		l := &link{proxy: &Proxy{cfg: Config{Say: func(string) {}}}, client: from, server: to, ctx: ctx, cancel: cancel}
		up, _ := RESP(&l.session)
		n := 0
		c := &carrier{link: l, scan: up, from: from, to: to, buf: make([]byte, 1024), decide: func(_ message, flush func() error, _ func() bool) bool {
			n++
			return flush() == nil && n <= passes
		}}
		c.run()
		if got := to.got.String(); n != passes+1 || got != strings.Repeat("PING\r\n", passes) || !to.closed || !from.closed || ctx.Err() == nil {
			t.Errorf("after %d messages: %q passed, %d decisions, closed %v and %v", passes, got, n, from.closed, to.closed)
		}
	}
}

// TestMySQLSequence reads replies with up to 599 packets. The proxy must find each reply exactly once,
// even if the sequence numbers of its packets begin again at 0.
func TestMySQLSequence(t *testing.T) {
	for n := 1; n < 600; n++ {
		var s session
		s.mysql.next.Store(1)
		replying := &mysqlReplies{session: &s, greeted: true}
		for range 3 {
			s.push(request{kind: comQuery, alone: true})
			found := 0
			for stream := packetsOf(1, slices.Repeat([]string{"\x01a"}, n)...); len(stream) > 0; {
				read, m, err := replying.scan(stream, false)
				if err != nil || read == 0 {
					t.Fatalf("%d packets: read %d, %v", n, read, err)
				}
				if m.kind == replies {
					found++
				}
				stream = stream[read:]
			}
			if found != 1 {
				t.Fatalf("%d packets: %d replies, want 1", n, found)
			}
		}
	}
}

// TestMySQLLongReplyBeforeAnother reads a reply with up to 599 packets that is directly followed by
// another reply. The proxy must find both replies. The test skips replies whose last sequence number is
// 0, because there the proxy cannot find the second reply.
func TestMySQLLongReplyBeforeAnother(t *testing.T) {
	for n := 1; n < 600; n++ {
		if n%256 == 0 {
			continue
		}
		first := packetsOf(1, slices.Repeat([]string{"\x01a"}, n)...)
		stream := slices.Concat(first, packetsOf(1, "\x01a"))
		_, found := carry(stream, func(most int) int { return most }, func(s *session) (up, down scanner) {
			return &mysqlRequests{session: s}, &mysqlReplies{session: s, greeted: true, last: 2} // after the login
		}, func(s *session) {
			s.push(request{kind: comQuery})
			s.push(request{kind: comQuery})
		}, true)
		if want := []string{fmt.Sprintf("0: <nil> %d", replies), fmt.Sprintf("%d: <nil> %d", len(first), replies)}; !slices.Equal(found, want) {
			t.Fatalf("%d packets: found %q, want %q", n, found, want)
		}
	}
}

// TestMySQLFile sends a file in so many packets that their sequence numbers begin again at 0. The proxy
// must find only the statements before and after the file.
func TestMySQLFile(t *testing.T) {
	login := make([]byte, 40)
	login[1] = clientProtocol41 >> 8
	file := packetsOf(2, slices.Repeat([]string{"\x03SELECT"}, 600)...)
	stream := slices.Concat(packetsOf(1, string(login)), packetsOf(0, "\x03LOAD DATA LOCAL INFILE 'a' INTO TABLE b"), file, packetsOf(0, "\x03UPDATE b SET c = 1"))
	_, found := carry(stream, func(most int) int { return min(most, 99) }, MySQL, func(*session) {}, false)
	if len(found) != 2 || !strings.Contains(found[0], "LOAD DATA") || !strings.Contains(found[1], "UPDATE b") {
		t.Errorf("requests %q", found)
	}
}

// TestMySQLFileReply checks which packet counts as the reply to LOAD DATA LOCAL. It must be the one
// after the file, and not the packet with which the server asks for the file.
func TestMySQLFileReply(t *testing.T) {
	var s session
	replying := &mysqlReplies{session: &s, greeted: true}
	s.push(request{kind: comQuery, alone: true})
	for _, step := range []struct {
		next, seq byte
		payload   string
		want      messageKind
	}{{1, 1, "\xfba.csv", noMessage}, {9, 9, "\x00\x01", replies}} {
		s.mysql.next.Store(uint32(step.next))
		if _, m, err := replying.scan(packetsOf(step.seq, step.payload), false); err != nil || m.kind != step.want {
			t.Errorf("packet %d: kind %d, %v; want %d", step.seq, m.kind, err, step.want)
		}
	}
}

// TestClosedStatements checks that the proxy forgets a prepared statement when the client closes it.
func TestClosedStatements(t *testing.T) {
	s := &session{}
	up, _ := scanMySQL(s)
	s.mysql.statements = map[uint32]string{3: "SELECT a", 4: "SELECT b"}
	for _, payload := range []string{"\x19\x03\x00\x00\x00", "\x19\x05\x00\x00\x00", "\x19\x04"} {
		if m, err := up.(*mysqlRequests).command([]byte(payload)); err != nil || m.kind != tells {
			t.Errorf("%q: kind %d, %v", payload, m.kind, err)
		}
	}
	if want := map[uint32]string{4: "SELECT b"}; !maps.Equal(s.mysql.statements, want) {
		t.Errorf("the proxy remembers the statements %v, want %v", s.mysql.statements, want)
	}
}

// TestLeftChannels checks that a list counts as a reply in RESP2 after the client has left its
// channels. This must be so even if the list looks like a published message. While the client is
// subscribed, such a list is no reply to a PING.
func TestLeftChannels(t *testing.T) {
	s := &session{}
	replying := &respReplies{session: s}
	read := func(data string) (got []messageKind) {
		for len(data) > 0 {
			n, m, err := replying.scan([]byte(data), false)
			if err != nil || n == 0 {
				t.Fatalf("%q: read %d, %v", data, n, err)
			}
			got, data = append(got, m.kind), data[n:]
		}
		return got
	}
	const message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"
	for _, step := range []struct {
		command, data string
		want          messageKind
	}{
		{"SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", replies},
		{"", message, noMessage},
		{"PING", message, noMessage},
		{"", "*2\r\n$4\r\npong\r\n$0\r\n\r\n", replies},
		{"UNSUBSCRIBE a", message, noMessage},
		{"", "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n", replies},
		{"LRANGE mail 0 -1", message, replies},
		{"PING", "+PONG\r\n", replies},
		{"SUBSCRIBE a b", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", noMessage},
		{"", "*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n", replies},
		{"UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n", replies},
		{"LRANGE mail 0 -1", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n", noMessage}, // the client did not wait for it
		{"", message, replies},
	} {
		if words := strings.Fields(step.command); len(words) > 0 {
			args := make([][]byte, len(words))
			for i, w := range words {
				args[i] = []byte(w)
			}
			m, err := command(args, len(args)-1)
			if err != nil {
				t.Fatal(err)
			}
			s.push(m.request)
		}
		if got := read(step.data); len(got) != 1 || got[0] != step.want {
			t.Errorf("%s: %q has the kinds %v, want %d", step.command, step.data, got, step.want)
		}
	}
}

// TestKindsOfCommands checks how many replies each command gets, and which commands are possible in RESP2 while the client
// is subscribed. Any other command means that the client has left its channels.
func TestKindsOfCommands(t *testing.T) {
	kinds := map[byte]string{
		subscribing: "SUBSCRIBE PSUBSCRIBE SSUBSCRIBE", unsubscribing: "UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE", keepsChannels: "PING QUIT RESET",
		plainCommand: "GET SET HELLO PUBLISH PUBSUB CLIENT",
	}
	for kind, verbs := range kinds {
		for verb := range strings.FieldsSeq(verbs) {
			for _, name := range []string{verb, strings.ToLower(verb)} {
				for channels := range 3 {
					args := [][]byte{[]byte(name), []byte("a"), []byte("b")}[:1+channels]
					left := channels
					if kind == plainCommand || kind == keepsChannels {
						left = 0
					}
					if m, err := command(args, channels); err != nil || m.request.kind != kind || m.request.left != left {
						t.Errorf("%s with %d arguments: kind %d, %d confirmations, %v; want kind %d, %d confirmations", name, channels, m.request.kind, m.request.left, err, kind, left)
					}
				}
			}
		}
	}
	for _, line := range []string{"SYNC", "psync", "Monitor", "CLIENT REPLY OFF", "client reply skip"} {
		var args [][]byte
		for word := range strings.FieldsSeq(line) {
			args = append(args, []byte(word))
		}
		if _, err := command(args, len(args)-1); err == nil {
			t.Errorf("%s is accepted, although its replies cannot be matched to requests", line)
		}
	}
}

// TestPostgresFastPath checks that a function call by number is a request with one reply.
func TestPostgresFastPath(t *testing.T) {
	s := &session{}
	up, down := scanPostgres(s)
	up.(*postgresRequests).loggedIn, down.(*postgresReplies).ready = true, true
	call := []byte("F\x00\x00\x00\x0e\x00\x00\x03\xbb\x00\x00\x00\x00\x00\x01")
	n, m, err := up.scan(call, false)
	if err != nil || n != len(call) || m.kind != asks || m.text != "CALL FUNCTION" {
		t.Fatalf("read %d, %+v, %v", n, m, err)
	}
	s.push(m.request)
	for reply, want := range map[string]messageKind{"V\x00\x00\x00\x08\xff\xff\xff\xff": replies} {
		if _, m, err := down.scan([]byte(reply), false); err != nil || m.kind != want {
			t.Errorf("scan(%q): %+v, %v", reply, m, err)
		}
		if _, m, err := down.scan([]byte("Z\x00\x00\x00\x05I"), false); err != nil || m.kind != noMessage {
			t.Errorf("ready: %+v, %v", m, err)
		}
	}
}

// TestEveryMySQLCommand checks every command of the MySQL protocol. According to the protocol's
// specification, exactly three commands get no reply. The proxy must reject commands that it does not
// know, because it could not match replies to requests any more.
func TestEveryMySQLCommand(t *testing.T) {
	withoutReply := []byte{0x01, 0x18, 0x19} // quit, send long data, close statement
	withReply := []byte{
		0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x0e, // use database to ping; 0x0b is internal to the server
		0x11, 0x16, 0x17, 0xfa, // change user, prepare, execute, and execute for many rows
		0x1a, 0x1b, 0x1c, 0x1f, // reset statement, set option, fetch, and reset connection
	}
	for n := range 256 {
		up, _ := scanMySQL(&session{})
		m, err := up.(*mysqlRequests).command(append([]byte{byte(n)}, "SELECT 1"...))
		want := noMessage
		switch {
		case slices.Contains(withoutReply, byte(n)):
			want = tells
		case slices.Contains(withReply, byte(n)):
			want = asks
		}
		if (err == nil) != (want != noMessage) || err == nil && m.kind != want {
			t.Errorf("command %#x: kind %d, want %d: %v", n, m.kind, want, err)
		}
	}
}

// TestCommandText names commands of every kind. A name contains the verb, the first key or subcommand, and the options
// of SET. It contains no values, no secrets, and no arguments of other commands that look like options of SET.
func TestCommandText(t *testing.T) {
	const hash = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
	for line, want := range map[string]string{
		"": "?", "get k": "GET k", "DEL a b": "DEL a", "LPOP": "LPOP",
		"SET k v": "SET k", "SET k v nx px 100": "SET k NX PX", "SET k v EX 1 XX GET": "SET k EX XX GET", "SET k v PXAT 1 KEEPTTL": "SET k PXAT KEEPTTL",
		"SET k nx": "SET k NX", "SET k EXAT EXAT 1": "SET k EXAT EXAT",
		"GETEX k EX 5": "GETEX k", "EXPIRE k 5 NX": "EXPIRE k", "ZADD k GET 1 nx": "ZADD k", "HSET k EX 1": "HSET k",
		"EVAL return1 1 k v": "EVAL " + scriptName("EVAL", []byte("return1")) + " k", "EVAL return1 0 v w": "EVAL " + scriptName("EVAL", []byte("return1")),
		"EVAL return1 0": "EVAL " + scriptName("EVAL", []byte("return1")), "EVAL return1": "EVAL " + scriptName("EVAL", []byte("return1")),
		"evalsha " + strings.ToUpper(hash) + " 2 k j": "EVALSHA e0e1f9f k", "EVALSHA_RO " + hash + " 0 v": "EVALSHA_RO e0e1f9f",
		"FCALL release 1 k token": "FCALL release k", "FCALL_RO Held 0 token": "FCALL_RO Held", "FCALL release": "FCALL release",
		"AUTH secret": "AUTH", "HELLO 3 AUTH u secret": "HELLO", "ECHO text": "ECHO", "PING text": "PING", "EXEC": "EXEC", "MULTI": "MULTI",
		"client reply off": "CLIENT REPLY", "CONFIG GET k": "CONFIG GET", "script load x": "SCRIPT LOAD", "COMMAND docs": "COMMAND DOCS", "CLUSTER slots": "CLUSTER SLOTS",
		"SENTINEL masters": "SENTINEL MASTERS", "FUNCTION load x": "FUNCTION LOAD", "ACL setuser u": "ACL SETUSER", "CLIENT": "CLIENT",
	} {
		var args [][]byte
		for word := range strings.FieldsSeq(line) {
			args = append(args, []byte(word))
		}
		if got := commandText(args); got != want {
			t.Errorf("commandText(%s) = %q, want %q", line, got, want)
		}
	}
	digits := scriptName("EVAL", []byte("return 1"))
	if digits != hash[:7] || scriptName("EVAL_RO", []byte("return 1")) != digits || scriptName("EVALSHA", []byte(hash)) != digits || scriptName("EVALSHA", []byte("e0e")) != "e0e" {
		t.Errorf("the script has the name %s, which does not begin its hash %s in every command", digits, hash)
	}
}

// TestKindOfPushMessages reads the kind of messages of which only a part has arrived, for every length of this
// part. The kind must be unknown until enough data has arrived, and must not change when more arrives.
func TestKindOfPushMessages(t *testing.T) {
	for message, want := range map[string]string{
		"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n":         "subscribe",
		">3\r\n$12\r\nPUNSUBSCRIBE\r\n$1\r\na\r\n:1\r\n":     "punsubscribe",
		"*3\n$7\nMessage\n$1\na\n$1\nb\n":                    "message",
		"*12\r\n$10\r\ninvalidate\r\n$1\r\na\r\n$1\r\nb\r\n": "invalidate",
		"*1\r\n$13\r\nnotpsubscribe\r\n":                     "", "*1\r\n$-1\r\n": "", "*1\r\n:77\r\n": "", "*0\r\n:1\r\n": "", "*-1\r\n:1\r\n": "", "*x\r\n$1\r\na": "",
	} {
		complete := false
		for n := range len(message) + 1 {
			kind, known := kindOf([]byte(message[:n]))
			if known && kind != want || !known && kind != "" || complete && !known {
				t.Errorf("%q, cut to %q: kind %q, known %v; want %q", message, message[:n], kind, known, want)
			}
			complete = complete || known
		}
		if !complete {
			t.Errorf("%q: the kind is unknown", message)
		}
		if at := strings.Index(strings.ToLower(message), want) + len(want); want != "" {
			if _, known := kindOf([]byte(message[:at-1])); known {
				t.Errorf("%q: the kind is known before its last byte has arrived", message)
			}
		}
	}
}

// TestNamesOfTransactions checks which statements begin or end a transaction. Each form of such a statement must be
// recognised by its name, and no other statement.
func TestNamesOfTransactions(t *testing.T) {
	begins := strings.Split("BEGIN|begin work|START TRANSACTION|start transaction read only|SET autocommit=0|set session autocommit = OFF|XA START 'x'", "|")
	ends := strings.Split("COMMIT|commit and chain|END|ROLLBACK|ABORT|XA COMMIT 'x'|XA ROLLBACK 'x'|ROLLBACK PREPARED 'x'|COMMIT PREPARED 'x'", "|")
	others := strings.Split("SET autocommit=1|ROLLBACK TO a|SAVEPOINT a|RELEASE SAVEPOINT a|START SLAVE|PREPARE TRANSACTION 'x'|SELECT 1|UPDATE orders SET a = 1||BEGIN; SELECT 1", "|")
	for _, sql := range slices.Concat(begins, ends, others) {
		name := statementText([]byte(sql))
		if Begins(name) != slices.Contains(begins, sql) || Ends(name) != slices.Contains(ends, sql) {
			t.Errorf("%q has the name %q: begins a transaction %v, ends one %v", sql, name, Begins(name), Ends(name))
		}
	}
}
