package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// errEtcdLost is the gRPC error for a broken connection. The etcd client retries some calls after
// this error.
var errEtcdLost = status.Error(codes.Unavailable, errLost.Error())

// client returns a real etcd client for one instance. It needs no connection, because an
// interceptor answers its calls. Interceptors in opts run first.
//
// The client uses our watcher instead of its own, because a goroutine of its own watcher would stop
// the simulated clock.
func (s *etcdServer) client(inst *instance, opts ...grpc.DialOption) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:             []string{"127.0.0.1:2379"},
		BackoffJitterFraction: 1e-18, // almost no jitter, because jitter would differ between replays
		Logger:                zap.NewNop(),
		DialOptions: append(opts,
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, _ string, request, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				return s.ask(ctx, inst, request, reply)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				if method != pb.Lease_LeaseKeepAlive_FullMethodName {
					return nil, errUnknownToEtcd(method)
				}
				return &etcdKeepAlive{ctx: ctx, server: s, inst: inst}, nil
			}),
		),
	})
	if err != nil {
		return nil, fmt.Errorf("sim: etcd: %w", err)
	}
	client.Watcher = etcdWatcher{s, inst}
	return client, nil
}

// ask sends a request once the simulation releases it.
func (s *etcdServer) ask(ctx context.Context, inst *instance, request, reply any) error {
	var refused error
	send := func(ctx context.Context) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.down.Load():
			return errEtcdLost
		}
		answer, err := s.answer(request)
		if err == nil {
			proto.Merge(reply.(proto.Message), answer)
		}
		refused = err
		return err
	}
	w := inst.world
	if w == nil {
		return asStatus(send(ctx))
	}
	words := etcdWords(request)
	_, renewal := request.(*pb.LeaseKeepAliveRequest) // a renewal fails immediately if the server is down
	return asStatus(w.gate.through(ctx, inst, &call{
		target: s.name, node: s.node, sent: [][]any{words}, request: request, awaits: !renewal, lost: errEtcdLost,
		text: func() string { return textOfEtcd(words, reply, refused) },
	}, send))
}

// asStatus converts a context error to the gRPC status error of a real client.
func asStatus(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return err
}

func (s *etcdServer) arrive(c *call) { _, _ = s.answer(c.request) }

// etcdKeepAlive is a stream of keep-alive requests, which the server answers one at a time.
type etcdKeepAlive struct {
	ctx     context.Context
	server  *etcdServer
	inst    *instance
	request any
}

func (k *etcdKeepAlive) SendMsg(m any) error {
	k.request = m
	return nil
}

func (k *etcdKeepAlive) RecvMsg(m any) error          { return k.server.ask(k.ctx, k.inst, k.request, m) }
func (k *etcdKeepAlive) Context() context.Context     { return k.ctx }
func (k *etcdKeepAlive) CloseSend() error             { return nil }
func (k *etcdKeepAlive) Header() (metadata.MD, error) { return nil, nil }
func (k *etcdKeepAlive) Trailer() metadata.MD         { return nil }

// etcdWatcher implements an instance's watches. A new watch blocks until the simulation releases
// it.
type etcdWatcher struct {
	server *etcdServer
	inst   *instance
}

type etcdWatch struct {
	op        clientv3.Op
	next      int64 // the revision of the first event that was not sent yet
	closed    bool
	responses chan clientv3.WatchResponse
}

// maxResponses is the capacity of a watch channel. No client leaves this many responses unread.
const maxResponses = 64

// Watch waits until the server has registered the watch. It closes the returned channel when ctx
// ends.
func (w etcdWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	watch := &etcdWatch{op: clientv3.OpWatch(key, opts...), responses: make(chan clientv3.WatchResponse, maxResponses)}
	standing := make(chan struct{})
	stands := func() {
		w.server.watch(watch)
		close(standing)
	}
	c := &call{
		ctx: ctx, phase: phaseOf(ctx), target: w.server.name, node: w.server.node, deliver: stands, awaits: true,
		text: func() string { return "subscribe to " + key },
	}
	world := w.inst.world
	if world == nil || !world.gate.subscribe(w.inst, c) {
		stands()
	}
	context.AfterFunc(ctx, func() {
		if world != nil {
			world.gate.withdraw(c)
		}
		w.server.unwatch(watch)
	})
	select {
	case <-standing:
	case <-ctx.Done():
	}
	return watch.responses
}

