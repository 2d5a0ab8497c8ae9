package sim

import (
	"strings"
	"sync"
	"time"

	"grablab/internal/explore/search"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// epoch is when a bubble of testing/synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a Redis server without a socket. It lives outside of the bubbles and
// is emptied for each schedule.
type node struct {
	name   string
	redis  *miniredis.Miniredis
	server *server.Server
	lua    *luaHost // runs the scripts, and knows those that were sent

	ahead   time.Duration      // of its clock
	down    bool               // it cannot be reached
	past    search.Fingerprint // all that has happened to it
	replies search.Fingerprint // all that it has replied

	mu          sync.Mutex // held during one command
	subscribers []*conn
	touched     map[*server.Peer]bool // for each peer with a WATCH, whether another may have written since
	dirty       bool                  // data is not what the node holds
	data        string
}

func newNode(name string) (*node, error) {
	m := miniredis.NewMiniRedis()
	pipe, err := m.Dial() // makes it a server without a listener
	if err != nil {
		return nil, err
	}
	pipe.Close()
	m.ClockTTL(true)
	return &node{name: name, redis: m, server: m.Server(), touched: map[*server.Peer]bool{}, lua: newLuaHost(m.Server())}, nil
}

func (n *node) close() {
	n.lua.state.Close()
	n.redis.Close()
}

// reset makes the node as new, but for the scripts that it knows.
func (n *node) reset() {
	n.redis.FlushAll()
	n.redis.SetTime(epoch)
	n.ahead, n.down, n.dirty, n.past, n.replies = 0, false, true, search.EmptyFingerprint, 0
	n.subscribers = nil
	clear(n.touched)
}

// now is the node's clock.
func (n *node) now() time.Time { return time.Now().Add(n.ahead) }

// dispatch runs one command as of now. Within a MULTI, it is only queued.
func (n *node) dispatch(p *server.Peer, args []string, multi bool) {
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
func (n *node) hasScript(sha string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.lua.bodies[sha]
	return ok
}

// noteWatchLocked keeps track of what an EXEC will depend on, which the data do
// not show: a write may leave them as they were.
func (n *node) noteWatchLocked(p *server.Peer, command string) {
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

// watches counts the peers with a WATCH, and those of them whose EXEC may fail.
func (n *node) watches() (watched, touched int) {
	for _, t := range n.touched {
		if watched++; t {
			touched++
		}
	}
	return watched, touched
}

// timePassed has the contents read anew: some may have expired.
func (n *node) timePassed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirty = true
}

// restart loses the data and the subscriptions. Connections and scripts stay:
// clients would make them anew at once.
func (n *node) restart() {
	n.redis.FlushAll()
	n.dirty = true
	n.disconnect()
}

// jump sets the clock ahead.
func (n *node) jump(d time.Duration) {
	n.ahead += d
	n.dirty = true
}

// disconnect closes the connections with subscriptions.
func (n *node) disconnect() {
	n.mu.Lock()
	subscribers := n.subscribers
	n.subscribers = nil
	n.mu.Unlock()
	for _, c := range subscribers {
		c.Close()
	}
}

// contents is what the node holds, a line for each key.
func (n *node) contents() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dirty {
		n.redis.SetTime(n.now())
		n.data = string(appendContents(nil, n.redis, n.now()))
		n.dirty = false
	}
	return n.data
}

// subscriberCount locks, because a subscriber may leave by a timer of its own.
func (n *node) subscriberCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.subscribers)
}
