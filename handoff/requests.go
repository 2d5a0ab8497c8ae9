package handoff

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// These constants are part of the protocol. Clients in other languages must use the same values.
const (
	// blockSize is the number of fencing tokens per lease. Each caller needs one, so a lease serves
	// at most this many callers. A lost counter restarts from the server's clock, in microseconds.
	// Tokens stay below that clock only if leases consume at most one token per microsecond.
	blockSize = 32
	// firstToken is the smallest fencing token. Scripts use smaller numbers as reply codes.
	firstToken = 1_000_000
	// maxFence is the highest value to which a counter can be raised, because numbers in Lua are
	// exact only up to 1<<53.
	maxFence = 1 << 52
	// queueTTL is how long Redis keeps a queue after the last client joined or checked it.
	queueTTL = time.Minute
	// counterTTL is how long Redis keeps a fencing token counter after a script last used it. An
	// acquire on the fast path does not extend this TTL.
	counterTTL = 25 * time.Hour
	// fastFor is how long a process may use the fast path after one of its scripts has used the
	// counter.
	fastFor = time.Hour
	// prefix begins every channel name and turn name. An incompatible protocol version must use a
	// different prefix.
	prefix = "handoff:"
)

// These are the reply codes of the scripts. Any other reply is a fencing token.
const (
	replyQueued = 0 // another client has the lease: after an acquire, the request waits in the queue; after a release, the lease was passed on
	replyBusy   = 1 // after a renewal: done
	replyFree   = 1 // after a release: no one has the lease
	replyGone   = 2
	replyAlien  = 3 // the key contains no lease of this protocol version
)

// granted reports whether a reply is a fencing token, which means that the client has the lease.
// The token is negative if other clients are waiting.
func granted(n int64) bool { return n >= firstToken || n <= -firstToken }

var (
	//go:embed functions.lua
	functionsLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed queue.lua
	queueLua string
	//go:embed free.lua
	freeLua string
	//go:embed release.lua
	releaseLua string
	//go:embed renew.lua
	renewLua string
	//go:embed raise.lua
	raiseLua string

	onOne, onCluster = newScripts(true), newScripts(false)
)

type (
	script  struct{ hash, text any }
	scripts struct{ acquire, free, release, renew, raise *script }
)

// newScripts returns the scripts for a single server or a Cluster. counts says whether PUBLISH
// returns the number of all subscribers. In a Cluster, it does not.
func newScripts(counts bool) scripts {
	constants := fmt.Sprintf("local block, first, queueTTL, counterTTL, prefix, counts = %d, %d, %d, %d, %q, %t",
		blockSize, firstToken, queueTTL.Milliseconds(), counterTTL.Milliseconds(), prefix, counts)
	of := func(parts ...string) *script {
		text := constants + "\n" + strings.Join(parts, "\n")
		return &script{redis.NewScript(text).Hash(), text}
	}
	return scripts{ // the functions come after acquireLua, because acquiring a free lock does not need them
		acquire: of(acquireLua, functionsLua, queueLua), free: of(freeLua), release: of(functionsLua, releaseLua),
		renew: of(renewLua), raise: of(functionsLua, raiseLua),
	}
}

// run calls a script by its hash. If the server does not know the hash, or if an earlier attempt
// got no reply, it sends the whole script instead.
func (l *Locker) run(ctx context.Context, s *script, keys []any, name *argument, more ...any) (int64, error) {
	all := slices.Concat([]any{"evalsha", s.hash, len(keys)}, keys, []any{name}, more)
	if name.sent.Load() == 0 {
		cmd := redis.NewCmd(ctx, all...)
		if err := l.client.Process(ctx, cmd); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return cmd.Int64()
		}
		name.sent.Add(-1)
	}
	all[0], all[1] = "eval", s.text
	cmd := redis.NewCmd(ctx, all...)
	_ = l.client.Process(ctx, cmd) // cmd stores the error
	return cmd.Int64()
}

// argument is a script's first argument. It counts how many times the Redis client has sent it,
// because the client may retry a command without telling us.
type argument struct {
	text string
	sent atomic.Int32
}

// MarshalBinary implements encoding.BinaryMarshaler, which the Redis client calls each time it
// sends the command.
func (a *argument) MarshalBinary() ([]byte, error) {
	a.sent.Add(1)
	return []byte(a.text), nil
}

func (a *argument) String() string { return a.text }

// keysOf returns a lock's keys in the order that the scripts expect. A Cluster stores them all on
// the same node, unless key contains a closing brace but no hash tag.
func keysOf(key string) []any {
	stem := key
	if open := strings.IndexByte(key, '{'); open < 0 || strings.IndexByte(key[open+1:], '}') <= 0 {
		stem = "{" + key + "}"
	}
	return []any{key, stem + ":queue", stem + ":fence"}
}

// A message is a notification that a Lua script publishes, in the form "name n key".
type message struct {
	name string
	n    int64 // the last granted token, negative if others wait; 0 if the message only tells the holder that others wait
	key  string
}

func parseMessage(text string) (message, error) {
	name, rest, _ := strings.Cut(text, " ")
	number, key, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	return message{name, n, key}, err
}

