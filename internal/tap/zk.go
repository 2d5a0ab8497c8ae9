package tap

import "context"

// Around returns a function that makes a call through t, for clients that do not support hooks. key
// names the data that the call accesses. If t is nil, Around returns nil.
func Around(t Tap, instance, target string) func(ctx context.Context, key string, call func() error) error {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, key string, call func() error) error {
		return t(ctx, OpFrom(ctx, Op{Instance: instance, Target: target, Keys: []string{key}}), func(context.Context) error { return call() })
	}
}
