package experiment

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// shopCommand makes the test binary run as an instance of a user's service. The instances keep
// their locks and winners as files in a shared folder.
const shopCommand = "shop"

const shopLease = 300 * time.Millisecond

// serveShop serves grabs. Each grab reads the order, works, and writes the winner, with a lock that
// is never renewed. The arguments are the folder and the behaviour of the service.
func serveShop(_ context.Context, args []string, _, _ io.Writer) int {
	dir, kind := args[0], args[1]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // exit if the parent process exits
	var served atomic.Int64
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/grab") {
			http.NotFound(w, r)
			return
		}
		order := filepath.Join(dir, strings.Split(r.URL.Path, "/")[2])
		work := 80 * time.Millisecond
		if n := served.Add(1); kind == "soon fast" && n > 35 {
			work = 0
		}
		w.WriteHeader(shopGrab(order, kind, work))
	})))
}

func shopGrab(order, kind string, work time.Duration) int {
	if taken, err := os.Stat(order + ".lock"); err == nil {
		if time.Since(taken.ModTime()) < shopLease {
			return http.StatusLocked
		}
		_ = os.Remove(order + ".lock") // the lock has expired
	}
	held, err := os.OpenFile(order+".lock", os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return http.StatusLocked
	}
	defer os.Remove(order + ".lock")
	defer held.Close()
	if _, err := os.Stat(order + ".won"); err == nil {
		return http.StatusConflict
	}
	time.Sleep(work)
	flags := os.O_CREATE
	if kind == "guarded" { // the write fails if there is already a winner
		flags |= os.O_EXCL
	}
	won, err := os.OpenFile(order+".won", flags, 0o600)
	if err != nil {
		return http.StatusConflict
	}
	_ = won.Close()
	return http.StatusOK
}
