package target

import (
	"io"
	"net/http"
	"strings"
)

// Sender sends each request at most once. A plain http.Transport repeats some requests if a
// kept-alive connection ends. If the service had already executed the first request, the repetition
// would be a second grab.
type Sender struct{ *http.Transport }

// SendOnce returns a Sender that uses t. It restricts t to HTTP/1.1, because with HTTP/2 the
// transport repeats requests if the server resets their streams.
func SendOnce(t *http.Transport) Sender {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return Sender{t}
}

// RoundTrip sends req. The transport repeats a request only if it can rewind the body and considers
// the method or a header idempotent. RoundTrip makes sure that one of these conditions does not
// hold.
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
	// Hide the header from the transport by renaming it. An empty body of unknown length would help
	// too, but it would be sent in chunks, which not every server accepts.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := req.Header[name]; ok {
			req.Header = req.Header.Clone()
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values // the transport looks only for the canonical name
		}
	}
	return s.Transport.RoundTrip(req)
}
