package target

import (
	"io"
	"net/http"
	"strings"
)

// Sender is an http.RoundTripper that sends each request at most once. This prevents a second grab,
// because an http.Transport retries some requests after a connection breaks.
type Sender struct{ *http.Transport }

// SendOnce returns a Sender that uses t. It also switches t to HTTP/1.1, because HTTP/2 may retry a
// request.
func SendOnce(t *http.Transport) Sender {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return Sender{t}
}

// RoundTrip sends a request in a form that the transport never retries.
func (s Sender) RoundTrip(req *http.Request) (*http.Response, error) {
	return s.Transport.RoundTrip(once(req, strings.NewReader("")))
}

// once returns a copy of a request that the transport never retries. If the transport would retry a
// request without a body, the copy gets the body empty.
func once(req *http.Request, empty io.Reader) *http.Request {
	req = req.WithContext(req.Context())
	req.GetBody = nil
	if req.Body != nil && req.Body != http.NoBody {
		return req
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		req.Body, req.ContentLength = io.NopCloser(empty), 0
		// Without this setting, the transport waits 200 ms for the first byte of the body. On a busy
		// machine, it may then send an empty chunk, which some servers take for another request.
		req.TransferEncoding = []string{"identity"}
		return req
	}
	// Send these headers in lower case. With the usual case, the transport would consider the
	// request safe to retry.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := req.Header[name]; ok {
			req.Header = req.Header.Clone()
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values // the transport looks only for the canonical name
		}
	}
	return req
}
