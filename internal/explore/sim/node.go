package sim

import (
	"slices"
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
	name    string
	redis   *miniredis.Miniredis
	server  *server.Server
	scripts map[string]bool // by SHA-1
	lua     *luaHost

	mu    sync.Mutex    // of one command
	ahead time.Duration // its clock, of everybody's
	down  bool
	heard []*conn // connections with subscriptions
	// watching are the peers that have a WATCH: whether something may have been
	// written since.
	watching map[*server.Peer]bool
	past     search.Fingerprint // all that has happened to it
	told     search.Fingerprint // all that has been heard from it
	dirty    bool               // a command has run since data was read
	data     []byte
}

func newNode(name string) (*node, error) {
	m := miniredis.NewMiniRedis()
	pipe, err := m.Dial() // makes it a server without a listener
	if err != nil {
		return nil, err
	}
	pipe.Close()
	m.ClockTTL(true)
	return &node{name: name, redis: m, server: m.Server(), scripts: map[string]bool{}, watching: map[*server.Peer]bool{}, lua: newLuaHost(m.Server())}, nil
}

func (n *node) close() {
	n.lua.close()
	n.redis.Close()
}

// reset makes the node as new.
func (n *node) reset() {
	n.redis.FlushAll()
	n.redis.SetTime(epoch)
	n.ahead, n.down, n.dirty, n.past, n.told = 0, false, true, search.EmptyFingerprint, 0
	n.heard = nil
	clear(n.watching)
}

// now is the node's clock.
func (n *node) now() time.Time { return time.Now().Add(n.ahead) }

// dispatch runs one command as of now. Within a MULTI, it is only noted.
func (n *node) dispatch(p *server.Peer, args []string, multi bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.redis.SetTime(n.now())
	n.dirty = true
	n.watch(p, strings.ToUpper(args[0]))
	script := len(args) > 1 && strings.HasPrefix(strings.ToLower(args[0]), "eval")
	if script && len(args[0]) == len("eval") {
		n.scripts[scriptSHA(args[1])] = true
		n.lua.learn(args[1])
	}
	if !script || multi || !n.lua.eval(p, args) {
		n.server.Dispatch(p, args)
	}
	p.Flush()
}

// has says whether the node knows a script.
func (n *node) has(sha string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.scripts[sha]
}

// watch keeps track of what an EXEC will depend on: a write may leave the data as
// they were.
func (n *node) watch(p *server.Peer, command string) {
	switch command {
	case "WATCH":
		n.watching[p] = false
	case "EXEC", "DISCARD", "UNWATCH":
		delete(n.watching, p)
	}
	if len(n.watching) == 0 || n.server.IsReadOnlyCommand(command) {
		return
	}
	for other := range n.watching {
		n.watching[other] = n.watching[other] || other != p
	}
}

// disturbed counts the WATCHes that stand, and those that may fail.
func (n *node) disturbed() (stand, fail int) {
	for _, touched := range n.watching {
		if stand++; touched {
			fail++
		}
	}
	return stand, fail
}

// aged has the data read anew: some may have run out.
func (n *node) aged() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirty = true
}

// restart loses the data, and whoever listens. Connections and scripts stand
// for ones that are made anew at once.
func (n *node) restart() {
	n.redis.FlushAll()
	n.dirty = true
	n.hangUp()
}

// jump sets the clock ahead.
func (n *node) jump(d time.Duration) {
	n.ahead += d
	n.dirty = true
}

// hear and forget keep the list of those who listen.
func (n *node) hear(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = append(n.heard, c)
}

func (n *node) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = slices.DeleteFunc(n.heard, func(other *conn) bool { return other == c })
}

func (n *node) listeners() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.heard)
}

// hangUp ends the connections with subscriptions.
func (n *node) hangUp() {
	n.mu.Lock()
	heard := n.heard
	n.heard = nil
	n.mu.Unlock()
	for _, c := range heard {
		c.Close()
	}
}

// contents is what the node holds, as text: for people, and to tell states apart.
func (n *node) contents() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dirty {
		n.redis.SetTime(n.now())
		n.data = appendContents(nil, n.redis, n.now()) // others may still read the last
		n.dirty = false
	}
	return n.data
}
