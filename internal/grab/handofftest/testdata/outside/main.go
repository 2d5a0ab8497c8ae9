// Command outside uses package handoff from another module.
package main

import (
	"context"
	"fmt"
	"os"

	"grablab/handoff"

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, err := handoff.New(client, handoff.Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.Acquire(ctx, "order:7")
	if err != nil {
		return err
	}
	fmt.Println("locked", lease.Key(), lease.Fence() > 0)
	return lease.Release(ctx)
}
