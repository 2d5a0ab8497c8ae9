package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack/stacktest"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { stacktest.Main(m) }

var update = flag.Bool("update", false, "replace the stored verdicts, and with GRABLAB_PROVE=1 the answers of the real servers")

// answersAgree checks that a simulated server gives the stored answers of a real server. If GRABLAB_PROVE
// is 1, it first checks that the real server still gives these answers.
func answersAgree(t *testing.T, name string, simulated, real func(t *testing.T) []string) {
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("GRABLAB_PROVE") == "1" {
		answers := strings.Join(real(t), "\n") + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(answers), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		compareAnswers(t, "the real "+name, answers, path)
	}
	synctest.Test(t, func(t *testing.T) {
		compareAnswers(t, "the simulated "+name, strings.Join(simulated(t), "\n")+"\n", path)
	})
}

func compareAnswers(t *testing.T, who, answers, path string) {
	t.Helper()
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(answers, "\n"), strings.Split(string(kept), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s, from line %d of %s:\n%s\nwant\n%s", who, i+1, path,
				strings.Join(got[min(i, len(got)):], "\n"), strings.Join(want[min(i, len(want)):], "\n"))
			return
		}
	}
}

// etcdTrial sends requests to one server and records its answers.
type etcdTrial struct {
	*clientv3.Client
	ctx     context.Context
	base    int64 // the revision at the beginning
	leases  map[string]clientv3.LeaseID
	answers []string
}

func (e *etcdTrial) say(asked string, answer any, err error) {
	if err != nil {
		answer = err
	}
	e.answers = append(e.answers, fmt.Sprintf("%s: %v", asked, answer))
}

// keys describes the keys of a range, with revisions relative to the beginning.
func (e *etcdTrial) keys(r *clientv3.GetResponse) string {
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("count %d, more %t", r.Count, r.More)
	for _, kv := range r.Kvs {
		text += fmt.Sprintf(", %s=%q of %d changed in %d version %d", kv.Key, kv.Value, kv.CreateRevision-e.base, kv.ModRevision-e.base, kv.Version)
		if kv.Lease != 0 {
			text += " leased"
		}
	}
	return text
}

func (e *etcdTrial) get(key string, opts ...clientv3.OpOption) {
	r, err := e.Get(e.ctx, key, opts...)
	e.say("get "+key, e.keys(r), err)
}

func (e *etcdTrial) put(key, value string, opts ...clientv3.OpOption) {
	r, err := e.Put(e.ctx, key, value, opts...)
	e.say("put "+key, revisionOf(r, e.base), err)
}

func revisionOf(r *clientv3.PutResponse, base int64) string {
	if r == nil {
		return ""
	}
	return fmt.Sprint("revision ", r.Header.Revision-base)
}

func (e *etcdTrial) grant(name string, seconds int64) {
	r, err := e.Grant(e.ctx, seconds)
	if err == nil {
		e.leases[name] = r.ID
		e.say("grant "+name, fmt.Sprint(r.TTL, "s"), nil)
		return
	}
	e.say("grant "+name, nil, err)
}

func (e *etcdTrial) revoke(name string) {
	_, err := e.Revoke(e.ctx, e.leases[name])
	e.say("revoke "+name, "done", err)
}

func (e *etcdTrial) keepAlive(name string) {
	r, err := e.KeepAliveOnce(e.ctx, e.leases[name])
	if err != nil {
		e.say("keep alive "+name, nil, err)
		return
	}
	e.say("keep alive "+name, fmt.Sprint(r.TTL, "s"), nil)
}

func (e *etcdTrial) txn(asked string, ops ...clientv3.Op) {
	r, err := e.Txn(e.ctx).Then(ops...).Commit()
	if err != nil {
		e.say(asked, nil, err)
		return
	}
	text := fmt.Sprintf("succeeded %t, revision %d", r.Succeeded, r.Header.Revision-e.base)
	for _, op := range r.Responses {
		if got := op.GetResponseRange(); got != nil {
			text += "; " + e.keys((*clientv3.GetResponse)(got))
		}
	}
	e.say(asked, text, nil)
}

