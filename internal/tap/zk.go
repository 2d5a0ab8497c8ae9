package tap

import "context"

// Around returns a function that makes a call through t, for clients which have
// no hook of their own, as ZooKeeper's, whose calls take no context. key is what
// the call touches. nil, if t is.
func Around(t Tap, instance, target string) func(ctx context.Context, key string, call func() error) error {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, key string, call func() error) error {
		return t(ctx, OpFrom(ctx, Op{Instance: instance, Target: target, Keys: []string{key}}), func(context.Context) error { return call() })
	}
}
