package tap

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A stream that a lock keeps one lease alive by is tapped; the client's own, over which
// requests and answers come as they like, is not.
func TestEtcdStreams(t *testing.T) {
	e := etcdTap{tap: func(ctx context.Context, _ Op, send func(context.Context) error) error { return send(ctx) }}
	open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, nil
	}
	for _, tt := range []struct {
		ctx    context.Context
		method string
		tapped bool
	}{
		{t.Context(), pb.Lease_LeaseKeepAlive_FullMethodName, true},
		{clientv3.WithRequireLeader(t.Context()), pb.Lease_LeaseKeepAlive_FullMethodName, false},
		{t.Context(), pb.Watch_Watch_FullMethodName, false},
	} {
		stream, err := e.stream(tt.ctx, nil, nil, tt.method, open)
		if _, tapped := stream.(*etcdKeepAlive); err != nil || tapped != tt.tapped {
			t.Errorf("%s: tapped %v, want %v; %v", tt.method, tapped, tt.tapped, err)
		}
	}
}
