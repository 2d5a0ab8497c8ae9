package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/explore/search"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// etcdServer simulates a single etcd server. It supports only the requests that the lock strategies
// send. Each lease ends exactly after its TTL.
type etcdServer struct {
	*node

	mu       sync.Mutex // held during one request
	revision int64
	keys     map[string]*mvccpb.KeyValue
	leases   map[int64]*expiry
	granted  int64             // the number of leases granted so far
	history  []*clientv3.Event // the events of all revisions
	watches  []*etcdWatch
}

// shortestEtcdLease is the minimum TTL of an etcd server with an election timeout of 500 ms.
const shortestEtcdLease = 1 // in seconds

// firstEtcdLease is the first lease's ID. The other IDs follow without gaps.
const firstEtcdLease = 0x1001

func newEtcdServer(name string) *etcdServer {
	s := &etcdServer{}
	s.node = &node{lockServer: s, name: name, cancels: true}
	return s
}

func (s *etcdServer) disconnect() {} // a lease does not depend on a connection

// timePassed sends the watch events that the server could not send while it was down. It is called
// whenever time has passed, and when the server can be reached again.
func (s *etcdServer) timePassed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		s.tellLocked(w)
	}
}

// shortenLeases ends each lease early by d, as a jump of the server's clock does.
func (s *etcdServer) shortenLeases(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.leases)) {
		if l := s.leases[id]; l.shorten(d) {
			s.endLocked(l)
		}
	}
}

func (s *etcdServer) listeners(string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

func (s *etcdServer) reset() {
	s.revision, s.granted = 1, 0
	s.keys, s.leases = map[string]*mvccpb.KeyValue{}, map[int64]*expiry{}
	s.history, s.watches = nil, nil
}

// answer executes a client's request and returns the reply.
func (s *etcdServer) answer(request any) (proto.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := request.(type) {
	case *pb.LeaseGrantRequest:
		l := s.grantLocked(max(r.TTL, shortestEtcdLease))
		return &pb.LeaseGrantResponse{Header: s.headerLocked(), ID: l.id, TTL: int64(l.ttl / time.Second)}, nil
	case *pb.LeaseRevokeRequest:
		l, ok := s.leases[r.ID]
		if !ok {
			return nil, rpctypes.ErrGRPCLeaseNotFound
		}
		s.endLocked(l)
		return &pb.LeaseRevokeResponse{Header: s.headerLocked()}, nil
	case *pb.LeaseKeepAliveRequest:
		kept := &pb.LeaseKeepAliveResponse{Header: s.headerLocked(), ID: r.ID}
		if l, ok := s.leases[r.ID]; ok {
			l.renew()
			kept.TTL = int64(l.ttl / time.Second)
		}
		return kept, nil
	case *pb.TxnRequest:
		return s.txnLocked(r)
	case *pb.RangeRequest:
		return s.rangeLocked(r)
	case *pb.PutRequest: // a single request behaves like a transaction with one operation
		done, err := s.txnLocked(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}})
		return &pb.PutResponse{Header: done.GetHeader()}, err
	default:
		return nil, errUnknownToEtcd(request)
	}
}

func errUnknownToEtcd(request any) error {
	return status.Errorf(codes.Unimplemented, "sim: the simulated etcd does not support this request: %T", request)
}

func (s *etcdServer) headerLocked() *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: s.revision}
}

func (s *etcdServer) grantLocked(seconds int64) *expiry {
	l := newExpiry(firstEtcdLease+s.granted, time.Duration(seconds)*time.Second, &s.mu, s.endLocked)
	s.leases[l.id] = l
	s.granted++
	return l
}

// endLocked ends a lease and deletes its keys.
func (s *etcdServer) endLocked(l *expiry) {
	l.stop()
	delete(s.leases, l.id)
	s.commitLocked(func(revision int64) {
		for _, key := range s.sortedLocked() {
			if s.keys[key].Lease == l.id {
				s.deleteLocked(key, revision)
			}
		}
	})
}

// commitLocked calls change with the next revision number, which all events recorded by change get.
func (s *etcdServer) commitLocked(change func(revision int64)) {
	before := len(s.history)
	change(s.revision + 1)
	if len(s.history) > before {
		s.revision++
		for _, w := range s.watches {
			s.tellLocked(w)
		}
	}
}

func (s *etcdServer) putLocked(r *pb.PutRequest, revision int64) {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: revision, ModRevision: revision, Version: 1}
	if old, ok := s.keys[string(r.Key)]; ok {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	s.keys[string(r.Key)] = kv
	s.history = append(s.history, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
}

func (s *etcdServer) deleteLocked(key string, revision int64) {
	delete(s.keys, key)
	gone := &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}
	s.history = append(s.history, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: gone})
}

