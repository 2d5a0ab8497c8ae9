package sim

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"

	"grablab/internal/explore/search"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// redisServer is a Redis without a socket.
type redisServer struct {
	*node
	redis  *miniredis.Miniredis
	server *server.Server
	lua    *luaHost // runs the scripts, and knows those that were sent

	messages messages

	mu          sync.Mutex // held during one command
	subscribers []*conn
	touched     map[*server.Peer]bool // for each peer with a WATCH, whether another may have written since
	dirty       bool                  // data is not what the node holds
	seen        string                // what it held after the last call, where that is followed
	data        string
}

func newRedisServer(name string) (*redisServer, error) {
	m := miniredis.NewMiniRedis()
	pipe, err := m.Dial() // makes it a server without a listener
	if err != nil {
		return nil, err
	}
	pipe.Close()
	m.ClockTTL(true)
	r := &redisServer{redis: m, server: m.Server(), touched: map[*server.Peer]bool{}, lua: newLuaHost(m.Server())}
	r.node = &node{name: name, lockServer: r}
	return r, nil
}

func (n *redisServer) close() {
	n.lua.state.Close()
	n.redis.Close()
}

// reset keeps the scripts that it knows.
func (n *redisServer) reset() {
	n.redis.FlushAll()
	n.redis.SetTime(epoch)
	n.dirty, n.subscribers, n.seen = true, nil, ""
	n.messages.reset()
	clear(n.touched)
}

// dispatch runs one command as of now. Within a MULTI, it is only queued.
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
		n.server.Dispatch(p, args)
	}
	p.Flush()
}

// hasScript says whether the node knows a script by its SHA-1.
func (n *redisServer) hasScript(sha string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.lua.bodies[sha]
	return ok
}

// noteWatchLocked keeps track of what an EXEC will depend on, which the data do
// not show: a write may leave them as they were.
func (n *redisServer) noteWatchLocked(p *server.Peer, command string) {
	switch command {
	case "WATCH":
		n.touched[p] = false
	case "EXEC", "DISCARD", "UNWATCH":
		delete(n.touched, p)
	}
	if len(n.touched) == 0 || n.server.IsReadOnlyCommand(command) {
		return
	}
	for other := range n.touched {
		n.touched[other] = n.touched[other] || other != p
	}
}

// state adds what EXECs depend on, and how many listen.
func (n *redisServer) state(f search.Fingerprint) search.Fingerprint {
	watched, touched := n.watches()
	return f.Number(int64(watched)).Number(int64(touched)).Number(int64(n.subscriberCount())).Number(int64(n.messages.late()))
}

// watches counts the peers with a WATCH, and those of them whose EXEC may fail.
func (n *redisServer) watches() (watched, touched int) {
	for _, t := range n.touched {
		if watched++; t {
			touched++
		}
	}
	return watched, touched
}

// timePassed has the contents read anew: some may have expired.
func (n *redisServer) timePassed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirty = true
}

// restart loses the data and the subscriptions. Connections and scripts stay:
// clients would make them anew at once.
func (n *redisServer) restart() {
	n.redis.FlushAll()
	n.dirty = true
	n.disconnect()
}

// evict drops all keys.
func (n *redisServer) evict() {
	n.redis.FlushAll()
	n.dirty = true
}

// disconnect closes the connections with subscriptions.
func (n *redisServer) disconnect() {
	n.mu.Lock()
	subscribers := n.subscribers
	n.subscribers = nil
	n.mu.Unlock()
	for _, c := range subscribers {
		c.Close()
	}
}

// contents is what the node holds, a line for each key.
func (n *redisServer) contents() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dirty {
		n.redis.SetTime(n.now())
		n.data = string(appendContents(nil, n.redis, n.now()))
		n.dirty = false
	}
	return n.data
}

// heard says whether what is done to a server may reach clients other than by replies:
// a Redis has subscribers; of others it is taken for granted.
func (n *node) heard() bool {
	r, ok := n.lockServer.(*redisServer)
	return !ok || r.subscriberCount() > 0
}

// subscriberCount locks, because a subscriber may leave by a timer of its own.
func (n *redisServer) subscriberCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.subscribers)
}

// arrive applies a call that its caller has given up.
func (n *redisServer) arrive(c *call) {
	peer := server.NewPeer(bufio.NewWriter(io.Discard))
	for _, args := range c.sent {
		words := make([]string, len(args))
		for i, a := range args {
			words[i] = fmt.Sprint(a)
		}
		n.dispatch(peer, words, false)
	}
}
