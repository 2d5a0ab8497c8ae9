package sim

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// redisServer simulates a Redis server by running miniredis without a socket.
type redisServer struct {
	*node
	redis *miniredis.Miniredis
	lua   *luaHost // runs scripts, and stores the scripts that the server has received

	messages messages
	counters []counter // the counters that locks leave on the server

	mu          sync.Mutex // held during one command
	subscribers []*conn
	touched     map[*server.Peer]bool // whether another connection may have written since the WATCH, by connection
	dirty       bool                  // whether the cached contents are out of date
	seen        string                // the contents after the last call, for noteOverwrittenLocked
	data        string                // the cached contents
}

func newRedisServer(name string) (*redisServer, error) {
	m := miniredis.NewMiniRedis()
	pipe, err := m.Dial() // Dial creates the server inside m without a listener
	if err != nil {
		return nil, err
	}
	pipe.Close()
	m.ClockTTL(true)
	r := &redisServer{redis: m, touched: map[*server.Peer]bool{}, lua: newLuaHost(m.Server())}
	r.node = &node{name: name, lockServer: r}
	return r, nil
}

// reset removes all data and subscribers, but keeps the counters and scripts.
func (n *redisServer) reset() {
	n.redis.FlushAll()
	n.redis.SetTime(epoch)
	n.beginCounters()
	n.dirty, n.subscribers, n.seen = true, nil, ""
	n.messages = messages{}
	clear(n.touched)
}

// dispatch runs one command at the current simulated time.
func (n *redisServer) dispatch(p *server.Peer, args []string, multi bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.redis.SetTime(n.now())
	n.dirty = true
	command := strings.ToUpper(args[0])
	n.noteWatchLocked(p, command)
	if command == "EVAL" && len(args) > 1 {
		n.lua.learn(args[1])
	}
	if multi || !n.lua.eval(p, command, args) {
		n.redis.Server().Dispatch(p, args)
	}
	p.Flush()
}

// noteWatchLocked tracks clients that have sent WATCH, because another client's write makes their
// next EXEC fail.
func (n *redisServer) noteWatchLocked(p *server.Peer, command string) {
	switch command {
	case "WATCH":
		n.touched[p] = false
	case "EXEC", "DISCARD", "UNWATCH":
		delete(n.touched, p)
	}
	if len(n.touched) == 0 || n.redis.Server().IsReadOnlyCommand(command) {
		return
	}
	for other := range n.touched {
		n.touched[other] = n.touched[other] || other != p
	}
}

func (n *redisServer) state(f search.Fingerprint) search.Fingerprint {
	touched := 0 // the number of clients whose EXEC will fail
	for _, t := range n.touched {
		if t {
			touched++
		}
	}
	return f.Number(int64(len(n.touched))).Number(int64(touched)).Number(int64(n.subscriberCount())).Number(int64(len(n.messages.held)))
}

// timePassed discards the cached contents, because keys may have expired.
func (n *redisServer) timePassed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirty = true
}

// disconnect closes connections with subscriptions.
func (n *redisServer) disconnect() {
	n.mu.Lock()
	subscribers := n.subscribers
	n.subscribers = nil
	n.mu.Unlock()
	for _, c := range subscribers {
		c.Close()
	}
}

// contents returns one line for each key. It caches the lines until the next command.
func (n *redisServer) contents() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dirty {
		n.redis.SetTime(n.now())
		n.data = contentsOf(n.redis, n.now())
		n.dirty = false
	}
	return n.data
}

// subscriberCount returns the number of subscribers. It locks mu, because a timer may remove a
// subscriber at the same time.
func (n *redisServer) subscriberCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.subscribers)
}

// listeners counts the channels named after the key. It ignores others, because they belong to a
// whole process.
func (n *redisServer) listeners(key string) int {
	return len(catalog.Filter(n.redis.PubSubChannels(""), func(name string) bool { return strings.Contains(name, key) }))
}

func (n *redisServer) arrive(c *call) {
	peer := server.NewPeer(bufio.NewWriter(io.Discard))
	for _, args := range c.sent {
		n.dispatch(peer, catalog.Map(args, func(a any) string { return fmt.Sprint(a) }), false)
	}
}
