package grab

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics contains the Prometheus metrics for grabs. Other packages may register more.
type Metrics struct {
	*prometheus.Registry
	grabs, lost              *prometheus.CounterVec
	duration, waited, locked *prometheus.HistogramVec
	inFlight                 prometheus.Gauge
}

// histogram returns a histogram with one series per strategy and buckets from 0.5 ms to 33 s.
func histogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17),
	}, []string{"strategy"})
}

// NewMetrics returns Metrics with all counters at zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		grabs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grab_grabs_total",
			Help: "Grabs answered, by strategy and outcome.",
		}, []string{"strategy", "outcome"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grab_leases_lost_total",
			Help: "Grabs that ended because they lost their lease, by strategy.",
		}, []string{"strategy"}),
		duration: histogram("grab_duration_seconds", "Time from a grab's request to its response, by strategy."),
		waited:   histogram("grab_lock_wait_seconds", "Time until a grab got the lock, by strategy, for grabs that got it."),
		locked:   histogram("grab_lock_hold_seconds", "How long a grab held the lock, by strategy."),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grab_in_flight",
			Help: "Grabs in progress.",
		}),
	}
	m.MustRegister(m.grabs, m.lost, m.duration, m.waited, m.locked, m.inFlight,
		collectors.NewBuildInfoCollector(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) count(grab func() Answer) Answer {
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	began := time.Now()
	ans := grab()
	m.grabs.WithLabelValues(ans.Strategy, string(ans.Outcome)).Inc()
	m.duration.WithLabelValues(ans.Strategy).Observe(time.Since(began).Seconds())
	if ans.Token != "" {
		m.waited.WithLabelValues(ans.Strategy).Observe(ans.WaitedMS / 1000)
		m.locked.WithLabelValues(ans.Strategy).Observe(ans.HeldMS / 1000)
	}
	lost := m.lost.WithLabelValues(ans.Strategy) // export 0 before the first loss
	if ans.Reason == LeaseLost {
		lost.Inc()
	}
	return ans
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry})
}
