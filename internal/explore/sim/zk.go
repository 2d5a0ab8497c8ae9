package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/explore/search"
	"grablab/internal/grab/lock"

	"github.com/go-zookeeper/zk"
)

// zkServer simulates a single ZooKeeper server with nodes, sessions and watches for the end of a
// node. It refuses other watches.
//
// Unlike a real server, it ends each session exactly at its timeout and never removes empty
// containers.
type zkServer struct {
	*node

	mu           sync.Mutex // held during one request
	nodes        map[string]*zkNode
	zxid         int64 // the zxid of the last change
	sessions     map[int64]*zkSession
	begun        int64 // the number of sessions begun so far
	conns        []*zkConn
	closedUnread []*zkConn            // connections closed while their process was paused
	watches      map[string][]*zkConn // connections that watch a node, by path

	losing  map[*instance]bool   // instances that will lose their next reply and the connection
	lost    bool                 // whether any connection has been lost
	under   search.Fingerprint   // a hash of the clients' incomplete calls
	told    search.Fingerprint   // a hash of all replies
	answers map[zkRequest]string // the last reply to each request, as text
	expired map[*instance]int    // how many times each instance was told that its session had expired
}

type zkNode struct {
	czxid, pzxid      int64
	created, children int32 // the number of children: ever created, and existing
	owner             int64 // the session of an ephemeral node; otherwise 0
	container         bool  // whether a real server removes the node some time after its last child
	bytes             []byte
}

type zkSession struct {
	*expiry
	conn *zkConn // nil if the session has no connection
}

type zkRequest struct {
	inst *instance
	path string
}

// These session timeout limits match the real ZooKeeper servers that loadgen starts.
const (
	zkShortest = 200 * time.Millisecond
	zkLongest  = 10 * time.Minute
)

// ZooKeeper identifies requests by these codes.
const (
	zkCreate          = 1
	zkDelete          = 2
	zkExists          = 3
	zkGetData         = 4
	zkPing            = 11
	zkGetChildren     = 12
	zkCreateContainer = 19
	zkSetWatches      = 101
	zkClose           = -11
)

// ZooKeeper reports errors with these codes.
const (
	errZKUnimplemented = -6
	errZKNoNode        = -101
	errZKBadVersion    = -103
	errZKNoChildren    = -108 // an ephemeral node cannot have children
	errZKNodeExists    = -110
	errZKNotEmpty      = -111
)

func newZKServer(name string) *zkServer {
	s := &zkServer{}
	s.node = &node{lockServer: s, name: name}
	return s
}

func (s *zkServer) reset() {
	s.nodes = map[string]*zkNode{"/": {created: 1, children: 1}, lock.ZooKeeperRoot: {}} // on a real server, any use of a lock creates these nodes
	s.zxid, s.begun, s.under, s.told, s.lost = 0, 0, 0, 0, false
	s.sessions, s.conns, s.closedUnread = map[int64]*zkSession{}, nil, nil
	s.watches = map[string][]*zkConn{}
	s.losing, s.answers, s.expired = map[*instance]bool{}, map[zkRequest]string{}, map[*instance]int{}
}

// timePassed handles the requests that the server could not read while the client's process was
// paused.
func (s *zkServer) timePassed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Concat(s.conns, s.closedUnread) {
		c.takeInLocked()
		c.notifyLocked()
	}
	s.closedUnread = slices.DeleteFunc(s.closedUnread, func(c *zkConn) bool { return !c.stopped() })
}

// settle waits until disconnected clients have reconnected, which they try once a second.
func (s *zkServer) settle() {
	for i := 0; i < 20 && !s.settled(); i++ {
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *zkServer) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.sessions {
		if s.lost && session.conn == nil {
			return false
		}
	}
	return !s.lost || s.under == 0
}

// disconnect closes every connection but keeps all sessions.
func (s *zkServer) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	for _, c := range slices.Clone(s.conns) {
		c.closeLocked()
	}
}

// connectLocked begins or resumes a session on a new connection. If the session has expired, the
// reply contains no session ID.
func (s *zkServer) connectLocked(c *zkConn, r *juteReader) {
	_, _, timeout, id := r.int(), r.long(), time.Duration(r.int())*time.Millisecond, r.long()
	session, ok := s.sessions[id]
	switch {
	case id == 0:
		s.begun++
		s.zxid++
		session = &zkSession{}
		session.expiry = newExpiry(s.begun, min(max(timeout, zkShortest), zkLongest), &s.mu, func(*expiry) { s.endLocked(session) })
		s.sessions[session.id] = session
	case !ok:
		if c.owner != nil {
			s.expired[c.owner]++
			c.owner.world.gate.signal() // the client has something to do
		}
		c.sendLocked(jute{}.int(0).int(0).long(0).bytes(make([]byte, 16)))
		c.closeLocked()
		return
	case session.conn != nil:
		session.conn.closeLocked()
	}
	session.conn, c.session = c, session
	session.renew()
	c.sendLocked(jute{}.int(0).int(int32(session.ttl / time.Millisecond)).long(session.id).bytes(make([]byte, 16)))
}

