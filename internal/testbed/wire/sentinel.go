package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
)

// SentinelMaster is the name of the only master that the Sentinels know. Redis's own sentinel.conf
// has this name, so most services use it too.
const SentinelMaster = "mymaster"

// sentinelCount is the number of Sentinels. There are several, because some clients reject a
// Sentinel that knows no other.
const sentinelCount = 3

// Sentinels imitate Redis Sentinels. They always name the same master address, which belongs to a
// Proxy. They list no replicas, because a client could bypass the proxy through a replica. They
// publish no events, because the address never changes.
type Sentinels struct {
	host, port string // address of the master
	say        func(text string)
	proxies    []*Proxy // one proxy for each Sentinel in this process
	serving    sync.WaitGroup
	misnamed   sync.Once
}

// ListenSentinels starts Sentinels that name the given master address. They run until Close.
func ListenSentinels(master string, say func(text string)) (s *Sentinels, err error) {
	s = &Sentinels{say: say}
	if s.host, s.port, err = net.SplitHostPort(master); err != nil {
		return nil, fmt.Errorf("wire: Sentinels: %w", err)
	}
	for n := range sentinelCount {
		p, err := Listen(Config{
			Server: fmt.Sprintf("sentinel-%d", n+1), Protocol: RESP, Say: say,
			Dial: func(context.Context) (net.Conn, error) {
				client, server := net.Pipe()
				s.serving.Go(func() { s.serve(n, server) })
				return client, nil
			},
		})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.proxies = append(s.proxies, p)
	}
	return s, nil
}

// Addr returns the address of the first Sentinel, from which clients learn the others.
func (s *Sentinels) Addr() string { return s.proxies[0].Addr() }

