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

	"grablab/internal/testbed/wait"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// StatusError is an answer outside of 2xx.
type StatusError struct {
	Code int
	Says string // the instance's own words, cut to a line
}

// Error is the code and what the instance says.
func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Says) }

// call makes one call to an API. body and answer may be nil.
func (f *Fleet) call(ctx context.Context, method, url string, body, answer any) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	got, err := f.do(ctx, method, url, sent, jsonHeader)
	if raw, ok := answer.(*json.RawMessage); ok {
		*raw = got
		return err
	}
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(got, answer)
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// do sends one request and returns the body of its answer. Its error is a
// *StatusError for an answer outside of 2xx.
func (f *Fleet) do(ctx context.Context, method, url string, body []byte, header http.Header) ([]byte, error) {
	code, b, err := f.send(ctx, method, url, body, header)
	if err == nil && code/100 != 2 {
		err = statusError(code, b)
	}
	return b, err
}

func statusError(code int, body []byte) *StatusError {
	var why struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &why) // a foreign target may answer anything
	return &StatusError{code, OneLine(cmp.Or(why.Error, string(body)))}
}

// maxAnswer bounds an answer of an instance, in bytes.
const maxAnswer = 8 << 20

// send sends one request and returns its answer, whatever the status.
func (f *Fleet) send(ctx context.Context, method, url string, body []byte, header http.Header) (code int, _ []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header = header.Clone()
	req.Host = header.Get("Host")
	if f.token != "" && req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("fleet: %s %s answers HTTP %d with more than %d MiB", method, url, resp.StatusCode, maxAnswer>>20)
	}
	return resp.StatusCode, b, err
}

// OneLine returns at most 200 bytes of what a server says, as one line without control characters.
// An ellipsis marks the cut.
func OneLine(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(text), " ")
	ellipsis := ""
	if len(text) > most {
		text, ellipsis = text[:most], "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "")) + ellipsis
}

// Counters are what the instances have counted since they were started, summed. What one of
// them does not count is NaN.
type Counters struct {
	RedisCommands, DBStatements float64
	InFlight                    float64
	// Epoch is the sum of the start times: it differs once an instance has been
	// restarted and begun to count anew.
	Epoch float64
}

// ErrNoMetrics says that targets do not count their grabs in flight.
var ErrNoMetrics = errors.New("fleet: the targets count nothing")

// Counters reads the metrics of every instance that runs.
func (f *Fleet) Counters(ctx context.Context) (Counters, error) {
	var sum Counters
	if f.Foreign {
		return sum, ErrNoMetrics
	}
	for _, in := range f.Instances {
		if !in.alive() {
			continue // and its start time is missing in the epoch
		}
		families, err := f.scrape(ctx, in)
		if unsent := (*url.Error)(nil); err != nil && !f.Ours && !errors.As(err, &unsent) {
			return sum, ErrNoMetrics // a target may have anything there
		}
		if err != nil {
			return sum, fmt.Errorf("fleet: metrics of %s: %w", in.ID, err)
		}
		sum.RedisCommands += total(families["grab_redis_commands_total"])
		sum.DBStatements += total(families["grab_db_statements_total"])
		sum.InFlight += total(families["grab_in_flight"])
		sum.Epoch += total(families["process_start_time_seconds"])
	}
	return sum, nil
}

// Drain waits until no instance has a grab in flight any more but the hung
// ones, for a client that gave up may have left one behind; for no longer than
// within. It returns the counters as they then are.
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
			return now, errors.Join(err, fmt.Errorf("fleet: %v when last seen", now.InFlight))
		}
	}
}

func (f *Fleet) scrape(ctx context.Context, in *Instance) (map[string]*dto.MetricFamily, error) {
	text, err := f.do(ctx, http.MethodGet, in.URL+"/metrics", nil, http.Header{})
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// total of a metric; NaN: there is none.
func total(f *dto.MetricFamily) float64 {
	if f == nil {
		return math.NaN()
	}
	var sum float64
	for _, m := range f.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}