// shortenLeases ends sessions early, as an administrator can.
func (s *zkServer) shortenLeases(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if session := s.sessions[id]; session.shorten(d) {
			s.endLocked(session)
		}
	}
}

// timesExpired returns how many times the instance was told that its session had expired.
func (s *zkServer) timesExpired(inst *instance) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired[inst]
}

// endLocked ends a session and deletes its ephemeral nodes.
func (s *zkServer) endLocked(session *zkSession) {
	session.stop()
	delete(s.sessions, session.id)
	s.zxid++
	for _, path := range s.sortedLocked() {
		if s.nodes[path].owner == session.id {
			s.removeLocked(path)
		}
	}
	if session.conn != nil {
		session.conn.closeLocked()
	}
}

// requestLocked executes a client's request and sends the reply. If the client is to lose the
// reply, it closes the connection instead.
func (s *zkServer) requestLocked(c *zkConn, r *juteReader) {
	xid, op := r.int(), r.int()
	c.session.renew()
	if op == zkPing {
		c.sendLocked(jute{}.int(xid).long(s.zxid).int(0))
		return
	}
	path := ""
	if op != zkClose && op != zkSetWatches {
		path = r.text()
	}
	body, code, said := s.carryOutLocked(c, op, path, r)
	reply := jute{}.int(xid).long(s.zxid).int(code)
	if code == 0 {
		reply = append(reply, body...)
	}
	if c.owner != nil {
		lost := s.losing[c.owner]
		s.told += search.EmptyFingerprint.Number(int64(c.owner.number)).Number(time.Since(epoch).Nanoseconds()).Text(string(reply)).Flag(lost)
		s.answers[zkRequest{c.owner, path}] = said
		if lost {
			delete(s.losing, c.owner)
			s.lost = true
			c.closeLocked()
			return
		}
	}
	c.sendLocked(reply)
	if op == zkClose {
		s.endLocked(c.session)
	}
}

// carryOutLocked executes a request. It returns the reply's body and error code, and a text that
// describes both.
func (s *zkServer) carryOutLocked(c *zkConn, op int32, path string, r *juteReader) (body jute, code int32, said string) {
	switch op {
	case zkCreate, zkCreateContainer:
		data := r.bytes()
		for range r.int() { // skip the access control list
			r.int()
			r.text()
			r.text()
		}
		made, code := s.createLocked(c.session.id, path, data, r.int())
		if code == 0 {
			s.nodes[made].container = op == zkCreateContainer
		}
		return jute{}.text(made), code, textOfZK("create", path, code, made)
	case zkDelete:
		code := s.deleteLocked(path, r.int())
		return nil, code, textOfZK("delete", path, code, "done")
	case zkExists, zkGetData, zkGetChildren:
		n, ok := s.nodes[path]
		switch watch := r.bool(); {
		case watch && (op == zkGetChildren || op == zkExists && !ok):
			return nil, errZKUnimplemented, textOfZK("watch", path, errZKUnimplemented, "")
		case watch && ok:
			s.watchLocked(c, path)
		}
		if !ok {
			return nil, errZKNoNode, textOfZK("look at", path, errZKNoNode, "")
		}
		switch op {
		case zkGetData:
			body = body.bytes(n.bytes)
		case zkGetChildren:
			names := s.namesLocked(path)
			body = body.int(int32(len(names)))
			for _, name := range names {
				body = body.text(name)
			}
			return n.appendStat(body), 0, textOfZK("list", path, 0, strings.Join(names, " "))
		}
		return n.appendStat(body), 0, textOfZK("look at", path, 0, fmt.Sprintf("czxid %d", n.czxid))
	case zkSetWatches:
		s.setWatchesLocked(c, r)
		return nil, 0, ""
	case zkClose:
		return nil, 0, ""
	default:
		return nil, errZKUnimplemented, fmt.Sprintf("request %d: not simulated", op)
	}
}

func textOfZK(verb, path string, code int32, answer string) string {
	if code != 0 {
		answer = fmt.Sprintf("error %d", code)
	}
	return verb + " " + path + ": " + answer
}

// createLocked creates a node as a real server does. It returns the node's path, or an error code.
func (s *zkServer) createLocked(session int64, path string, data []byte, mode int32) (made string, code int32) {
	parent, ok := s.nodes[parentOf(path)]
	if !ok {
		return "", errZKNoNode
	}
	if mode&zk.FlagSequence != 0 {
		path += fmt.Sprintf("%010d", parent.created)
	}
	switch {
	case s.nodes[path] != nil:
		return "", errZKNodeExists
	case parent.owner != 0:
		return "", errZKNoChildren
	}
	s.zxid++
	n := &zkNode{czxid: s.zxid, pzxid: s.zxid, bytes: data}
	if mode&zk.FlagEphemeral != 0 {
		n.owner = session
	}
	s.nodes[path] = n
	parent.created++
	parent.children++
	parent.pzxid = s.zxid
	return path, 0
}

