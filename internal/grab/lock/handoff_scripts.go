package lock

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed handoff_numbers.lua
	handoffNumbersLua string
	//go:embed handoff_pass.lua
	handoffPassLua string
	//go:embed handoff_acquire.lua
	handoffAcquireLua string
	//go:embed handoff_queue.lua
	handoffQueueLua string
	//go:embed handoff_join.lua
	handoffJoinLua string
	//go:embed handoff_release.lua
	handoffReleaseLua string
	//go:embed handoff_next.lua
	handoffNextLua string
	//go:embed handoff_leave.lua
	handoffLeaveLua string
	//go:embed handoff_check.lua
	handoffCheckLua string
	//go:embed handoff_renew.lua
	handoffRenewLua string
	//go:embed handoff_raise.lua
	handoffRaiseLua string

	handoffConstantsLua = fmt.Sprintf("local keep, first = %d, %d", handoffKeep.Milliseconds(), handoffFirst)

	// An uncontended acquire ends before the shared functions are made, which is
	// dear in Lua.
	handoffAcquire = newHandoffScript("local waits = true", handoffAcquireLua, handoffNumbersLua, handoffPassLua, handoffQueueLua)
	handoffTry     = newHandoffScript("local waits = false", handoffAcquireLua, handoffNumbersLua, handoffPassLua, handoffQueueLua)
	handoffJoin    = newHandoffScript(handoffNumbersLua, handoffPassLua, handoffJoinLua)
	handoffRelease = newHandoffScript(handoffReleaseLua)
	handoffNext    = newHandoffScript(handoffNumbersLua, handoffPassLua, handoffNextLua)
	handoffLeave   = newHandoffScript(handoffNumbersLua, handoffPassLua, handoffLeaveLua)
	handoffCheck   = newHandoffScript(handoffNumbersLua, handoffPassLua, handoffCheckLua)
	handoffRenew   = newHandoffScript(handoffRenewLua)
	handoffRaise   = newHandoffScript(handoffNumbersLua, handoffRaiseLua)
)

// handoffScript is a script that is called by its hash. It makes one command of
// what the caller keeps boxed, for single calls and for pipelines alike.
type handoffScript struct{ hash, text any }

func newHandoffScript(parts ...string) *handoffScript {
	text := handoffConstantsLua + "\n" + strings.Join(parts, "\n")
	return &handoffScript{redis.NewScript(text).Hash(), text}
}

// command is a call by the hash, or with the whole text for a server that does
// not know it yet.
func (s *handoffScript) command(ctx context.Context, whole bool, keys []any, args ...any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	if whole {
		all = append(all, "eval", s.text, len(keys))
	} else {
		all = append(all, "evalsha", s.hash, len(keys))
	}
	return redis.NewCmd(ctx, append(append(all, keys...), args...)...)
}

// run calls the script. It may share a request with others.
func (s *handoffScript) run(ctx context.Context, client redis.UniversalClient, keys []any, args ...any) *redis.Cmd {
	ctx = context.WithValue(ctx, mayCombine{}, true)
	cmd := s.command(ctx, false, keys, args...)
	if err := client.Process(ctx, cmd); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.command(ctx, true, keys, args...)
		_ = client.Process(ctx, cmd) // the command has its own error
	}
	return cmd
}

// handoffKeys are the keys of one lock, in the order of the scripts. All of
// them fall into the same slot of a Cluster as key itself, if that has no stray
// closing brace.
func handoffKeys(key string) []any {
	stem := key
	if open := strings.IndexByte(key, '{'); open < 0 || strings.IndexByte(key[open+1:], '}') <= 0 {
		stem = "{" + key + "}"
	}
	return []any{key, stem + ":lease", stem + ":queue", stem + ":fence"}
}
