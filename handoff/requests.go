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

// What the scripts and the processes agree on; a client in another language, too.
const (
	// blockSize is how many fencing tokens come with a lease, and so how many callers
	// of a process have it in turn before it is passed on. A lost counter goes on from
	// the clock in µs: it must not be drawn from faster than that, and is not by 30,000
	// acquisitions a second.
	blockSize = 32
	// firstToken is above all replies that are no token.
	firstToken = 1_000_000
	// queueTTL is how long a queue outlives the last who joined it or looked at it.
	queueTTL = time.Minute
	// counterTTL is how long a counter outlives the last script that drew from it. The
	// fast path does not set it, and is for fastFor after one that did: that leaves a day.
	counterTTL = 25 * time.Hour
	fastFor    = time.Hour
)

// Replies that are no token.
const (
	replyQueued = 0 // or, to a release: another has the lease
	replyBusy   = 1 // or, to a release: nobody has the lease; to a renewal: done
	replyGone   = 2
)

// granted says whether a reply is a block of tokens, of which it is the last; it is
// negative if others wait.
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

// newScripts makes the scripts for a server of which PUBLISH counts all who listen, or not.
func newScripts(counts bool) scripts {
	constants := fmt.Sprintf("local block, first, queueTTL, counterTTL, counts = %d, %d, %d, %d, %t",
		blockSize, firstToken, queueTTL.Milliseconds(), counterTTL.Milliseconds(), counts)
	of := func(parts ...string) *script {
		text := constants + "\n" + strings.Join(parts, "\n")
		return &script{redis.NewScript(text).Hash(), text}
	}
	return scripts{ // acquire ends where the lock is free before it makes the functions: that takes longest
		acquire: of(acquireLua, functionsLua, queueLua), free: of(freeLua), release: of(functionsLua, releaseLua),
		renew: of(renewLua), raise: of(functionsLua, raiseLua),
	}
}

// run calls a script by its hash, and with the whole text on a server that does not know it, or may not: one
// that has not replied to name.
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

// argument is the first of a script, mostly a name. It counts how often it is written to a connection: the
// client sends a command again by itself after a redirection, or when a connection fails.
type argument struct {
	text string
	sent atomic.Int32
}

// MarshalBinary is called for each time that the command is sent.
func (a *argument) MarshalBinary() ([]byte, error) {
	a.sent.Add(1)
	return []byte(a.text), nil
}

func (a *argument) String() string { return a.text }

// keysOf are the keys of a lock, in the order of the scripts. All of them fall into the
// same slot of a Cluster, if key has no stray closing brace.
func keysOf(key string) []any {
	stem := key
	if open := strings.IndexByte(key, '{'); open < 0 || strings.IndexByte(key[open+1:], '}') <= 0 {
		stem = "{" + key + "}"
	}
	return []any{key, stem + ":queue", stem + ":fence"}
}

// message is what functions.lua publishes: "name n key".
type message struct {
	name string
	n    int64 // the last token of its block, negative if others wait; 0: others wait for the lease that it has
	key  string
}

func parseMessage(text string) (message, error) {
	name, rest, _ := strings.Cut(text, " ")
	number, key, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	return message{name, n, key}, err
}

// direct is how many requests of a process are under way one by one. Up to here
// sharing one would cost more than it saves.
const direct = 4

// Combine has the requests of all lockers on client share round trips, where a process
// makes more than a few at the same time: while those are under way, the others wait, and
// go out together with the next reply. It doubles the rate over many keys. Call it once, after
// all other hooks were added: they see each request by itself. No other command is touched.
func Combine(client redis.UniversalClient) {
	if single, ok := client.(*redis.Client); ok { // those of a Cluster have several servers
		single.AddHook(new(combiner))
	}
}

// combiner is the hook. What is no script of ours passes.
type combiner struct {
	pipeline redis.ProcessPipelineHook // past all other hooks

	mu      sync.Mutex
	single  int    // requests under way one by one
	sending bool   // a batch is under way
	next    *batch // waits for those; nil: nothing waits
}

// batch is what goes out with one round trip.
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
		b, sent := c.next, redis.NewCmd(ctx, script.Args()...) // a copy: the caller may be gone when the reply comes
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

// complete ends a round trip, and begins another with all that wait.
func (c *combiner) complete(single int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.single -= single
	c.sending = c.sending && single > 0 // else it was the batch
	if c.next != nil && !c.sending {
		c.sending = true
		go c.send(c.next)
		c.next = nil
	}
}

// send belongs to no one caller: each is bound by the client's time-outs.
func (c *combiner) send(b *batch) {
	_ = c.pipeline(context.Background(), b.cmds) // each has its own error
	close(b.done)
	c.complete(0)
}

const (
	// silence is after how long without a message a sign of life is asked for, and how
	// long that may take: a connection may be dead without an error.
	silence = 3 * time.Second
	// reopenPause is before a subscription is opened again that has failed.
	reopenPause = 100 * time.Millisecond
)

// openLocked opens the subscription on which all waiters of the locker are told, when
// somebody first has to wait.
func (l *Locker) openLocked() {
	if !l.opened && !l.closed {
		l.opened = true
		l.running.Go(l.listen)
	}
}

func (l *Locker) listen() {
	for l.closing.Err() == nil {
		pubsub := l.client.Subscribe(l.closing, l.channel) // its error comes again with Receive
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

// receive returns when the subscription has failed.
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

// confirmed takes in that the subscription stands. What was published while it did not has
// been missed, and who stood in a queue was passed over. If the server was away it may have
// forgotten the leases.
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
