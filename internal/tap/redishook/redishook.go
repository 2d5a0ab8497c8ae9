// Package redishook calls a function around every command that a go-redis client sends.
package redishook

import (
	"context"
	"errors"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// Hook is called for every command, pipeline or transaction. It calls send to execute the commands.
// It may call send any number of times, even after it has returned. If it returns its own error,
// the commands have that error and no value.
type Hook func(ctx context.Context, cmds []redis.Cmder, send func(context.Context) error) error

// DialHook returns next unchanged.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook calls h around a single command.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook calls h around a pipeline or a transaction.
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

// fail makes a command look as if it had received no reply. It also resets the value, because
// SetErr does not remove an earlier reply's value.
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
