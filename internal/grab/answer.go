package grab

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Outcome is a grab's result as the client sees it.
type Outcome string

// These are the possible outcomes. After a Timeout, the driver may still have won the order.
const (
	Grabbed Outcome = "grabbed" // the driver has won the order
	Taken   Outcome = "taken"   // another driver had won it before
	Busy    Outcome = "busy"    // the lock did not become free in time
	Failed  Outcome = "error"   // nothing was written
	Timeout Outcome = "timeout"
)

// Outcomes lists all outcomes in the order in which tables show them.
var Outcomes = []Outcome{Grabbed, Taken, Busy, Failed, Timeout}

// Answer is the JSON body of the response to a grab, whether the driver won or not.
type Answer struct {
	Outcome  Outcome `json:"outcome"`
	Reason   string  `json:"reason,omitempty"`
	Order    int64   `json:"order_id"`
	Driver   int64   `json:"driver_id"`
	Instance string  `json:"instance"`
	Strategy string  `json:"strategy"`
	Token    string  `json:"token,omitempty"`
	Fence    uint64  `json:"fence,omitempty"`
	WaitedMS float64 `json:"waited_ms"` // time until the driver had the lock
	HeldMS   float64 `json:"held_ms"`   // time for which the driver held the lock
	Error    string  `json:"error,omitempty"`

	Status int `json:"-"` // the HTTP status code
}

// errorAnswer is the response to a request that failed with the error err.
type errorAnswer struct {
	err     error
	status  int // the HTTP status code
	outcome Outcome
	reason  string // empty if the outcome needs no explanation
}

// PerDriver is the reason for the outcome Taken if the driver has already reached the limit of
// units per driver. Other drivers may still get units of the order.
const PerDriver = "per_driver"

// LeaseLost is the reason for a failed grab that wrote nothing because it had lost the lock.
const LeaseLost = "lease_lost"

// Cancelled is the reason for a failed grab whose client has disconnected.
const Cancelled = "cancelled"

// errorAnswers maps errors to responses. The first match wins.
var errorAnswers = []errorAnswer{
	{errBadStrategy, http.StatusBadRequest, Failed, "bad_strategy"},
	{errUnknown, http.StatusGatewayTimeout, Timeout, "unknown"},
	{order.ErrLimit, http.StatusConflict, Taken, PerDriver},
	{order.ErrTaken, http.StatusConflict, Taken, ""},
	{lock.ErrBusy, http.StatusLocked, Busy, ""},
	{order.ErrNotFound, http.StatusNotFound, Failed, "not_found"},
	{lock.ErrLost, http.StatusServiceUnavailable, Failed, LeaseLost},
	{order.ErrStale, http.StatusServiceUnavailable, Failed, "stale"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, Timeout, "deadline"},
	{context.Canceled, http.StatusServiceUnavailable, Failed, Cancelled},
}

func (a *attempt) answer(err error) Answer {
	ans := Answer{
		Outcome: Grabbed, Status: http.StatusOK,
		Order: a.Order, Driver: a.Driver, Instance: a.cfg.Instance, Strategy: a.lock.Name,
		Token: a.token, Fence: a.fence, WaitedMS: millis(a.waited), HeldMS: millis(a.held),
	}
	if err == nil {
		return ans
	}
	v := errorAnswerTo(err)
	ans.Outcome, ans.Status, ans.Reason = v.outcome, v.status, v.reason
	if ans.Outcome == Failed || ans.Outcome == Timeout {
		ans.Error = oneLine(err)
	}
	return ans
}

// errorAnswerTo returns the response for err. If err is not in errorAnswers, the response says that
// another server has failed and that nothing was written. This is true, because if the result of a
// write is unknown, the error wraps errUnknown, which has its own response.
func errorAnswerTo(err error) errorAnswer {
	for _, v := range errorAnswers {
		if errors.Is(err, v.err) {
			return v
		}
	}
	return errorAnswer{err, http.StatusServiceUnavailable, Failed, "dependency"}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
