package handoff

import (
	"context"
	_ "embed"
	"fmt"
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
	//go:embed release.lua
	releaseLua string
	//go:embed pass.lua
	passLua string
	//go:embed renew.lua
	renewLua string
	//go:embed raise.lua
	raiseLua string

	constantsLua = fmt.Sprintf("local block, first, queueTTL, counterTTL = %d, %d, %d, %d",
		blockSize, firstToken, queueTTL.Milliseconds(), counterTTL.Milliseconds())

	// Where nobody else wants the lock, a script ends before the functions are made,
	// which takes longer than all else in it.
	acquireScript = newScript(acquireLua, functionsLua, queueLua)
	releaseScript = newScript(releaseLua, functionsLua, passLua)
	renewScript   = newScript(renewLua)
	raiseScript   = newScript(functionsLua, raiseLua)
)

type script struct{ hash, text any }

func newScript(parts ...string) *script {
	text := constantsLua + "\n" + strings.Join(parts, "\n")
	return &script{redis.NewScript(text).Hash(), text}
}

// run calls the script by its hash, and with the whole text on a server that does not know it
// yet. sends counts how often it may have been carried out.
func (s *script) run(
	ctx context.Context, client redis.UniversalClient, sends *sendCounter, keys []any, args ...any,
) (int64, error) {
	call := func(command string, script any) *redis.Cmd {
		all := append(make([]any, 0, 4+len(keys)+len(args)), command, script, len(keys))
		cmd := redis.NewCmd(ctx, append(append(append(all, keys...), args...), sends)...)
		_ = client.Process(context.WithValue(ctx, mayCombine{}, true), cmd) // the command has its own error
		return cmd
	}
	cmd := call("evalsha", s.hash)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		sends.n.Add(-1)
		cmd = call("eval", s.text)
	}
	return cmd.Int64()
}

// sendCounter is an argument that counts how often it is written to a connection: the
// client sends a command again by itself after a redirection, or when a connection fails.
type sendCounter struct{ n atomic.Int32 }

// MarshalBinary is called for each time that the command is sent.
func (c *sendCounter) MarshalBinary() ([]byte, error) {
	return strconv.AppendInt(nil, int64(c.n.Add(1)), 10), nil
}

func (c *sendCounter) String() string { return "sent" }

// keysOf are the keys of a lock, in the order of the scripts. All of them fall into the
// same slot of a Cluster, if key has no stray closing brace.
func keysOf(key string) []any {
	stem := key
	if open := strings.IndexByte(key, '{'); open < 0 || strings.IndexByte(key[open+1:], '}') <= 0 {
		stem = "{" + key + "}"
	}
	return []any{key, stem + ":queue", stem + ":fence"}
}

// message is what functions.lua publishes: "name block others key". A block of 0 says that
// others wait for the lease that the name has.
type message struct {
	name  string
	block int64 // its last token, negative if others wait; 0: no lease
	key   string
}

func parseMessage(text string) (m message, ok bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 {
		return m, false
	}
	block, err := strconv.ParseInt(parts[1], 10, 64)
	if parts[2] == "1" {
		block = -block
	}
	return message{parts[0], block, parts[3]}, err == nil
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

// mayCombine marks the context of a command that may go out with others.
type mayCombine struct{}

// combiner is the hook. A command that is not marked passes.
type combiner struct {
	pipeline redis.ProcessPipelineHook // past all other hooks

	mu      sync.Mutex
	busy    int
	waiting []*combined
}

// combined is a request that goes out with others.
type combined struct {
	cmd  *redis.Cmd // a copy: its caller may have gone
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
	return func(ctx context.Context, cmd redis.Cmder) error {
		script, ok := cmd.(*redis.Cmd)
		if !ok || ctx.Value(mayCombine{}) == nil {
			return next(ctx, cmd)
		}
		s := c.enqueue(ctx, script)
		if s == nil {
			defer c.complete()
			return next(ctx, cmd)
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			script.SetErr(ctx.Err())
			return ctx.Err()
		}
		script.SetVal(s.cmd.Val())
		script.SetErr(s.cmd.Err())
		return script.Err()
	}
}

// enqueue has a request wait for the next round trip. It is nil if it need not.
func (c *combiner) enqueue(ctx context.Context, script *redis.Cmd) *combined {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy < direct {
		c.busy++
		return nil
	}
	s := &combined{redis.NewCmd(ctx, script.Args()...), make(chan struct{})}
	c.waiting = append(c.waiting, s)
	return s
}

// complete ends a round trip, and begins another with all that wait.
func (c *combiner) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.busy--
		return
	}
	together := c.waiting
	c.waiting = nil
	go c.send(together)
}

// send belongs to no one caller: each is bound by the client's time-outs.
func (c *combiner) send(together []*combined) {
	defer c.complete()
	cmds := make([]redis.Cmder, len(together))
	for i, s := range together {
		cmds[i] = s.cmd
	}
	_ = c.pipeline(context.Background(), cmds) // each has its own error
	for _, s := range together {
		close(s.done)
	}
}