// Close stops the Sentinels and closes their connections.
func (s *Sentinels) Close() error {
	var errs []error
	for _, p := range s.proxies {
		errs = append(errs, p.Close())
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

// longestAsked is the size of the largest request that a Sentinel reads, in bytes.
const longestAsked = 16 << 10

// serve answers requests on one connection. The number says which Sentinel the client has connected
// to.
func (s *Sentinels) serve(number int, conn net.Conn) {
	defer conn.Close()
	c := &sentinelConn{Sentinels: s, number: number, channels: map[string]bool{}}
	requests := &respRequests{session: new(session)}
	buf := make([]byte, longestAsked)
	for r, w := 0, 0; !c.over; {
		n, err := conn.Read(buf[w:])
		if err != nil {
			return
		}
		for w += n; r < w && !c.over; {
			n, m, err := requests.scan(buf[r:w], r == 0 && w == len(buf))
			switch {
			case err != nil || requests.left > 0 || requests.skip > 0: // the start of the next command is unknown
				c.fail("ERR Protocol error")
				c.over = true
			case m.kind == asks:
				c.answer(allArgs(m.raw))
			}
			if n == 0 {
				break
			}
			r += n
		}
		w = copy(buf, buf[r:w])
		r = 0
		if len(c.out) == 0 {
			continue
		}
		if _, err := conn.Write(c.out); err != nil {
			return
		}
		c.out = c.out[:0]
	}
}

// allArgs returns the arguments of a complete command.
func allArgs(raw []byte) (args []string) {
	split := bytes.Fields(raw)
	if raw[0] == '*' {
		split = argsIn(raw, math.MaxInt)
	}
	for _, a := range split {
		args = append(args, string(a))
	}
	return args
}

// sentinelConn is the connection of a client to one of the Sentinels.
type sentinelConn struct {
	*Sentinels
	respWriter
	number   int
	channels map[string]bool // subscribed channels and patterns, each preceded by its command
	over     bool
}

func (c *sentinelConn) answer(args []string) {
	name, args := strings.ToUpper(args[0]), args[1:]
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch name {
	case "PING":
		switch {
		case len(c.channels) > 0 && !c.resp3:
			c.texts("pong", arg(0))
		case len(args) > 0:
			c.text(args[0])
		default:
			c.status("PONG")
		}
	case "HELLO":
		c.hello(arg(0))
	case "AUTH": // every password is valid
		c.status("OK")
	case "CLIENT":
		if sub := strings.ToUpper(arg(0)); sub != "SETNAME" && sub != "SETINFO" {
			c.unknown("subcommand", arg(0))
			return
		}
		c.status("OK")
	case "COMMAND":
		c.begin('*', 0)
	case "INFO":
		c.text(fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:sentinel\r\n\r\n# Sentinel\r\nsentinel_masters:1\r\n"+
			"master0:name=%s,status=ok,address=%s,slaves=0,sentinels=%d\r\n",
			sentinelVersion, SentinelMaster, net.JoinHostPort(c.host, c.port), sentinelCount))
	case "ROLE":
		c.begin('*', 2)
		c.text("sentinel")
		c.texts(SentinelMaster)
	case "SENTINEL":
		c.sentinel(strings.ToUpper(arg(0)), arg(1))
	case "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE":
		c.listen(name, args)
	case "QUIT":
		c.status("OK")
		c.over = true
	default:
		c.unknown("command", name)
	}
}

// sentinelVersion is the Redis version that the Sentinels report.
const sentinelVersion = "7.0.0"

func (c *sentinelConn) hello(version string) {
	switch version {
	case "2", "3":
		c.resp3 = version == "3"
	case "":
	default:
		c.fail("NOPROTO unsupported protocol version")
		return
	}
	proto := 2
	if c.resp3 {
		proto = 3
	}
	c.begin('%', 6)
	c.text("server")
	c.text("redis")
	c.text("version")
	c.text(sentinelVersion)
	c.text("proto")
	c.integer(proto)
	c.text("id")
	c.integer(c.number + 1)
	c.text("mode")
	c.text("sentinel")
	c.text("modules")
	c.begin('*', 0)
}

func (c *sentinelConn) sentinel(sub, name string) {
	switch sub {
	case "MYID":
		c.text(sentinelID(c.number))
		return
	case "MASTERS":
		c.begin('*', 1)
		c.master()
		return
	case "GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS", "REPLICAS", "SLAVES", "CKQUORUM":
	default:
		c.unknown("subcommand", sub)
		return
	}
	if name != SentinelMaster {
		c.misnamed.Do(func() {
			c.say(fmt.Sprintf("a client asks a Sentinel for the master %q; the one there is is called %s", short([]byte(name)), SentinelMaster))
		})
		if sub == "GET-MASTER-ADDR-BY-NAME" {
			c.null('*')
			return
		}
		c.fail("ERR No such master with that name")
		return
	}
	switch sub {
	case "GET-MASTER-ADDR-BY-NAME":
		c.texts(c.host, c.port)
	case "MASTER":
		c.master()
	case "SENTINELS":
		c.begin('*', len(c.proxies)-1)
		for n, p := range c.proxies {
			if n != c.number {
				host, port, _ := net.SplitHostPort(p.Addr())
				id := sentinelID(n)
				c.fields("name", id, "ip", host, "port", port, "runid", id, "flags", "sentinel")
			}
		}
	case "REPLICAS", "SLAVES":
		c.begin('*', 0)
	case "CKQUORUM":
		c.status(fmt.Sprintf("OK %d usable Sentinels. Quorum and failover authorization can be reached", sentinelCount))
	}
}

// sentinelID returns the id of a Sentinel, which has the length of a Redis run id.
func sentinelID(number int) string { return fmt.Sprintf("%040x", number+1) }

func (c *sentinelConn) master() {
	c.fields("name", SentinelMaster, "ip", c.host, "port", c.port, "runid", "", "flags", "master",
		"link-pending-commands", "0", "link-refcount", "1", "last-ping-sent", "0", "last-ok-ping-reply", "0", "last-ping-reply", "0",
		"down-after-milliseconds", "30000", "info-refresh", "0", "role-reported", "master", "role-reported-time", "0", "config-epoch", "0",
		"num-slaves", "0", "num-other-sentinels", strconv.Itoa(sentinelCount-1), "quorum", "2", "failover-timeout", "180000", "parallel-syncs", "1")
}

// listen handles the commands that subscribe and unsubscribe. It confirms each channel and reports
// the number of subscriptions that remain.
func (c *sentinelConn) listen(command string, names []string) {
	kind := strings.Replace(command, "UNSUB", "SUB", 1)
	if command != kind && len(names) == 0 {
		for key := range c.channels {
			if name, ok := strings.CutPrefix(key, kind+" "); ok {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			c.begin('>', 3)
			c.text(strings.ToLower(command))
			c.null('$')
			c.integer(len(c.channels))
			return
		}
	}
	if len(names) == 0 {
		c.fail(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(command)))
	}
	for _, name := range names {
		if command == kind {
			c.channels[kind+" "+name] = true
		} else {
			delete(c.channels, kind+" "+name)
		}
		c.begin('>', 3)
		c.text(strings.ToLower(command))
		c.text(name)
		c.integer(len(c.channels))
	}
}

func (c *sentinelConn) unknown(what, name string) {
	c.fail(fmt.Sprintf("ERR unknown %s '%s'", what, short([]byte(name))))
}

// respWriter appends replies to out. It writes RESP3 if resp3 is set, and RESP2 otherwise.
type respWriter struct {
	out   []byte
	resp3 bool
}

// begin writes the header of an array (*), a map (%) or a push message (>) with n elements.
func (w *respWriter) begin(kind byte, n int) {
	if !w.resp3 {
		if kind == '%' {
			n *= 2
		}
		kind = '*'
	}
	w.out = fmt.Appendf(w.out, "%c%d\r\n", kind, n)
}

func (w *respWriter) text(s string)     { w.out = fmt.Appendf(w.out, "$%d\r\n%s\r\n", len(s), s) }
func (w *respWriter) status(s string)   { w.out = fmt.Appendf(w.out, "+%s\r\n", s) }
func (w *respWriter) fail(s string)     { w.out = fmt.Appendf(w.out, "-%s\r\n", s) }
func (w *respWriter) integer(n int)     { w.out = fmt.Appendf(w.out, ":%d\r\n", n) }
func (w *respWriter) texts(s ...string) { w.begin('*', len(s)); w.all(s) }

// fields writes a map. The arguments alternate between names and values.
func (w *respWriter) fields(s ...string) { w.begin('%', len(s)/2); w.all(s) }

func (w *respWriter) all(s []string) {
	for _, t := range s {
		w.text(t)
	}
}

// null writes a null text ($) or a null array (*).
func (w *respWriter) null(kind byte) {
	if w.resp3 {
		w.out = append(w.out, "_\r\n"...)
		return
	}
	w.out = fmt.Appendf(w.out, "%c-1\r\n", kind)
}
