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

// These constants belong to the protocol, so clients in other languages must use the same values.
const (
	// blockSize is the number of fencing tokens in a lease, and so the number of callers of
	// a process that can have the lease in one turn. A lost counter continues from the clock
	// in µs, so tokens must not be drawn faster than the clock advances. 30,000 acquisitions
	// a second stay below that.
	blockSize = 32
	// firstToken is larger than every reply that is not a token.
	firstToken = 1_000_000
	// maxFence is the highest value to which the counter may be raised. Lua counts in doubles, which
	// are exact up to 1<<53.
	maxFence = 1 << 52
	// queueTTL is how long a queue remains after the last client joined it or looked at it.
	queueTTL = time.Minute
	// counterTTL is how long a counter remains after the last script used it. The fast path
	// does not extend it, and is allowed for fastFor after a script did, so at least a day
	// remains.
	counterTTL = 25 * time.Hour
	fastFor    = time.Hour
	// prefix begins every name. A version of the protocol that cannot share a key with version 1
	// uses another prefix: "handoff2:" for version 2.
	prefix = "handoff:"
)

// These are the replies of the scripts that are not fencing tokens.
const (
	replyQueued = 0 // reply to a release: another client has the lease
	replyBusy   = 1 // reply to a release: no one has the lease; to a renewal: done
	replyGone   = 2
	replyAlien  = 3 // the key holds something other than a lease of this version
)

// granted reports whether a reply is the last token of a block, which means that the lease was
// granted. The reply is negative if other clients wait.
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

// newScripts returns the scripts for a server. counts says whether the reply to PUBLISH counts all
// subscribers, which is not so in a Cluster.
func newScripts(counts bool) scripts {
	constants := fmt.Sprintf("local block, first, queueTTL, counterTTL, prefix, counts = %d, %d, %d, %d, %q, %t",
		blockSize, firstToken, queueTTL.Milliseconds(), counterTTL.Milliseconds(), prefix, counts)
	of := func(parts ...string) *script {
		text := constants + "\n" + strings.Join(parts, "\n")
		return &script{redis.NewScript(text).Hash(), text}
	}
	return scripts{ // if the lock is free, acquire ends before it defines the functions, which takes longest
		acquire: of(acquireLua, functionsLua, queueLua), free: of(freeLua), release: of(functionsLua, releaseLua),
		renew: of(renewLua), raise: of(functionsLua, raiseLua),
	}
}

// run calls a script by its hash. If the server does not know the script, run sends the
// whole text. It also does so if name was sent before without a reply, so that a NOSCRIPT
// error cannot hide a lost reply.
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
	_ = l.client.Process(ctx, cmd) // the command has its own error
	return cmd.Int64()
}

// argument is the first argument of a script, usually a name. It counts how often it is
// written to a connection, because the client repeats commands by itself after a redirection
// or a connection failure.
type argument struct {
	text string
	sent atomic.Int32
}

// MarshalBinary is called each time the command is sent.
func (a *argument) MarshalBinary() ([]byte, error) {
	a.sent.Add(1)
	return []byte(a.text), nil
}

func (a *argument) String() string { return a.text }

// keysOf returns the keys of a lock in the order that the scripts expect. All of them are in
// one slot of a Cluster unless key contains a stray closing brace.
func keysOf(key string) []any {
	stem := key
	if open := strings.IndexByte(key, '{'); open < 0 || strings.IndexByte(key[open+1:], '}') <= 0 {
		stem = "{" + key + "}"
	}
	return []any{key, stem + ":queue", stem + ":fence"}
}

// message is what functions.lua publishes in the form "name n key".
type message struct {
	name string
	n    int64 // the last token of a granted block, negative if others wait; 0 tells the holder that others wait
	key  string
}

func parseMessage(text string) (message, error) {
	name, rest, _ := strings.Cut(text, " ")
	number, key, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	return message{name, n, key}, err
}

// direct is how many requests of a process are sent separately at the same time. Up to this
// number, sharing a round trip would cost more than it saves.
const direct = 4

// Combine lets the requests of all Lockers on client share round trips if a process sends
// more than a few at the same time: further requests wait and are sent together after the
// next reply. This doubles the rate over many keys. Call Combine once, after all other hooks
// were added, so that these see each request. It does not affect other commands.
func Combine(client redis.UniversalClient) {
	if single, ok := client.(*redis.Client); ok { // the requests of a Cluster go to several servers
		single.AddHook(new(combiner))
	}
}

// combiner is the hook of Combine. Commands that do not come from this package pass through
// it.
type combiner struct {
	pipeline redis.ProcessPipelineHook // bypasses all other hooks

	mu      sync.Mutex
	single  int    // separate requests in progress
	sending bool   // whether a batch is in progress
	next    *batch // the requests that wait; may be nil
}

// batch is a group of requests that share a round trip.
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

func (c *combiner) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	ours := func(arg any) bool { _, ok := arg.(*argument); return ok }
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(*redis.Cmd)
		if !ok || !slices.ContainsFunc(script.Args(), ours) {
			return next(ctx, cmd)
		}
		c.mu.Lock()
		if c.next == nil && !c.sending && c.single < direct {
			c.single++
			c.mu.Unlock()
			defer c.complete(1)
			return next(ctx, cmd)
		}
		if c.next == nil {
			c.next = &batch{done: make(chan struct{})}
		}
		b, sent := c.next, redis.NewCmd(ctx, script.Args()...) // a copy, because the caller may have gone when the reply arrives
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

// complete ends a round trip and sends the waiting batch.
func (c *combiner) complete(single int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.single -= single
	c.sending = c.sending && single > 0 // if single is 0, the batch itself has ended
	if c.next != nil && !c.sending {
		c.sending = true
		go c.send(c.next)
		c.next = nil
	}
}

// send sends a batch. It does not use the context of one caller; the client's timeouts bound
// it.
func (c *combiner) send(b *batch) {
	_ = c.pipeline(context.Background(), b.cmds) // each command has its own error
	close(b.done)
	c.complete(0)
}

const (
	// silence is how long a subscription may be quiet before it is pinged, and how long the
	// answer may take. A connection can be dead without an error.
	silence = 3 * time.Second
	// reopenPause is the delay before a failed subscription is opened again.
	reopenPause = 100 * time.Millisecond
)

// openLocked opens the subscription for all waiting callers of the Locker when the first
// caller has to wait.
func (l *Locker) openLocked() {
	if !l.opened && !l.closed {
		l.opened = true
		l.running.Go(l.listen)
	}
}

func (l *Locker) listen() {
	for l.closing.Err() == nil {
		pubsub := l.client.Subscribe(l.closing, l.channel) // if this fails, Receive returns the error
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

// receive delivers messages until the subscription fails, and returns the error.
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

// confirmed records that the subscription is ready. While it was not, this process missed messages
// and lost its places in queues. The server may also have restarted without the leases. So all
// queues are checked at once.
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
