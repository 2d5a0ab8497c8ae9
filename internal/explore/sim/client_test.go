package sim

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// token has a MarshalBinary method and no String method.
type token struct{ text string }

func (t token) MarshalBinary() ([]byte, error) { return []byte(t.text), nil }

// TestSentBy checks that sentBy returns the arguments as the server receives them, whatever
// their types.
func TestSentBy(t *testing.T) {
	cmd := redis.NewCmd(t.Context(), "set", "key", []byte("token-1-1"), token{"token-1-2"}, "px", 3000, 3*time.Second)
	want := []any{"set", "key", "token-1-1", "token-1-2", "px", 3000, 3 * time.Second}
	if got := sentBy(cmd); !reflect.DeepEqual(got, want) {
		t.Errorf("sentBy: %q, want %q", got, want)
	}
}

// TestReplyOf checks that replies are printed in the same way as by redis-cli.
func TestReplyOf(t *testing.T) {
	set := redis.NewBoolCmd(t.Context(), "set", "key", "token", "px", 3000, "nx")
	for _, tt := range []struct {
		cmd  redis.Cmder
		want string
	}{
		{valued(set, true), "OK"},
		{valued(set, false), "(nil)"},
		{valued(redis.NewBoolCmd(t.Context(), "expire", "key", 3), true), "1"},
		{valued(redis.NewBoolCmd(t.Context(), "setnx", "key", "token"), false), "0"},
		{failing(redis.NewStringCmd(t.Context(), "get", "key"), redis.Nil), "(nil)"},
	} {
		if got := replyOf(tt.cmd); got != tt.want {
			t.Errorf("replyOf(%s) = %q, want %q", tt.cmd, got, tt.want)
		}
	}
}

func valued(cmd *redis.BoolCmd, v bool) redis.Cmder {
	c := redis.NewBoolCmd(context.Background(), cmd.Args()...)
	c.SetVal(v)
	return c
}

func failing(cmd redis.Cmder, err error) redis.Cmder {
	cmd.SetErr(err)
	return cmd
}
