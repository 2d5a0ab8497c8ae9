// Package redishook stands around every command of a go-redis client.
package redishook

import (
	"context"
	"errors"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// Hook is called for every command, pipeline and transaction of a client that it is
// added to, each as the one round trip that it is. It may call send never, later or
// twice. An error that is not send's takes the place of each reply: the commands have
// that and no value, as where a connection ends before the reply has come.
type Hook func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error

// DialHook leaves dialling as it is.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook stands around single commands.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook stands around pipelines and transactions.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.around(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (h Hook) around(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error {
	var sent error
	err := h(ctx, cmds, func(ctx context.Context) error {
		sent = send(ctx)
		return sent
	})
	if err == nil || errors.Is(err, sent) {
		return err
	}
	for _, cmd := range cmds {
		fail(cmd, err)
	}
	return err
}

// fail has a command be as one whose reply has not come. SetErr by itself leaves the
// value of a reply that has.
func fail(cmd redis.Cmder, err error) {
	cmd.SetErr(err)
	set := reflect.ValueOf(cmd).MethodByName("SetVal")
	if !set.IsValid() {
		return
	}
	zero := make([]reflect.Value, set.Type().NumIn())
	for i := range zero {
		zero[i] = reflect.Zero(set.Type().In(i))
	}
	set.Call(zero)
}
