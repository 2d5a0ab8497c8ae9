package tap

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// TestEtcdStreams checks that a stream is tapped if a lock uses it to keep a single lease alive. The
// client's shared stream must not be tapped, because its requests and responses do not alternate.
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