// maxDirect is how many requests may be in flight with a round trip of their own. Any further
// requests share a round trip.
const maxDirect = 4

// Combine increases the throughput over many keys. It lets concurrent requests of all Lockers on
// client share round trips.
//
// Call it once, after adding all other hooks. It does not affect other commands. A combined request
// may have to wait for an earlier round trip. If Redis is far away, use Combine only if you lock
// more keys at the same time than the client has connections.
func Combine(client redis.UniversalClient) {
	if single, ok := client.(*redis.Client); ok { // a Cluster client sends requests to several servers, so they cannot share a round trip
		single.AddHook(new(combiner))
	}
}

// combiner is the client hook that Combine adds. It combines only the requests of this package.
type combiner struct {
	pipeline redis.ProcessPipelineHook // sends a batch and bypasses all other hooks

	mu      sync.Mutex
	direct  int    // the number of requests in flight that have a round trip of their own
	sending bool   // whether a batch is in flight
	next    *batch // the waiting requests; may be nil
}

// batch is a group of requests that share one round trip.
type batch struct {
	cmds []redis.Cmder
	done chan struct{}
}

func (c *combiner) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *combiner) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if c.pipeline == nil {
		c.pipeline = next
	}
	return next
}

// ProcessHook sends up to maxDirect scripts at once, each with a round trip of its own. It collects
// further scripts in a batch.
func (c *combiner) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	ours := func(arg any) bool { _, ok := arg.(*argument); return ok }
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(*redis.Cmd)
		if !ok || !slices.ContainsFunc(script.Args(), ours) {
			return next(ctx, cmd)
		}
		c.mu.Lock()
		if c.next == nil && !c.sending && c.direct < maxDirect {
			c.direct++
			c.mu.Unlock()
			defer c.directDone()
			return next(ctx, cmd)
		}
		if c.next == nil {
			c.next = &batch{done: make(chan struct{})}
		}
		b, sent := c.next, redis.NewCmd(ctx, script.Args()...) // a copy, because the caller may return before the reply arrives
		b.cmds = append(b.cmds, sent)
		c.mu.Unlock()
		select {
		case <-b.done:
			script.SetVal(sent.Val())
			script.SetErr(sent.Err())
		case <-ctx.Done():
			script.SetErr(ctx.Err())
		}
		return script.Err()
	}
}

// directDone records that a request with its own round trip has finished.
func (c *combiner) directDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.direct--
	c.sendNextLocked()
}

// sendNextLocked sends the next batch unless there is none, or another one is in flight.
func (c *combiner) sendNextLocked() {
	if c.next != nil && !c.sending {
		c.sending = true
		go c.send(c.next)
		c.next = nil
	}
}

// send sends a batch in one round trip. It uses the client's timeouts and ignores the callers'
// contexts, because the callers share the batch.
func (c *combiner) send(b *batch) {
	_ = c.pipeline(context.Background(), b.cmds) // each command stores its own error
	close(b.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending = false
	c.sendNextLocked()
}

const (
	// silence is how long a subscription may receive nothing before it sends a ping. Otherwise, the
	// Locker might never notice a dead connection.
	silence = 3 * time.Second
	// reopenPause is how long the Locker waits before it opens a broken subscription again.
	reopenPause = 100 * time.Millisecond
)

// openLocked opens the subscription unless it is already open. A Locker needs it only once a caller
// has to wait.
func (l *Locker) openLocked() {
	if !l.opened && !l.closed {
		l.opened = true
		l.goLocked(l.listen)
	}
}

func (l *Locker) listen() {
	for l.closing.Err() == nil {
		pubsub := l.client.Subscribe(l.closing, l.channel) // if this fails, the receive call returns the error
		unsubscribe := context.AfterFunc(l.closing, func() { _ = pubsub.Close() })
		err := l.receive(pubsub)
		unsubscribe()
		_ = pubsub.Close()
		l.mu.Lock()
		l.subscribed = false
		l.mu.Unlock()
		if l.closing.Err() == nil {
			l.opt.Logger.Debug("handoff: subscription lost", "channel", l.channel, "error", err)
			sleep(l.closing, min(reopenPause, l.check))
		}
	}
}

// receive processes messages from Redis until the subscription fails.
func (l *Locker) receive(pubsub *redis.PubSub) error {
	for silent := false; ; {
		msg, err := pubsub.ReceiveTimeout(l.closing, silence)
		if silent = !silent && errors.Is(err, os.ErrDeadlineExceeded); silent {
			err = pubsub.Ping(l.closing)
		}
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *redis.Message:
			if m, err := parseMessage(msg.Payload); err == nil {
				l.deliver(m)
			}
		case *redis.Subscription:
			l.confirmed()
		}
	}
}

// confirmed marks the subscription as ready and checks all queues, because they may have missed
// messages.
func (l *Locker) confirmed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribed = true
	now := time.Now()
	for _, key := range slices.Sorted(maps.Keys(l.queues)) {
		q := l.queues[key]
		q.due = now
		q.attendLocked(now)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
