package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// luaHost runs a Redis server's Lua scripts. It reuses one Lua state, because creating a state for
// each run took half of the search time. Scripts with unsupported features run in miniredis
// instead.
type luaHost struct {
	server *server.Server
	state  *lua.LState
	calls  *server.Peer // the connection for the scripts' commands
	reply  *bytes.Buffer
	reader *bufio.Reader                 // reads from reply
	status *lua.LTable                   // the table that all status replies share
	bodies map[string]*lua.FunctionProto // the compiled scripts by SHA-1; nil for a script that miniredis must run
}

// newLuaHost returns an interpreter whose scripts can call the commands of server s.
func newLuaHost(s *server.Server) *luaHost {
	h := &luaHost{server: s, reply: &bytes.Buffer{}, bodies: map[string]*lua.FunctionProto{}}
	h.calls, h.reader = server.NewPeer(bufio.NewWriter(h.reply)), bufio.NewReader(h.reply)
	h.state = lua.NewState(lua.Options{SkipOpenLibs: true})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
		lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		h.state.Push(h.state.NewFunction(open))
		h.state.Push(lua.LString(name))
		h.state.Call(1, 0)
	}
	h.status = h.state.NewTable()
	functions := h.state.NewTable()
	functions.RawSetString("call", h.state.NewFunction(h.command(false)))
	functions.RawSetString("pcall", h.state.NewFunction(h.command(true)))
	h.state.SetGlobal("redis", functions)
	h.protect()
	return h
}

// protect makes access to an undefined global variable fail, as in Redis.
func (h *luaHost) protect() {
	guard := h.state.NewTable()
	refuse := h.state.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2).String())
		return 0
	})
	guard.RawSetString("__index", refuse)
	guard.RawSetString("__newindex", refuse)
	h.state.SetMetatable(h.state.G.Global, guard)
}

// unsupportedLua lists names that luaHost does not support. miniredis runs the scripts that contain
// them.
var unsupportedLua = []string{
	"cjson", "cmsgpack", "struct.", "bit.", "os.", "debug", "require", "coroutine", "server.", "_G", "metatable", "rawset",
	"redis.error_reply", "redis.status_reply", "redis.log", "redis.sha1hex", "redis.set",
	"redis.replicate", "redis.LOG", "redis.breakpoint", "redis.debug",
}

// learn compiles a script, or leaves it to miniredis if luaHost cannot run it.
func (h *luaHost) learn(body string) {
	sha := redis.NewScript(body).Hash()
	if _, ok := h.bodies[sha]; ok {
		return
	}
	h.bodies[sha] = nil
	for _, name := range unsupportedLua {
		if strings.Contains(body, name) {
			return
		}
	}
	chunk, err := parse.Parse(strings.NewReader(body), "script")
	if err != nil {
		return
	}
	if proto, err := lua.Compile(chunk, "script"); err == nil {
		proto.IsVarArg &^= lua.VarArgNeedsArg // scripts have no arguments, so skip creating the table for them
		h.bodies[sha] = proto
	}
}

// eval runs an EVAL or EVALSHA command and writes the reply to p. It returns false if miniredis
// must run the command.
func (h *luaHost) eval(p *server.Peer, command string, args []string) bool {
	if len(args) < 3 || command != "EVAL" && command != "EVALSHA" {
		return false
	}
	sha := args[1]
	if command == "EVAL" {
		sha = redis.NewScript(sha).Hash()
	}
	proto := h.bodies[sha]
	n, err := strconv.Atoi(args[2])
	if proto == nil || err != nil || n < 0 || n > len(args)-3 {
		return false
	}
	h.set("KEYS", args[3:3+n])
	h.set("ARGV", args[3+n:])
	h.state.Push(h.state.NewFunctionFromProto(proto))
	if err := h.state.PCall(0, 1, nil); err != nil {
		p.WriteError(errorText(err))
		return true
	}
	result := h.state.Get(-1)
	h.state.Pop(1)
	writeLua(p, result)
	return true
}

func errorText(err error) string {
	if api, ok := errors.AsType[*lua.ApiError](err); ok && api.Object != nil {
		return strings.SplitN(api.Object.String(), "\n", 2)[0]
	}
	return "ERR " + strings.SplitN(err.Error(), "\n", 2)[0]
}

func (h *luaHost) set(name string, values []string) {
	t := h.state.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	h.state.G.Global.RawSetString(name, t)
}

// command returns redis.call or redis.pcall. After an error reply, redis.call ends the script, and
// redis.pcall returns the error as a table.
func (h *luaHost) command(protected bool) lua.LGFunction {
	return func(l *lua.LState) int {
		args := make([]string, l.GetTop())
		for i := range args {
			arg := l.Get(i + 1)
			if !lua.LVCanConvToString(arg) {
				l.RaiseError("ERR Lua redis lib command arguments must be strings or integers")
			}
			args[i] = lua.LVAsString(arg)
		}
		if len(args) == 0 {
			l.RaiseError("ERR Please specify at least one argument for this redis lib call")
		}
		h.reply.Reset()
		h.server.Dispatch(h.calls, args)
		h.calls.Flush()
		h.reader.Reset(h.reply)
		reply, err := server.ParseReply(h.reader)
		switch {
		case err == nil:
			l.Push(h.luaOf(l, reply))
		case protected:
			failed := l.NewTable()
			failed.RawSetString("err", lua.LString(err.Error()))
			l.Push(failed)
		default:
			l.Error(lua.LString(err.Error()), 0)
		}
		return 1
	}
}

// luaOf converts a Redis reply to the value that a script gets from redis.call.
func (h *luaHost) luaOf(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case server.Simple:
		// Scripts do not change the table, so reuse it. New tables would account for a tenth of all
		// allocated memory.
		h.status.RawSetString("ok", lua.LString(r))
		return h.status
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, e := range r {
			t.Append(h.luaOf(l, e))
		}
		return t
	default:
		l.RaiseError("ERR a reply of type %T", r)
		return lua.LNil
	}
}

// writeLua sends a script's result to the client as a Redis reply.
func writeLua(p *server.Peer, value lua.LValue) {
	if lua.LVIsFalse(value) { // nil is false too
		p.WriteNull()
		return
	}
	switch v := value.(type) {
	case lua.LBool:
		p.WriteInt(1)
	case lua.LNumber:
		p.WriteInt(int(v))
	case lua.LString:
		p.WriteBulk(string(v))
	case *lua.LTable:
		if e := v.RawGetString("err"); e != lua.LNil {
			p.WriteError(e.String())
			return
		}
		if ok := v.RawGetString("ok"); ok != lua.LNil {
			p.WriteInline(ok.String())
			return
		}
		n := 0
		for v.RawGetInt(n+1) != lua.LNil { // a table ends before its first nil
			n++
		}
		p.WriteLen(n)
		for i := range n {
			writeLua(p, v.RawGetInt(i+1))
		}
	default:
		p.WriteError(fmt.Sprintf("ERR a script returned a %s", value.Type()))
	}
}