// RequestProgress always returns an error, because no lock calls it.
func (w etcdWatcher) RequestProgress(context.Context) error { return errUnknownToEtcd("progress") }

// Close does nothing, because watches end with their contexts.
func (w etcdWatcher) Close() error { return nil }

func (s *etcdServer) watch(w *etcdWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.closed {
		return
	}
	if w.next = w.op.Rev(); w.next == 0 {
		w.next = s.revision + 1
	}
	s.watches = append(s.watches, w)
	if w.op.IsCreatedNotify() {
		w.responses <- clientv3.WatchResponse{Header: s.headerLocked(), Created: true}
	}
	s.tellLocked(w)
}

func (s *etcdServer) unwatch(w *etcdWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.closed = true
	close(w.responses)
	s.watches = slices.DeleteFunc(s.watches, func(other *etcdWatch) bool { return other == w })
}

// tellLocked sends new events to a watch. It panics if the watch's channel is full.
func (s *etcdServer) tellLocked(w *etcdWatch) {
	if s.down.Load() {
		return
	}
	response := clientv3.WatchResponse{Header: s.headerLocked()}
	for _, e := range s.history {
		filtered := e.Type == clientv3.EventTypePut && w.op.IsFilterPut() || e.Type == clientv3.EventTypeDelete && w.op.IsFilterDelete()
		if e.Kv.ModRevision >= w.next && !filtered && inRange(string(e.Kv.Key), w.op.KeyBytes(), w.op.RangeBytes()) {
			response.Events = append(response.Events, e)
		}
	}
	w.next = s.revision + 1
	if len(response.Events) == 0 {
		return
	}
	select {
	case w.responses <- response:
	default:
		panic("sim: the client does not read its etcd watch")
	}
}

// etcdWords splits a request into words. Each key or value is one word, even if it contains spaces.
func etcdWords(request any) []any {
	switch r := request.(type) {
	case *pb.LeaseGrantRequest:
		return []any{"grant a lease of", fmt.Sprint(r.TTL, "s")}
	case *pb.LeaseRevokeRequest:
		return []any{"revoke lease", fmt.Sprintf("%x", r.ID)}
	case *pb.LeaseKeepAliveRequest:
		return []any{"keep alive lease", fmt.Sprintf("%x", r.ID)}
	case *pb.RangeRequest:
		return []any{"get", string(r.Key)}
	case *pb.PutRequest:
		return []any{"put", string(r.Key), string(r.Value)}
	case *pb.TxnRequest:
		var words []any
		for _, op := range r.Success {
			if put := op.GetRequestPut(); put != nil {
				words = append(words, etcdWords(put)...)
			} else if get := op.GetRequestRange(); get != nil {
				words = append(words, etcdWords(get)...)
			}
		}
		return words
	default:
		return []any{fmt.Sprintf("%T", request)}
	}
}

// textOfEtcd describes a request and its reply, for the reports. words describe the request.
func textOfEtcd(words []any, reply any, refused error) string {
	text := strings.TrimSuffix(fmt.Sprintln(words...), "\n") + ": "
	if refused != nil {
		return text + status.Convert(refused).Message()
	}
	switch r := reply.(type) {
	case *pb.LeaseGrantResponse:
		return text + fmt.Sprintf("lease %x", r.ID)
	case *pb.LeaseKeepAliveResponse:
		return text + fmt.Sprint(r.TTL, "s")
	case *pb.RangeResponse:
		return text + textOfKeys(r)
	case *pb.TxnResponse:
		text += fmt.Sprint("revision ", r.GetHeader().GetRevision())
		for _, op := range r.Responses {
			if got := op.GetResponseRange(); got != nil {
				text += "; " + textOfKeys(got)
			}
		}
		return text
	default:
		return text + "done"
	}
}

func textOfKeys(r *pb.RangeResponse) string {
	return cmp.Or(catalog.Join(r.Kvs, ", ", func(kv *mvccpb.KeyValue) string {
		return fmt.Sprintf("%s of revision %d", kv.Key, kv.CreateRevision)
	}), "none")
}
