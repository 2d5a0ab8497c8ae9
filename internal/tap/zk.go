package tap

import "context"

// Around returns a function that makes a call through t. It serves clients without hooks,
// such as the ZooKeeper client, whose calls take no context. key names what the call
// touches. Around returns nil if t is nil.
func Around(t Tap, instance, target string) func(ctx context.Context, key string, call func() error) error {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, key string, call func() error) error {
		return t(ctx, OpFrom(ctx, Op{Instance: instance, Target: target, Keys: []string{key}}), func(context.Context) error { return call() })
	}
}
