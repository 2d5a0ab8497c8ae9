package grab

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts grabs in its own Prometheus registry. Other packages may register more
// metrics there.
type Metrics struct {
	*prometheus.Registry
	grabs    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// NewMetrics returns metrics with all counters at zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		grabs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grab_grabs_total",
			Help: "Grabs answered, by strategy and outcome.",
		}, []string{"strategy", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "grab_duration_seconds",
			Help:    "Time from request to answer of a grab, by strategy.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17), // 0.5 ms to 33 s
		}, []string{"strategy"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "grab_in_flight",
			Help: "Grabs in progress.",
		}),
	}
	m.MustRegister(m.grabs, m.duration, m.inFlight,
		collectors.NewBuildInfoCollector(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// count makes one grab and updates the metrics.
func (m *Metrics) count(grab func() Answer) Answer {
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	began := time.Now()
	ans := grab()
	m.grabs.WithLabelValues(ans.Strategy, string(ans.Outcome)).Inc()
	m.duration.WithLabelValues(ans.Strategy).Observe(time.Since(began).Seconds())
	return ans
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry})
}
