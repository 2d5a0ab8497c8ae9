package handoff_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/handoff"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/proc"

	"github.com/redis/go-redis/v9"
)

// requestTTL is the TTL in everyRequest. A process renews its lease, or checks the queue, after every
// third of it.
const requestTTL = 1500 * time.Millisecond

// everyRequest makes two processes send every kind of request. These are each script in each mode, the
// fast path, messages, renewals, checks of the queue, and the check of a silent subscription.
func everyRequest(ctx context.Context, opt *redis.Options, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var all [2]*handoff.Locker
	for i := range all {
		client := redis.NewClient(opt)
		defer client.Close()
		l, err := handoff.New(client, handoff.Options{TTL: requestTTL})
		if err != nil {
			return err
		}
		defer l.Close()
		all[i] = l
	}
	a, b := all[0], all[1]
	cycle := func(l *handoff.Locker) error {
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	held := func(l *handoff.Locker, meanwhile func() error) error {
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			return err
		}
		return errors.Join(meanwhile(), lease.Release(ctx))
	}
	steps := []func() error{
		func() error { return cycle(a) },
		func() error { return cycle(a) }, // on the fast path
		func() error {
			return held(a, func() error {
				if _, err := b.TryAcquire(ctx, key); !errors.Is(err, handoff.ErrBusy) {
					return fmt.Errorf("an attempt at a held lock returned %w", err)
				}
				for range 2 { // b checks the queue and then gives up
					if _, err := b.AcquireWithin(ctx, key, requestTTL/2); !errors.Is(err, handoff.ErrBusy) {
						return fmt.Errorf("a wait for a held lock returned %w", err)
					}
				}
				return nil
			})
		},
		func() error { // the processes take turns, and each has a second caller
			failed := make(chan error, 4)
			err := held(a, func() error {
				for _, l := range []*handoff.Locker{b, a, b, a} {
					go func() { failed <- cycle(l) }()
				}
				time.Sleep(requestTTL / 2)
				return nil
			})
			return errors.Join(err, <-failed, <-failed, <-failed, <-failed)
		},
		func() error { time.Sleep(3500 * time.Millisecond); return nil }, // the subscriptions receive nothing
		func() error { return a.RaiseFence(ctx, key, uint64(time.Now().UnixMicro())) },
		func() error { return a.Forget(ctx, key) },
		func() error { return cycle(b) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// TestProtocols checks that every request works with both versions of the Redis protocol.
func TestProtocols(t *testing.T) {
	t.Parallel()
	addr := conformtest.RedisServer(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			if err := everyRequest(t.Context(), &redis.Options{Addr: addr, Protocol: protocol}, fmt.Sprintf("order:%d", protocol)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	addr := must(proc.FreeAddr())
	_, port, _ := net.SplitHostPort(addr)
	path, pool := selfSigned(t)
	conformtest.RedisServer(t, "--tls-port", port, "--tls-cert-file", path+".crt", "--tls-key-file", path+".key", "--tls-ca-cert-file", path+".crt", "--tls-auth-clients", "no")
	if err := everyRequest(t.Context(), &redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool}}, "order:7"); err != nil {
		t.Error(err)
	}
}

// selfSigned writes a certificate for 127.0.0.1 and its key to path.crt and path.key.
func selfSigned(t *testing.T) (path string, pool *x509.CertPool) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	path = filepath.Join(t.TempDir(), "redis")
	must(0, os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(0, os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}), 0o600))
	pool = x509.NewCertPool()
	pool.AddCert(must(x509.ParseCertificate(der)))
	return path, pool
}

// TestACL checks that the rights in the README suffice for a user. Without any one of the listed
// commands, the server must refuse a request. Each user needs a separate server, because all users of
// a server share its scripts.
func TestACL(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(string(must(os.ReadFile("../../../handoff/README.md"))), "ACL SETUSER ")
	text, _, _ = strings.Cut(text, "```")
	rights := strings.Fields(text) // the first one is the name of the user
	var all sync.WaitGroup
	for i, right := range rights {
		command, ok := strings.CutPrefix(right, "+")
		if i > 0 && !ok {
			continue
		}
		given := slices.Clone(rights)
		if i > 0 {
			given = slices.Delete(given, i, i+1)
		}
		addr := conformtest.RedisServer(t)
		admin := clientOf(t, addr)
		must(admin.Do(t.Context(), append([]any{"acl", "setuser"}, anys(given)...)...).Result())
		all.Go(func() {
			err := everyRequest(t.Context(), &redis.Options{Addr: addr, Username: rights[0], Password: "password"}, "order:7")
			log, logErr := admin.ACLLog(t.Context(), 1000).Result()
			var refused []string
			for _, entry := range log {
				if !strings.HasPrefix(entry.Object, "client") { // go-redis names itself and asks for notifications, but needs neither
					refused = append(refused, entry.Object)
				}
			}
			switch {
			case logErr != nil:
				t.Error(logErr)
			case i == 0 && (err != nil || len(refused) > 0):
				t.Errorf("the rights do not suffice: %v; the server refused %q", err, refused)
			case i > 0 && !slices.Contains(refused, command):
				t.Errorf("%s is superfluous: without it, the error is %v, and the server refused %q", command, err, refused)
			}
		})
	}
	all.Wait()
}

func anys(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}