// txnLocked executes a transaction, or refuses it as a whole. It supports no comparisons.
func (s *etcdServer) txnLocked(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if len(r.Compare) > 0 {
		return nil, errUnknownToEtcd(r.Compare)
	}
	for _, op := range r.Success { // check all operations first, because a transaction applies all of them or none
		if err := s.refusedLocked(op); err != nil {
			return nil, err
		}
	}
	done := &pb.TxnResponse{Succeeded: true}
	s.commitLocked(func(revision int64) {
		for _, op := range r.Success {
			done.Responses = append(done.Responses, s.applyLocked(op, revision))
		}
	})
	done.Header = s.headerLocked()
	return done, nil
}

func (s *etcdServer) refusedLocked(op *pb.RequestOp) error {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		if len(r.RequestPut.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
		if _, ok := s.leases[r.RequestPut.Lease]; !ok && r.RequestPut.Lease != 0 {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		return nil
	case *pb.RequestOp_RequestRange:
		_, err := s.rangeLocked(r.RequestRange)
		return err
	default:
		return errUnknownToEtcd(r)
	}
}

func (s *etcdServer) applyLocked(op *pb.RequestOp, revision int64) *pb.ResponseOp {
	if put := op.GetRequestPut(); put != nil {
		s.putLocked(put, revision)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	}
	found, _ := s.rangeLocked(op.GetRequestRange()) // refusedLocked has already checked the range
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}}
}

// rangeLocked returns the keys in a range, either by name or the newest first. It returns an error if the
// request has any other option.
func (s *etcdServer) rangeLocked(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	known := &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd, Limit: r.Limit, MaxCreateRevision: r.MaxCreateRevision, KeysOnly: r.KeysOnly}
	newestFirst := r.SortTarget == pb.RangeRequest_CREATE
	if newestFirst {
		known.SortTarget, known.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_DESCEND
	}
	if !proto.Equal(r, known) {
		return nil, errUnknownToEtcd(r)
	}
	found := &pb.RangeResponse{Header: s.headerLocked()}
	for _, key := range s.sortedLocked() {
		kv := s.keys[key]
		if !inRange(key, r.Key, r.RangeEnd) {
			continue
		}
		found.Count++
		if r.MaxCreateRevision == 0 || kv.CreateRevision <= r.MaxCreateRevision {
			found.Kvs = append(found.Kvs, proto.Clone(kv).(*mvccpb.KeyValue))
		}
	}
	if newestFirst {
		slices.SortStableFunc(found.Kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(b.CreateRevision, a.CreateRevision) })
	}
	if n := int(r.Limit); n > 0 && len(found.Kvs) > n {
		found.Kvs, found.More = found.Kvs[:n], true
	}
	for _, kv := range found.Kvs {
		if r.KeysOnly {
			kv.Value = nil
		}
	}
	return found, nil
}

// inRange reports whether key is at or after from and before end. If end is empty, the range
// contains only from. If end is "\x00", there is no upper limit.
func inRange(key string, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(from)
	case string(end) == "\x00":
		return key >= string(from)
	default:
		return key >= string(from) && key < string(end)
	}
}

func (s *etcdServer) sortedLocked() []string { return slices.Sorted(maps.Keys(s.keys)) }

func (s *etcdServer) contents() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, key := range s.sortedLocked() {
		kv := s.keys[key]
		fmt.Fprintf(&b, "%s = %s, created in revision %d", key, kv.Value, kv.CreateRevision)
		if l, ok := s.leases[kv.Lease]; ok {
			fmt.Fprintf(&b, " until %s", l.until.Sub(epoch).Round(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// state adds the server's state to f, except for the keys, which contents covers.
func (s *etcdServer) state(f search.Fingerprint) search.Fingerprint {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = f.Number(s.revision).Number(s.granted)
	for id := range s.granted {
		if l, ok := s.leases[firstEtcdLease+id]; ok {
			f = f.Number(l.id).Number(l.until.UnixNano())
		}
	}
	var watches search.Fingerprint // add the hashes, because watches have no order
	for _, w := range s.watches {
		watches += search.EmptyFingerprint.Text(string(w.op.KeyBytes())).Number(w.next).Number(int64(len(w.responses)))
	}
	return f.Number(int64(watches))
}

// leaseOf returns the remaining TTL of the key that stores value. ok is true only if that key is
// first in its queue, because only the first client has the lock.
func (s *etcdServer) leaseOf(value string) (ttl time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, kv := range s.keys {
		if value == "" || string(kv.Value) != value {
			continue
		}
		queue := key[:strings.LastIndexByte(key, '/')+1]
		for other, o := range s.keys {
			if strings.HasPrefix(other, queue) && o.CreateRevision < kv.CreateRevision {
				return 0, false
			}
		}
		if l, ok := s.leases[kv.Lease]; ok {
			ttl = time.Until(l.until)
			return ttl, ttl > 0
		}
	}
	return 0, false
}
