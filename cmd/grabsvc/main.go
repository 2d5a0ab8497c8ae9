// Command grabsvc runs one instance of the order-grabbing service, which package instance
// implements.
package main

import (
	"context"
	"os"

	"grablab/internal/service/instance"
)

func main() {
	os.Exit(instance.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
