package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"

	"github.com/redis/go-redis/v9"
)

// flushScripts demonstrates what happens to a lock if Redis loses its cached scripts before the
// unlock. The unlock uses the token unlockAs, which the user can choose.
func flushScripts(ctx context.Context, kind, unlockAs string, stdout, stderr io.Writer) (_ *workshop.Scripts, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	st, err := stack.Start(ctx, stack.Config{Kind: kind, Needs: lock.Redis})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	instances := fleet.New(fleet.Config{
		Exe: exe, Instances: 1, OnLost: grab.Abort,
		Say: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) },
	}, st, fleet.FirstPort)
	defer func() { err = errors.Join(err, instances.Stop()) }()
	if err := instances.Equip(ctx, fleet.Setup{TTL: time.Minute, Timeout: time.Minute}); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: st.Redis, Protocol: 2})
	defer client.Close()
	fmt.Fprintf(stdout, "one instance, on %s\n\n", st.RedisVersion)
	return (&flush{instances.Instances[0], client, stdout}).play(ctx, unlockAs)
}

// flush holds the connections for -script-flush.
type flush struct {
	instance *fleet.Instance
	redis    *redis.Client
	out      io.Writer
}

// play locks the key k with the token u0, unlocks it, and locks it with the token u1. It then sends
// SCRIPT FLUSH, and unlocks the key with the token unlockAs.
func (f *flush) play(ctx context.Context, unlockAs string) (*workshop.Scripts, error) {
	var first, locked grab.Locked
	var before, released grab.Released
	sha, err := f.redis.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(f.out, "SCRIPT LOAD \"return 1\"         %s\n", sha)
	for _, call := range []struct {
		path   string
		answer any
	}{{"/distrLock/k/u0", &first}, {"/distrUnlock/k/u0", &before}, {"/distrLock/k/u1", &locked}} {
		if err := f.post(ctx, call.path, call.answer); err != nil {
			return nil, err
		}
	}
	if err := f.redis.ScriptFlush(ctx).Err(); err != nil {
		return nil, err
	}
	fmt.Fprintf(f.out, "SCRIPT FLUSH                   OK\n")
	reply := f.redis.EvalSha(ctx, sha, nil).Err()
	if reply == nil {
		return nil, errors.New("the Redis server still has the script after SCRIPT FLUSH: another client may have loaded it, so run the exercise again")
	}
	fmt.Fprintf(f.out, "EVALSHA %.8s… 0            %v\n", sha, reply)
	if err := f.post(ctx, "/distrUnlock/k/"+unlockAs, &released); err != nil {
		return nil, err
	}
	return &workshop.Scripts{Locked: locked.Locked, NoScript: reply.Error(), Released: released.Released}, nil
}

// post sends a request to the instance, prints the response and decodes it.
func (f *flush) post(ctx context.Context, path string, answer any) error {
	var body json.RawMessage
	if err := f.instance.Call(ctx, http.MethodPost, path, nil, &body); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "POST %-25s %s\n", path, bytes.TrimSpace(body))
	return json.Unmarshal(body, answer)
}
