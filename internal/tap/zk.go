package tap

import "context"

// Around returns what makes a call through t: it is for clients that have no
// hook of their own, as ZooKeeper's, whose calls do not even take a context.
// key is what the call touches. nil, if t is.
func Around(t Tap, instance, target string) func(ctx context.Context, key string, call func() error) error {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, key string, call func() error) error {
		return Do(ctx, t, OpFrom(ctx, Op{Instance: instance, Target: target, Keys: []string{key}}), func(context.Context) error { return call() })
	}
}
