package target

import (
	"io"
	"net/http"
	"strings"
)

// Sender sends each request at most once. A plain http.Transport sends some requests again
// if a connection that was kept alive ends. To a service whose grab happened before that, the
// repeat is a second grab.
type Sender struct{ *http.Transport }

// SendOnce returns a Sender over t, which from now on speaks only HTTP/1.1, because HTTP/2
// repeats the requests of streams that a server resets.
func SendOnce(t *http.Transport) Sender {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return Sender{t}
}

// RoundTrip sends req. The transport repeats a request only if it can rewind the body and
// knows the method or a header as idempotent. RoundTrip withholds one of these.
func (s Sender) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.WithContext(req.Context()) // a copy
	req.GetBody = nil
	if req.Body != nil && req.Body != http.NoBody {
		return s.Transport.RoundTrip(req)
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("")), 0
		return s.Transport.RoundTrip(req)
	}
	// A body of unknown length would be sent in chunks, which not every server takes.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := req.Header[name]; ok {
			req.Header = req.Header.Clone()
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values // the transport looks for the canonical name
		}
	}
	return s.Transport.RoundTrip(req)
}
