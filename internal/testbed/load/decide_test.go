package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/testbed/target"
)

// TestDecide checks that Decide asks for the result of a grab if the first response has none. If the
// result never arrives, the error must not exclude that the driver has won.
func TestDecide(t *testing.T) {
	const won = `{"state":"won"}`
	for _, tt := range []struct {
		name, later string
		first       string   // Location header of a first response with status 202; if empty, the first response has the result
		results     []string // responses to the requests for the result; the last one is repeated
		body, wrong string
	}{
		{"no later result", "202 -> header:Location", "", nil, `{"state":"lost"}`, ""},
		{"by a header", "202 -> header:Location", "/results/7/3", []string{won}, won, ""},
		{"by a path", "202 -> /results/{order}/{driver}", "/elsewhere", []string{won}, won, ""},
		{"by an id in a header", "202 -> /results/{header:X-Order}/{driver}", "/elsewhere", []string{won}, won, ""},
		{"by an id in the body", "202 -> /results/{order}/{.driver}", "/elsewhere", []string{won}, won, ""},
		{"by an id in a text", "202 -> /results/{order}/{text:~\"driver.:([0-9]+)\"}", "/elsewhere", []string{won}, won, ""},
		{"no id", "202 -> /results/{order}/{json:.id}", "/elsewhere", []string{won}, "", `the answer 202 has no id of the result at the place after "->": {"driver":3}`},
		{"pending", "202,json:.state==\"pending\" -> header:Location", "/results/7/3", []string{"", `{"state":"pending"}`, won}, won, ""},
		{"throttled", "202 -> header:Location", "/results/7/3", []string{"429", "425", won}, won, ""},
		{"never", "202 -> header:Location", "/results/7/3", []string{`{"state":"pending"}`}, "", Timeout + ": GET /results/7/3 answered 200 until the timeout of "},
		{"no page", "202 -> /results/{order}/{driver}", "/elsewhere", []string{""}, "", Timeout + ": GET /results/7/3 answered 404 until the timeout of "},
		{"no header", "202 -> header:Locatoin", "/results/7/3", []string{won}, "", "the answer 202 has no header Locatoin (it has Content-Length, Content-Type, Date, Location, X-Order)"},
		{"no place", "202 -> .at", "/results/7/3", []string{won}, "", "no URL of the result"},
		{"no server", "202 -> header:Location", "http://127.0.0.1:1/", nil, "", "the result"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			mux := http.NewServeMux()
			mux.HandleFunc("POST /orders/7/grab", func(w http.ResponseWriter, r *http.Request) {
				if tt.first == "" {
					fmt.Fprint(w, tt.body)
					return
				}
				w.Header().Set("Location", tt.first)
				w.Header().Set("X-Order", "7")
				w.WriteHeader(http.StatusAccepted)
				fmt.Fprint(w, `{"driver":3}`)
			})
			mux.HandleFunc("GET /results/7/3", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Driver") != "3" || r.Header.Get("Content-Type") != "" {
					t.Errorf("headers %v", r.Header)
				}
				result := tt.results[min(asked, len(tt.results)-1)]
				if asked++; result == "" {
					http.NotFound(w, r)
					return
				}
				if status, err := strconv.Atoi(result); err == nil {
					w.WriteHeader(status)
					return
				}
				fmt.Fprint(w, result)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			shape, _, err := target.Spec{Headers: []string{"X-Driver: {driver}"}, Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Busy: "423,429,425", Later: tt.later}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			var open, questions atomic.Int32
			asking := func(context.Context, Request) func() {
				open.Add(1)
				questions.Add(1)
				return func() { open.Add(-1) }
			}
			defer func() {
				if open.Load() != 0 || tt.results != nil && tt.body != "" && int(questions.Load()) != len(tt.results) {
					t.Errorf("%d requests for the result, of which %d are still open; want %d and none", questions.Load(), open.Load(), len(tt.results))
				}
			}()
			client := http.Client{Transport: failureNamer{t.Context(), Decide(http.DefaultTransport, shape, asking)}, Timeout: 500 * time.Millisecond}
			path, body, header := shape.Request(7, 3)
			req, _ := http.NewRequest(http.MethodPost, Request{server.URL, 7, 3}.URL(path), strings.NewReader(string(body)))
			req.Header = header
			resp, err := client.Do(req)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) || FailureOf(err.Error()) == Refused {
					t.Errorf("%v; want …%s…, and a failure other than %q", err, tt.wrong, Refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got, _ := io.ReadAll(resp.Body); string(got) != tt.body {
				t.Errorf("the response is %s; want %s", got, tt.body)
			}
		})
	}
}

