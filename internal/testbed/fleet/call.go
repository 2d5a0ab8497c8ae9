package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"grablab/internal/catalog"
	"grablab/internal/testbed/wait"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// StatusError means that a response has an unexpected status, or that it does not say whether the
// driver won.
type StatusError struct {
	Code int
	Says string // the text of the response, shortened to one line
}

// Error returns the status and text of the response. If the service has only accepted the request
// and returned no result, Error adds a hint.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP %d", e.Code)
	if e.Says != "" {
		text += ": " + e.Says
	}
	if e.Code == http.StatusAccepted {
		text += " has no result: say with -later where to ask for it. If the service has no such URL, add one"
	}
	return text
}

// client sends requests to the instances.
type client struct {
	*http.Client
	token  string                                         // bearer token; may be empty
	decide func(next http.RoundTripper) http.RoundTripper // waits for the result of a grab that is decided later
}

// call makes an API call. It sends body as JSON and decodes the response into answer. Both may be
// nil.
func (c client) call(ctx context.Context, method, url string, body, answer any) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, err := c.do(ctx, method, url, sent, jsonHeader)
	if raw, ok := answer.(*json.RawMessage); ok {
		*raw = got.Body
		return err
	}
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(got.Body, answer)
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// do sends a request and returns the response. If the status is not 2xx, the error wraps a
// *StatusError.
func (c client) do(ctx context.Context, method, url string, body []byte, header http.Header) (Answer, error) {
	a, err := c.send(ctx, callTimeout, method, url, body, header)
	if err == nil && a.Status/100 != 2 {
		err = fmt.Errorf("%s %s: %w", method, url, statusError(a.Status, a.Body))
	}
	return a, err
}

func statusError(code int, body []byte) *StatusError {
	var why struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &why) // ignore the error, because a service may return anything
	return &StatusError{code, OneLine(cmp.Or(why.Error, string(body)))}
}

// maxAnswer limits the response size in bytes.
const maxAnswer = 8 << 20

// Answer is the response to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// callTimeout is the usual timeout for one request.
const callTimeout = 30 * time.Second

// send sends a request and returns the response, even if its status is an error.
func (c client) send(ctx context.Context, within time.Duration, method, address string, body []byte, header http.Header) (a Answer, err error) {
	sending, cancel := context.WithTimeout(ctx, within) // http.Client.Timeout would hide the error type
	defer cancel()
	defer func() {
		if err != nil && sending.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no response within %v: %w", within, err)
		}
	}()
	req, err := http.NewRequestWithContext(sending, method, address, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header = header.Clone()
	req.Host = header.Get("Host")
	if c.token != "" && req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	deciding := *c.Client
	deciding.Transport = c.decide(deciding.Transport)
	resp, err := deciding.Do(req)
	if err != nil {
		if sent, ok := errors.AsType[*url.Error](err); ok {
			sent.URL, _, _ = strings.Cut(sent.URL, "#") // remove the order and the driver that load.Request added
		}
		return a, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("fleet: the answer to %s %s (HTTP %d) is larger than %d MiB, which is the limit", method, address, resp.StatusCode, maxAnswer>>20)
	}
	return Answer{resp.StatusCode, resp.Header, b}, err
}

// OneLine returns a text on one line, without control characters and with at most 200 characters.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	return catalog.Shorten(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text), 200)
}

// Counters contains metrics, each summed over all instances. A sum is NaN if an instance does not
// report the metric.
type Counters struct {
	RedisCommands, DBStatements float64
	InFlight                    float64
	// Epoch is the sum of the start times of all instances, which changes if an instance restarts.
	Epoch float64
}

// ErrNoMetrics means that the instances do not report how many grab requests are running.
var ErrNoMetrics = errors.New("fleet: the targets' GET /metrics does not report the number of running grabs (grab_in_flight)")

// Counters adds up the metrics of all running instances.
func (f *Fleet) Counters(ctx context.Context) (Counters, error) {
	var sum Counters
	if f.Foreign {
		return sum, ErrNoMetrics
	}
	for _, in := range f.Instances {
		if !in.alive() {
			continue // an instance that is down adds nothing to Epoch
		}
		families, err := f.client.scrape(ctx, in.URL)
		if _, unsent := errors.AsType[*url.Error](err); err != nil && !f.Ours && !unsent {
			return sum, ErrNoMetrics // the service may serve something else at this path
		}
		if err != nil {
			return sum, fmt.Errorf("fleet: cannot read the metrics of %s: %w", in.ID, err)
		}
		sum.RedisCommands += total(families["grab_redis_commands_total"])
		sum.DBStatements += total(families["grab_db_statements_total"])
		sum.InFlight += total(families["grab_in_flight"])
		sum.Epoch += total(families["process_start_time_seconds"])
	}
	return sum, nil
}

// Drain waits until no grab requests are running, except for the given number of hung ones. If this
// takes longer than within, it returns an error.
func (f *Fleet) Drain(ctx context.Context, hung int, within time.Duration) (Counters, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		now, err := f.Counters(ctx)
		if err == nil && math.IsNaN(now.InFlight) {
			return now, ErrNoMetrics
		}
		if errors.Is(err, ErrNoMetrics) || err == nil && now.InFlight <= float64(hung) {
			return now, err
		}
		if !wait.For(ctx, 20*time.Millisecond) {
			return now, errors.Join(err, fmt.Errorf("fleet: %v grabs were still running when they should all have ended", now.InFlight))
		}
	}
}

func (c client) scrape(ctx context.Context, base string) (map[string]*dto.MetricFamily, error) {
	a, err := c.do(ctx, http.MethodGet, base+"/metrics", nil, http.Header{})
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(a.Body))
}

// total sums a metric over all of its labels. If the metric is missing, it returns NaN.
func total(f *dto.MetricFamily) float64 {
	if f == nil {
		return math.NaN()
	}
	var sum float64
	for _, m := range f.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	return sum
}
