package lock

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// TestEtcdKeyAhead checks that ahead returns no key only if the client's own key is first in the
// queue. If the client's key is missing, its lease has expired, so ahead must return errRanOut.
func TestEtcdKeyAhead(t *testing.T) {
	const own = 5
	for _, tt := range []struct {
		name  string
		found []int64 // create revisions of the two newest keys up to the client's own
		ahead string
		err   error
	}{
		{name: "only its own key", found: []int64{own}},
		{name: "another key ahead", found: []int64{own, 3}, ahead: "3"},
		{name: "no key", err: errRanOut},
		{name: "only another key", found: []int64{3}, err: errRanOut},
		{name: "two other keys", found: []int64{4, 3}, err: errRanOut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var found []*mvccpb.KeyValue
			for _, revision := range tt.found {
				found = append(found, &mvccpb.KeyValue{Key: []byte{'0' + byte(revision)}, CreateRevision: revision})
			}
			e := &etcdLease{revision: own}
			if ahead, err := e.ahead(found); ahead != tt.ahead || !errors.Is(err, tt.err) {
				t.Errorf("ahead: %q, %v; want %q, %v", ahead, err, tt.ahead, tt.err)
			}
		})
	}
}
