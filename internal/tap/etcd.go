package tap

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Etcd returns options for the connections of an etcd client that make its
// calls go through t, each try of a read that is repeated by itself. One
// request to keep a lease alive, which goes over a stream, is one call with its
// answer. Watches are none, as subscriptions are none, nor is what a client sends by
// itself to keep all of its leases alive. nil, if t is.
func Etcd(t Tap, instance, target string) []grpc.DialOption {
	if t == nil {
		return nil
	}
	e := etcdTap{t, Op{Instance: instance, Target: target}}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(e.unary), grpc.WithChainStreamInterceptor(e.stream)}
}

type etcdTap struct {
	tap Tap
	op  Op // what all calls of the client have in common
}

func (e etcdTap) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	op := e.op
	op.Keys = etcdKeys(req)
	return e.tap(ctx, OpFrom(ctx, op), func(ctx context.Context) error { return invoke(ctx, method, req, reply, cc, opts...) })
}

func (e etcdTap) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != pb.Lease_LeaseKeepAlive_FullMethodName || isOfClient(ctx) {
		return stream, err
	}
	return &etcdKeepAlive{ClientStream: stream, etcdTap: e}, nil
}

// isOfClient says whether a stream to keep leases alive is the client's own: on that one
// requests are not answered one at a time. It alone asks for a leader.
func isOfClient(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0
}

// etcdKeepAlive is a stream on which one request is answered at a time. The
// request is sent when its answer is asked for.
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

// etcdKeys are the keys of a request that a lock makes, where it names any: of a
// range the first, of a transaction those of its success.
func etcdKeys(req any) []string {
	switch r := req.(type) {
	case *pb.PutRequest:
		return []string{string(r.Key)}
	case *pb.RangeRequest:
		return []string{string(r.Key)}
	case *pb.TxnRequest:
		var keys []string
		for _, op := range r.Success {
			switch op := op.Request.(type) {
			case *pb.RequestOp_RequestPut:
				keys = append(keys, etcdKeys(op.RequestPut)...)
			case *pb.RequestOp_RequestRange:
				keys = append(keys, etcdKeys(op.RequestRange)...)
			}
		}
		return keys
	default:
		return nil
	}
}