// TestDecideEndsAtAnyTime ends a request at various times by a deadline, a cancellation or a broken
// connection. Before the first response, the caller must get that error. Afterwards, the grab may have
// happened, so the error must not contain the cause of a broken connection.
func TestDecideEndsAtAnyTime(t *testing.T) {
	const trip = 20 * time.Millisecond // the time until each response
	errBroken := errors.New("the connection is broken")
	shape, _, err := target.Spec{Grabbed: `json:.state=="won"`, Taken: `json:.state=="lost"`, Later: "202 -> header:Location"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for at := trip / 4; at < time.Second; at += trip / 2 {
		for _, end := range []error{context.DeadlineExceeded, context.Canceled, errBroken} {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				if end == context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), at)
				}
				defer cancel()
				if end == context.Canceled {
					time.AfterFunc(at, cancel)
				}
				next := roundTripper(func(req *http.Request) (*http.Response, error) {
					select {
					case <-time.After(trip):
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
					if end == errBroken && time.Since(began) > at {
						return nil, errBroken
					}
					status, header := http.StatusAccepted, http.Header{"Location": {"/results/7/3"}}
					if req.Method == http.MethodGet {
						status, header = http.StatusOK, http.Header{}
					}
					return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(`{"state":"pending"}`)), Request: req}, nil
				})
				path, body, _ := shape.Request(7, 3)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, Request{"http://a", 7, 3}.URL(path), strings.NewReader(string(body)))
				if err != nil {
					t.Fatal(err)
				}
				_, err = Decide(next, shape, nil).RoundTrip(req)
				var result *ResultError
				accepted := at > trip
				wantResult := accepted && end != context.Canceled
				wantCause := !accepted || end != errBroken
				if errors.As(err, &result) != wantResult || errors.Is(err, end) != wantCause {
					t.Errorf("%v after %v: %v; want a ResultError: %v, want the cause in the error: %v", end, at, err, wantResult, wantCause)
				}
				if wantResult && result != nil && result.Timeout() != (end == context.DeadlineExceeded) {
					t.Errorf("%v after %v: %v is a timeout: %v", end, at, err, result.Timeout())
				}
				if words := fmt.Sprintf("until the timeout of %v", at.Round(100*time.Millisecond)); strings.HasSuffix(err.Error(), words) != (accepted && end == context.DeadlineExceeded) {
					t.Errorf("%v after %v: %v", end, at, err)
				}
			})
		}
	}
}

// TestOtherHostsGetNoSecrets checks that the request for a result contains the user's credentials only if
// it goes to the host of the grab. Otherwise, a response could send them to another service.
func TestOtherHostsGetNoSecrets(t *testing.T) {
	shape, _, err := target.Spec{Grabbed: "200", Taken: "409", Later: "202 -> header:Location"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for at, own := range map[string]bool{
		"/results/7/3": true, "http://a/results/7/3": true, "http://b/results/7/3": false, "http://a:8080/results/7/3": false, "//b/results/7/3": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			var question *http.Request
			next := roundTripper(func(req *http.Request) (*http.Response, error) {
				status := http.StatusAccepted
				if req.Method == http.MethodGet {
					question, status = req, http.StatusOK
				}
				return &http.Response{StatusCode: status, Header: http.Header{"Location": {at}}, Body: http.NoBody, Request: req}, nil
			})
			path, body, _ := shape.Request(7, 3)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, Request{"http://a", 7, 3}.URL(path), strings.NewReader(string(body)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"X-Driver": {"3"}}
			secrets := strings.Fields("Authorization Proxy-Authorization Cookie X-Api-Key X-Csrf-Token X-Shared-Secret X-Session-Id X-Password X-Credential X-Signature")
			for _, name := range secrets {
				req.Header.Set(name, "s3cret")
			}
			if _, err := Decide(next, shape, nil).RoundTrip(req); err != nil || question == nil {
				t.Fatalf("%s: RoundTrip: %v", at, err)
			}
			if question.Header.Get("X-Driver") != "3" || (question.Host == "a") != own {
				t.Errorf("%s: asks %q with the headers %v", at, question.Host, question.Header)
			}
			for _, name := range secrets {
				if got := question.Header.Get(name); got != "" != own {
					t.Errorf("%s: the header %s is %q", at, name, got)
				}
			}
		})
	}
}
