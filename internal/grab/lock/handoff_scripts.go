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

	// An uncontended acquire and its release end before the shared functions
	// are made, which is dear in Lua.
	handoffAcquire = newHandoffScript(fmt.Sprintf("local keep = '%d'", handoffKeep.Milliseconds()), handoffAcquireLua, handoffNumbersLua, handoffPassLua, handoffQueueLua)
	handoffTry     = newHandoffScript("local keep", handoffAcquireLua, handoffNumbersLua, handoffPassLua, handoffQueueLua)
	handoffRelease = newHandoffScript(handoffReleaseLua, handoffNumbersLua, handoffPassLua, handoffNextLua)
	handoffLeave   = newHandoffScript(handoffNumbersLua, handoffPassLua, handoffLeaveLua)
	handoffCheck   = newHandoffScript(handoffNumbersLua, handoffPassLua, handoffCheckLua)
	handoffRenew   = newHandoffScript(handoffRenewLua)
	handoffRaise   = newHandoffScript(handoffNumbersLua, handoffRaiseLua)
)

// handoffScript is a script whose text is kept, for a pipeline cannot fall
// back to it command by command as redis.Script does.
type handoffScript struct {
	*redis.Script
	text string
}

func newHandoffScript(parts ...string) handoffScript {
	text := strings.Join(parts, "\n")
	return handoffScript{redis.NewScript(text), text}
}

// add puts a call of the script into a pipeline: by its hash, or with its
// whole text for a server that does not know it yet.
func (s handoffScript) add(ctx context.Context, pipe redis.Pipeliner, whole bool, keys []string, args ...any) *redis.Cmd {
	if whole {
		return pipe.Eval(ctx, s.text, keys, args...)
	}
	return pipe.EvalSha(ctx, s.Hash(), keys, args...)
}

// handoffKeys are the keys of one lock, in the order of the scripts. All of
// them fall into the same slot of a Cluster as key itself.
func handoffKeys(key string) []string {
	stem := key
	if open := strings.IndexByte(key, '{'); open < 0 || strings.IndexByte(key[open+1:], '}') <= 0 {
		stem = "{" + key + "}"
	}
	return []string{key, stem + ":queue", stem + ":fence"}
}
