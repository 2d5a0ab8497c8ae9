package tap

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Etcd returns options that send an etcd client's calls through t, or nil if t is nil. A keep-alive
// request and its reply count as one call. Watches bypass t.
func Etcd(t Tap, instance, target string) []grpc.DialOption {
	if t == nil {
		return nil
	}
	e := etcdTap{t, Op{Instance: instance, Target: target}}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(e.unary), grpc.WithChainStreamInterceptor(e.stream)}
}

type etcdTap struct {
	tap Tap
	op  Op // the fields that are the same for all of the client's calls
}

func (e etcdTap) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return e.tap(ctx, OpFrom(ctx, e.op), func(ctx context.Context) error { return invoke(ctx, method, req, reply, cc, opts...) })
}

func (e etcdTap) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != pb.Lease_LeaseKeepAlive_FullMethodName || isOfClient(ctx) {
		return stream, err
	}
	return &etcdKeepAlive{ClientStream: stream, etcdTap: e}, nil
}

// isOfClient reports whether the etcd client opened a stream by itself, to keep its leases alive. It
// recognizes such a stream by its metadata, because only these streams require a leader.
func isOfClient(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0
}

// etcdKeepAlive is a stream of keep-alive requests. The server replies to them one at a time.
type etcdKeepAlive struct {
	grpc.ClientStream
	etcdTap
	request any
}

func (s *etcdKeepAlive) SendMsg(m any) error {
	s.request = m
	return nil
}

func (s *etcdKeepAlive) RecvMsg(m any) error {
	return s.tap(s.Context(), OpFrom(s.Context(), s.op), func(context.Context) error {
		if err := s.ClientStream.SendMsg(s.request); err != nil {
			return err
		}
		return s.ClientStream.RecvMsg(m)
	})
}
