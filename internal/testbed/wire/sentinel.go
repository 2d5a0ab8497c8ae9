package wire

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// SentinelMaster is the name of the only master that the Sentinels know. It is also the name in the
// sentinel.conf that comes with Redis.
const SentinelMaster = "mymaster"

// sentinelCount is the number of Sentinels. One is not enough, because some clients reject a
// Sentinel that knows no others.
const sentinelCount = 3

// Sentinels imitates Redis Sentinels that always report a Proxy as the master, for a user's service that
// finds Redis through Sentinels. Package fleet starts them together with the proxies of the service.
// They list no replicas, because clients could use replicas to bypass the proxy.
type Sentinels struct {
	host, port string // address of the master
	say        func(text string)
	servers    []*miniredis.Miniredis // the Sentinels, which run in this process
	misnamed   sync.Once
}

// ListenSentinels starts Sentinels that report this master. The caller must close the Sentinels.
func ListenSentinels(master string, say func(text string)) (s *Sentinels, err error) {
	s = &Sentinels{say: say}
	if s.host, s.port, err = net.SplitHostPort(master); err != nil {
		return nil, fmt.Errorf("wire: Sentinels: %w", err)
	}
	for range sentinelCount {
		srv, err := miniredis.Run()
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("wire: Sentinels: %w", err)
		}
		s.servers = append(s.servers, srv)
	}
	for n, srv := range s.servers {
		srv.Server().SetPreHook(func(c *server.Peer, command string, args ...string) bool {
			return sentinelConn{Sentinels: s, Peer: c, number: n}.answer(command, args)
		})
	}
	return s, nil
}

// Addr returns the first Sentinel's address. That Sentinel tells clients about the others.
func (s *Sentinels) Addr() string { return s.servers[0].Addr() }

// Close stops the Sentinels and closes their connections.
func (s *Sentinels) Close() {
	for _, srv := range s.servers {
		srv.Close()
	}
}

type sentinelConn struct {
	*Sentinels
	*server.Peer
	number int
}

// answer replies to a command. If it returns false, miniredis answers the command instead.
func (c sentinelConn) answer(command string, args []string) bool {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch command {
	case "PING", "COMMAND", "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "QUIT":
		return false
	case "HELLO":
		c.hello(arg(0))
	case "AUTH": // every password is valid
		c.WriteOK()
	case "CLIENT":
		if sub := strings.ToUpper(arg(0)); sub != "SETNAME" && sub != "SETINFO" {
			c.unknown(arg(0))
			break
		}
		c.WriteOK()
	case "INFO":
		c.WriteBulk(fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:sentinel\r\n\r\n# Sentinel\r\nsentinel_masters:1\r\n"+
			"master0:name=%s,status=ok,address=%s,slaves=0,sentinels=%d\r\n",
			sentinelVersion, SentinelMaster, net.JoinHostPort(c.host, c.port), sentinelCount))
	case "ROLE":
		c.WriteLen(2)
		c.WriteBulk("sentinel")
		c.WriteStrings([]string{SentinelMaster})
	case "SENTINEL":
		c.sentinel(strings.ToUpper(arg(0)), arg(1))
	default:
		c.unknown(command)
	}
	return true
}

const sentinelVersion = "7.0.0"

func (c sentinelConn) hello(version string) {
	if version != "" && version != "2" && version != "3" {
		c.WriteError("NOPROTO unsupported protocol version")
		return
	}
	if version != "" {
		c.Resp3 = version == "3"
	}
	proto := 2
	if c.Resp3 {
		proto = 3
	}
	c.WriteMapLen(6)
	for _, text := range []string{"server", "redis", "version", sentinelVersion, "mode", "sentinel", "proto"} {
		c.WriteBulk(text)
	}
	c.WriteInt(proto)
	c.WriteBulk("id")
	c.WriteInt(c.number + 1)
	c.WriteBulk("modules")
	c.WriteLen(0)
}

func (c sentinelConn) sentinel(sub, name string) {
	switch sub {
	case "MYID":
		c.WriteBulk(sentinelID(c.number))
		return
	case "MASTERS":
		c.WriteLen(1)
		c.master()
		return
	case "GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS", "REPLICAS", "SLAVES", "CKQUORUM":
	default:
		c.unknown(sub)
		return
	}
	if name != SentinelMaster {
		c.misnamed.Do(func() {
			c.say(fmt.Sprintf("a client asks a Sentinel for the master %q, but the only master is %s: use this name in the client", short([]byte(name)), SentinelMaster))
		})
		if sub == "GET-MASTER-ADDR-BY-NAME" {
			c.WriteLen(-1)
			return
		}
		c.WriteError("ERR No such master with that name")
		return
	}
	switch sub {
	case "GET-MASTER-ADDR-BY-NAME":
		c.WriteStrings([]string{c.host, c.port})
	case "MASTER":
		c.master()
	case "SENTINELS":
		c.WriteLen(len(c.servers) - 1)
		for n, srv := range c.servers {
			if n != c.number {
				id := sentinelID(n)
				c.fields("name", id, "ip", srv.Host(), "port", srv.Port(), "runid", id, "flags", "sentinel")
			}
		}
	case "REPLICAS", "SLAVES":
		c.WriteLen(0)
	case "CKQUORUM":
		c.WriteInline(fmt.Sprintf("OK %d usable Sentinels. Quorum and failover authorization can be reached", sentinelCount))
	}
}

// sentinelID returns an ID for a Sentinel, in the format of a Redis run ID.
func sentinelID(number int) string { return fmt.Sprintf("%040x", number+1) }

func (c sentinelConn) master() {
	c.fields("name", SentinelMaster, "ip", c.host, "port", c.port, "runid", "", "flags", "master",
		"link-pending-commands", "0", "link-refcount", "1", "last-ping-sent", "0", "last-ok-ping-reply", "0", "last-ping-reply", "0",
		"down-after-milliseconds", "30000", "info-refresh", "0", "role-reported", "master", "role-reported-time", "0", "config-epoch", "0",
		"num-slaves", "0", "num-other-sentinels", strconv.Itoa(sentinelCount-1), "quorum", "2", "failover-timeout", "180000", "parallel-syncs", "1")
}

func (c sentinelConn) unknown(name string) {
	c.WriteError(fmt.Sprintf("ERR unknown command '%s'", short([]byte(name))))
}

// fields writes a map as a reply. Its arguments alternate between names and values.
func (c sentinelConn) fields(pairs ...string) {
	c.WriteMapLen(len(pairs) / 2)
	for _, text := range pairs {
		c.WriteBulk(text)
	}
}