func (s *zkServer) deleteLocked(path string, version int32) (code int32) {
	n, ok := s.nodes[path]
	switch {
	case !ok:
		return errZKNoNode
	case version > 0: // no request changes a node, so every node has version 0
		return errZKBadVersion
	case n.children > 0:
		return errZKNotEmpty
	}
	s.zxid++
	s.removeLocked(path)
	return 0
}

func (s *zkServer) removeLocked(path string) {
	parent := s.nodes[parentOf(path)]
	parent.children--
	parent.pzxid = s.zxid
	delete(s.nodes, path)
	for _, c := range s.watches[path] {
		c.sendDeletedLocked(path)
	}
	delete(s.watches, path)
}

func (s *zkServer) watchLocked(c *zkConn, path string) {
	if !slices.Contains(s.watches[path], c) {
		s.watches[path] = append(s.watches[path], c)
	}
}

// setWatchesLocked restores a reconnected client's watches, and reports the nodes that were deleted
// in the meantime.
func (s *zkServer) setWatchesLocked(c *zkConn, r *juteReader) {
	r.long() // skip the zxid that the client has seen last
	for _, path := range r.texts() {
		if s.nodes[path] != nil {
			s.watchLocked(c, path)
		} else {
			c.sendDeletedLocked(path)
		}
	}
}

func (n *zkNode) appendStat(b jute) jute {
	return b.long(n.czxid).long(n.czxid).long(0).long(0).int(0).int(2*n.created - n.children).int(0).
		long(n.owner).int(int32(len(n.bytes))).int(n.children).long(n.pzxid)
}

func parentOf(path string) string {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)]
}

func (s *zkServer) sortedLocked() []string { return slices.Sorted(maps.Keys(s.nodes)) }

func (s *zkServer) namesLocked(dir string) []string {
	names := []string{}
	for _, path := range s.sortedLocked() {
		if path != "/" && parentOf(path) == dir {
			names = append(names, path[strings.LastIndexByte(path, '/')+1:])
		}
	}
	return names
}

func (s *zkServer) contents() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, path := range s.sortedLocked()[1:] {
		n := s.nodes[path]
		fmt.Fprintf(&b, "%s = czxid %d", path, n.czxid)
		if session, ok := s.sessions[n.owner]; ok {
			fmt.Fprintf(&b, " of session %d until %s", session.id, session.until.Sub(epoch).Round(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// state adds the server's state to the fingerprint f, so that the search can recognize equal
// states.
func (s *zkServer) state(f search.Fingerprint) search.Fingerprint {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = f.Number(s.zxid).Number(s.begun).Number(int64(s.under)).Number(int64(s.told))
	for _, inst := range slices.SortedFunc(maps.Keys(s.expired), func(a, b *instance) int { return a.number - b.number }) {
		f = f.Number(int64(inst.number)).Number(int64(s.expired[inst]))
	}
	for id := range s.begun {
		if session, ok := s.sessions[id+1]; ok {
			f = f.Number(session.id).Number(session.until.UnixNano()).Flag(session.conn != nil)
		}
	}
	var all search.Fingerprint // add the hashes, because connections and watches have no order
	for _, c := range s.conns {
		all += search.EmptyFingerprint.Flag(c.stopped()).Number(int64(len(c.out))).Number(int64(len(c.in)))
	}
	for path, conns := range s.watches {
		all += search.EmptyFingerprint.Text(path).Number(int64(len(conns)))
	}
	return f.Number(int64(all))
}

// findLocked returns the ephemeral node whose name begins with prefix, and the session that owns
// it.
func (s *zkServer) findLocked(prefix string) (path string, session *zkSession) {
	for path, n := range s.nodes {
		if session, ok := s.sessions[n.owner]; ok && prefix != "" && strings.HasPrefix(path, prefix) {
			return path, session
		}
	}
	return "", nil
}

// leaseOf returns the remaining session time of the owner of the node with this value. ok is true
// only if the node is first in its queue, because only then does the owner have the lock.
func (s *zkServer) leaseOf(value string) (ttl time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, session := s.findLocked(value)
	if session == nil {
		return 0, false
	}
	queue := s.namesLocked(parentOf(path))
	first := slices.MinFunc(queue, func(a, b string) int { return cmp.Compare(sequenceOf(a), sequenceOf(b)) })
	ttl = time.Until(session.until)
	return ttl, ttl > 0 && strings.HasSuffix(path, "/"+first)
}

// keeps reports whether the path is a container that never had a child. A server does not remove it.
func (s *zkServer) keeps(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[path]
	return n != nil && n.container && n.created == 0
}

// sequenceOf returns the sequence number at the end of a node's name.
func sequenceOf(name string) string { return name[max(0, len(name)-10):] }

// connected reports whether an instance has both a connection and a live session.
func (s *zkServer) connected(inst *instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.conns, func(c *zkConn) bool { return c.owner == inst && c.session != nil && !c.stopped() })
}

// pinged reports whether a client keeps this node's session alive with pings.
func (s *zkServer) pinged(value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, session := s.findLocked(value)
	return session != nil && session.conn != nil && !session.conn.stopped()
}
