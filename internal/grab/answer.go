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

// Outcome of a grab, as the client is told.
type Outcome string

// The outcomes. After Timeout the grab may have happened.
const (
	Grabbed Outcome = "grabbed"
	Taken   Outcome = "taken"
	Busy    Outcome = "busy"
	Failed  Outcome = "error"
	Timeout Outcome = "timeout"
)

// Outcomes lists every outcome, in the order of a table.
var Outcomes = []Outcome{Grabbed, Taken, Busy, Failed, Timeout}

// Answer is the JSON body of a grab's response, whatever its status.
type Answer struct {
	Outcome  Outcome `json:"outcome"`
	Reason   string  `json:"reason,omitempty"`
	Order    int64   `json:"order_id"`
	Driver   int64   `json:"driver_id"`
	Instance string  `json:"instance"`
	Strategy string  `json:"strategy"`
	Token    string  `json:"token,omitempty"`
	Fence    uint64  `json:"fence,omitempty"`
	WaitedMS float64 `json:"waited_ms"`
	HeldMS   float64 `json:"held_ms"`
	Error    string  `json:"error,omitempty"`

	Status int `json:"-"` // HTTP
}

// verdict is what the client is told of a grab that did not succeed.
type verdict struct {
	err     error
	status  int // HTTP
	outcome Outcome
	reason  string // "": the outcome says it all
}

// PerDriver is the reason of a Taken to a driver who has as many units of the order as
// one may have. It says nothing of how many are left.
const PerDriver = "per_driver"

// verdicts go by what ended a grab: the first whose error matches.
var verdicts = []verdict{
	{errBadStrategy, http.StatusBadRequest, Failed, "bad_strategy"},
	{errUnknown, http.StatusGatewayTimeout, Timeout, "unknown"},
	{order.ErrLimit, http.StatusConflict, Taken, PerDriver},
	{order.ErrTaken, http.StatusConflict, Taken, ""},
	{lock.ErrBusy, http.StatusLocked, Busy, ""},
	{order.ErrNotFound, http.StatusNotFound, Failed, "not_found"},
	{lock.ErrLost, http.StatusServiceUnavailable, Failed, "lease_lost"},
	{order.ErrStale, http.StatusServiceUnavailable, Failed, "stale"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, Timeout, "deadline"},
	{context.Canceled, http.StatusServiceUnavailable, Failed, "cancelled"},
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
	v := verdictOn(err)
	ans.Outcome, ans.Status, ans.Reason = v.outcome, v.status, v.reason
	if ans.Outcome == Failed || ans.Outcome == Timeout {
		ans.Error = oneLine(err)
	}
	return ans
}

// verdictOn finds the verdict on what ended a grab. What matches none is a
// dependency that failed before any write.
func verdictOn(err error) verdict {
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return v
		}
	}
	return verdict{err, http.StatusServiceUnavailable, Failed, "dependency"}
}

// oneLine is the text of err, which may list several errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