// next records the next response of a watch.
func (e *etcdTrial) next(asked string, w clientv3.WatchChan) {
	select {
	case r, ok := <-w:
		text := fmt.Sprintf("open %t, created %t", ok, r.Created)
		for _, ev := range r.Events {
			text += fmt.Sprintf(", %s %s in %d", ev.Type, ev.Kv.Key, ev.Kv.ModRevision-e.base)
		}
		e.say(asked, text, r.Err())
	case <-time.After(10 * time.Second):
		e.say(asked, "nothing", nil)
	}
}

// lastTwo returns the options with which the lock finds the newest key of a queue and the key before it.
// If most is not 0, the lock ignores keys that were created after this revision.
func lastTwo(most int64) []clientv3.OpOption {
	return append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(most), clientv3.WithLimit(2), clientv3.WithKeysOnly())
}

// run sends every kind of request that a lock sends, and similar ones, and returns the answers.
func (e *etcdTrial) run() []string {
	e.leases = map[string]clientv3.LeaseID{"never granted": 4242}
	first, err := e.Get(e.ctx, "q")
	if err != nil {
		return []string{err.Error()}
	}
	e.base = first.Header.Revision
	e.grant("a", 60)
	e.grant("b", 60)
	e.put("q/1", "one", clientv3.WithLease(e.leases["a"]))
	e.put("q/2", "two", clientv3.WithLease(e.leases["b"]))
	e.put("q/2", "two again", clientv3.WithLease(e.leases["b"]))
	e.put("r", "beside")
	e.put("", "without a key")
	e.put("q/4", "without a lease", clientv3.WithLease(e.leases["never granted"]))
	e.get("q/1")
	e.get("q/3")
	e.get("q/", clientv3.WithPrefix())
	e.get("q/2", clientv3.WithFromKey())
	e.get("q/", lastTwo(0)...)
	e.get("q/", lastTwo(e.base+1)...)
	e.txn("enqueue", clientv3.OpPut("q/3", "three", clientv3.WithLease(e.leases["b"])), clientv3.OpGet("q/", lastTwo(0)...))
	e.txn("enqueue without a lease", clientv3.OpPut("q/4", "x"), clientv3.OpPut("q/5", "y", clientv3.WithLease(e.leases["never granted"])))
	e.get("q/4")
	e.put("s", "new")

	ctx, cancel := context.WithCancel(e.ctx)
	ending := e.Watch(ctx, "q/1", clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	e.next("watch the end of q/1", ending)
	since := e.Watch(ctx, "q/", clientv3.WithPrefix(), clientv3.WithRev(e.base+3))
	e.next("watch q/ since 3", since)
	e.put("q/1", "is changed", clientv3.WithLease(e.leases["a"]))
	e.next("watch q/", since)
	e.revoke("a")
	e.next("watch the end of q/1", ending)
	e.next("watch q/", since)
	e.revoke("a")
	cancel()
	e.next("a watch is cancelled", ending)
	e.keepAlive("a")
	e.keepAlive("b")

	e.grant("short", 1)
	e.put("short", "lived", clientv3.WithLease(e.leases["short"]))
	ctx, cancel = context.WithCancel(e.ctx)
	e.next("it runs out", e.Watch(ctx, "short"))
	cancel()
	e.get("short")
	e.keepAlive("short")
	e.revoke("b")
	e.get("q/", clientv3.WithPrefix())
	return e.answers
}

// TestEtcdAnswers checks that the simulated etcd answers like the real one.
func TestEtcdAnswers(t *testing.T) {
	s := newEtcdServer("etcd")
	client, err := s.client(&instance{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answersAgree(t, "etcd", func(t *testing.T) []string {
		s.reset()
		defer s.disconnect()
		return (&etcdTrial{Client: client, ctx: context.Background()}).run()
	}, func(t *testing.T) []string {
		real, err := lock.DialEtcd(stacktest.With(t, consensus).Etcd)
		if err != nil {
			t.Fatal(err)
		}
		defer real.Close()
		return (&etcdTrial{Client: real, ctx: t.Context()}).run()
	})
}

// TestEtcdRefuses checks that a request that no lock sends returns an error instead of being ignored.
func TestEtcdRefuses(t *testing.T) {
	s := newEtcdServer("etcd")
	s.reset()
	client, err := s.client(&instance{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, ask := range map[string]func() error{
		"compact":     func() error { _, err := client.Compact(t.Context(), 1); return err },
		"delete":      func() error { _, err := client.Delete(t.Context(), "k"); return err },
		"sort by key": func() error { _, err := client.Get(t.Context(), "k", clientv3.WithLastKey()...); return err },
		"oldest":      func() error { _, err := client.Get(t.Context(), "k", clientv3.WithFirstCreate()...); return err },
		"count":       func() error { _, err := client.Get(t.Context(), "k", clientv3.WithCountOnly()); return err },
		"if": func() error {
			_, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.Version("k"), "=", 0)).Commit()
			return err
		},
		"in a transaction": func() error {
			_, err := client.Txn(t.Context()).Then(clientv3.OpGet("k", clientv3.WithRev(1))).Commit()
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "the simulated etcd does not support this request") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const consensus = lock.ZooKeeper | lock.Etcd

// zkTrial sends requests to one server over two sessions, and records its answers.
type zkTrial struct {
	dial    func() (net.Conn, error)
	answers []string
}

// zkClient is a client whose connection a test can break and keep broken.
type zkClient struct {
	*zk.Conn
	broken  atomic.Bool
	mu      sync.Mutex
	conn    net.Conn
	expired chan struct{}
}

type silence struct{}

func (silence) Printf(string, ...any) {}

func (z *zkTrial) connect(timeout time.Duration) (*zkClient, error) {
	c := &zkClient{expired: make(chan struct{}, 1)}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, timeout, zk.WithLogger(silence{}), zk.WithLogInfo(false),
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			if c.broken.Load() {
				return nil, errDown
			}
			conn, err := z.dial()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.conn = conn
			return conn, err
		}),
		zk.WithEventCallback(func(e zk.Event) {
			switch e.State {
			case zk.StateHasSession:
				begin()
			case zk.StateExpired:
				c.expired <- struct{}{}
			}
		}))
	if err != nil {
		return nil, err
	}
	c.Conn = conn
	select {
	case <-begun:
		return c, nil
	case <-time.After(10 * time.Second):
		return nil, errDown
	}
}

func (c *zkClient) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Close()
}

func (z *zkTrial) say(asked string, answer any, err error) {
	if err != nil {
		answer = err
	}
	z.answers = append(z.answers, fmt.Sprintf("%s: %v", asked, answer))
}

func (z *zkTrial) create(c *zkClient, path string, mode int32) string {
	var made string
	var err error
	if mode == zk.FlagContainer {
		made, err = c.CreateContainer(path, nil, mode, zk.WorldACL(zk.PermAll))
	} else {
		made, err = c.Create(path, []byte("data"), mode, zk.WorldACL(zk.PermAll))
	}
	z.say("create "+path, made, err)
	return made
}

func (z *zkTrial) delete(c *zkClient, path string, version int32) {
	z.say(fmt.Sprint("delete ", path, " of version ", version), "done", c.Delete(path, version))
}

func (z *zkTrial) list(c *zkClient, path string) {
	names, stat, err := c.Children(path)
	slices.Sort(names)
	z.say("list "+path, fmt.Sprint(names, " ", textOfStat(stat)), err)
}

func (z *zkTrial) exists(c *zkClient, path string) {
	ok, stat, err := c.Exists(path)
	z.say("exists "+path, fmt.Sprint(ok, " ", textOfStat(stat)), err)
}

// textOfStat describes the parts of a stat that a lock can depend on.
func textOfStat(s *zk.Stat) string {
	if s == nil {
		return "no stat"
	}
	return fmt.Sprintf("owned %t, %d bytes, %d children, version %d, children's %d",
		s.EphemeralOwner != 0, s.DataLength, s.NumChildren, s.Version, s.Cversion)
}

func (z *zkTrial) next(asked string, events <-chan zk.Event) {
	select {
	case e := <-events:
		z.say(asked, fmt.Sprint(e.Type, " ", e.Path), e.Err)
	case <-time.After(20 * time.Second):
		z.say(asked, "nothing", nil)
	}
}

func (z *zkTrial) run() []string {
	const shared, alone = "/trial", "/trial/alone"
	a, err := z.connect(30 * time.Second)
	if err != nil {
		return []string{err.Error()}
	}
	defer a.Close()
	b, err := z.connect(4 * time.Second)
	if err != nil {
		return []string{err.Error()}
	}
	z.create(a, shared+"/too/early", zk.FlagPersistent)
	z.create(a, shared, zk.FlagPersistent)
	z.create(a, shared, zk.FlagPersistent)
	z.create(a, shared+"/box", zk.FlagContainer)
	z.create(b, shared+"/box", zk.FlagContainer)
	z.exists(a, shared+"/box")
	first := z.create(a, shared+"/box/a-", zk.FlagEphemeralSequential)
	second := z.create(b, shared+"/box/b-", zk.FlagEphemeralSequential)
	third := z.create(b, shared+"/box/b-", zk.FlagEphemeralSequential)
	z.list(b, shared+"/box")
	z.exists(a, second)
	z.create(a, first+"/below", zk.FlagPersistent)
	z.delete(a, shared+"/box", -1)
	z.delete(a, first, 7)
	z.delete(a, shared+"/nothing", -1)
	z.exists(a, shared+"/nothing")
	z.list(a, shared+"/nothing")

	_, s1, gone, err := b.GetW(first)
	z.say("watch "+first, textOfStat(s1), err)
	_, _, _, err = b.GetW(shared + "/nothing")
	z.say("watch nothing", "stands", err)
	z.delete(a, first, -1)
	z.next("it goes", gone)
	z.create(a, alone, zk.FlagPersistent)
	_, s2, _ := a.Exists(second)
	_, s3, _ := a.Exists(third)
	if s1 == nil || s2 == nil || s3 == nil {
		return append(z.answers, "a node is missing")
	}
	z.say("czxids grow", s1.Czxid < s2.Czxid && s2.Czxid < s3.Czxid, nil)
	z.create(a, shared+"/box/a-", zk.FlagEphemeralSequential)

	// The connection breaks for less than the session's timeout.
	_, _, gone, err = b.GetW(alone)
	z.say("watch "+alone, "stands", err)
	b.breakOff()
	z.delete(a, alone, -1)
	z.next("it goes meanwhile", gone)
	z.exists(b, second)

	// The connection breaks for longer than the session's timeout.
	_, _, gone, err = a.GetW(third)
	z.say("watch "+third, "stands", err)
	b.broken.Store(true)
	b.breakOff()
	z.next("the session expires", gone)
	z.exists(a, second)
	b.broken.Store(false)
	select {
	case <-b.expired:
		z.say("its client is told", true, nil)
	case <-time.After(20 * time.Second):
		z.say("its client is told", false, nil)
	}
	b.Close()

	c, err := z.connect(30 * time.Second)
	if err != nil {
		return append(z.answers, err.Error())
	}
	last := z.create(c, shared+"/box/c-", zk.FlagEphemeralSequential)
	_, _, gone, err = a.GetW(last)
	z.say("watch "+last, "stands", err)
	c.Close()
	z.next("the session is closed", gone)
	z.list(a, shared+"/box")
	return z.answers
}

// TestZooKeeperAnswers checks that the simulated ZooKeeper answers like the real one.
func TestZooKeeperAnswers(t *testing.T) {
	answersAgree(t, "zookeeper", func(t *testing.T) []string {
		s := newZKServer("zookeeper")
		s.reset()
		defer s.disconnect()
		return (&zkTrial{dial: func() (net.Conn, error) { return s.dial(nil, 0) }}).run()
	}, func(t *testing.T) []string {
		servers := stacktest.With(t, consensus).ZooKeeper
		return (&zkTrial{dial: func() (net.Conn, error) { return net.Dial("tcp", servers[0]) }}).run()
	})
}

// TestZooKeeperRefusesTheRest checks that an unsupported request returns an error instead of
// being ignored.
func TestZooKeeperRefusesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newZKServer("zookeeper")
		s.reset()
		defer s.disconnect()
		c, err := (&zkTrial{dial: func() (net.Conn, error) { return s.dial(nil, 0) }}).connect(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, set := c.Set("/", nil, -1)
		_, _, _, children := c.ChildrenW("/")
		_, _, _, created := c.ExistsW("/nothing")
		for asked, err := range map[string]error{"set": set, "watch children": children, "watch for a new node": created} {
			if err == nil || errors.Is(err, zk.ErrConnectionClosed) {
				t.Errorf("request %s should be refused, but the error is %v", asked, err)
			}
		}
	})
}
