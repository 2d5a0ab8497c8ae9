package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"

	"grablab/internal/testbed/target"
	"grablab/internal/testbed/wait"
)

// These constants limit the backoff between requests for the same result. The pause doubles each
// time.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// Asking is called before a client asks for the result of an earlier request. It can delay the
// client, for example while a test has stopped that request's work. The client calls answered when
// it has the response. If Asking is nil, it is not called.
type Asking func(ctx context.Context, of Request) (answered func())

// ResultError means that a service has accepted a request, but the client could not get the result.
// It hides the cause, because callers could wrongly conclude from it that the grab did not happen.
type ResultError struct {
	text string
	over error // context.DeadlineExceeded if the wait for the result timed out; nil otherwise
}

// Error describes what is wrong with the response, or with the request for the result.
func (e *ResultError) Error() string { return e.text }

// Timeout reports whether the wait for the result timed out.
func (e *ResultError) Timeout() bool { return e.over != nil }

// Unwrap returns the context error if the wait for the result timed out.
func (e *ResultError) Unwrap() error { return e.over }

// Decide returns a RoundTripper for services that respond before the result is known. It polls for
// the result until it gets one or the request's context ends. Other requests pass unchanged.
func Decide(next http.RoundTripper, shape *target.Shape, asking Asking) http.RoundTripper {
	if shape == nil || shape.Later == nil {
		return next
	}
	if asking == nil {
		asking = func(context.Context, Request) func() { return func() {} }
	}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r, err := ParseRequest(req.URL.String())
		if err != nil {
			return next.RoundTrip(req)
		}
		began := time.Now()
		resp, body, err := answer(next, req)
		if err != nil {
			return nil, err
		}
		at, undecided, err := shape.ResultURL(r.Target, r.Order, r.Driver, resp.StatusCode, resp.Header, body)
		if !undecided {
			return resp, nil
		}
		if err != nil { // the response does not say where the result will be
			return nil, &ResultError{text: err.Error()}
		}
		resp, last, err := askForResult(next, req, at, shape, func() func() { return asking(req.Context(), r) })
		switch ended := req.Context().Err(); {
		case err == nil:
			return resp, nil
		case errors.Is(ended, context.DeadlineExceeded):
			at, _, _ = strings.Cut(strings.TrimPrefix(at, r.Target), "#") // remove the order and the driver, which Request.URL has added
			return nil, &ResultError{fmt.Sprintf("GET %s answered %s until the timeout of %v", at, last, time.Since(began).Round(time.Second/10)), ended}
		case ended != nil:
			return nil, ended
		default:
			return nil, &ResultError{text: fmt.Sprintf("the result: %v", err)}
		}
	})
}

// askForResult polls a service for a request's result until there is one. The URL at may be
// relative. It calls asking before each attempt, and the returned function after the response. last
// describes the last response without a result.
func askForResult(next http.RoundTripper, grab *http.Request, at string, shape *target.Shape, asking func() func()) (resp *http.Response, last string, err error) {
	last = "nothing"
	question := grab.Clone(grab.Context())
	question.Method, question.Body, question.ContentLength = http.MethodGet, nil, 0
	question.Header.Del("Content-Type")
	if question.URL, err = grab.URL.Parse(at); err != nil {
		return nil, last, err
	}
	if question.URL.Host != grab.URL.Host { // another service must not get these
		question.Host = ""
		maps.DeleteFunc(question.Header, func(name string, _ []string) bool { return secretHeader.MatchString(name) })
	}
	for pause := firstPause; wait.For(grab.Context(), pause); pause = min(2*pause, lastPause) {
		answered := asking()
		resp, body, err := answer(next, question)
		answered()
		if err != nil || shape.IsResult(resp.StatusCode, resp.Header, body) {
			return resp, last, err
		}
		last = fmt.Sprint(resp.StatusCode)
	}
	return nil, last, grab.Context().Err()
}

// secretHeader matches the names of headers that may contain a secret, such as Authorization, Cookie and X-Api-Key.
var secretHeader = regexp.MustCompile(`(?i)auth|cookie|token|key|secret|session|passw|credential|signature`)

// answer sends a request, and reads as much of the response body as the user's rules can examine.
func answer(next http.RoundTripper, req *http.Request) (*http.Response, []byte, error) {
	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, target.MaxBody+1))
	if err != nil {
		return nil, nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, body, nil
}
