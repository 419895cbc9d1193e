package runtime

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/wire"
)

// latencyBuckets are the upper bounds in seconds of the classic histogram. It is of the whole function: one of each op
// would be most of what a replica has to tell. A scraper that takes native histograms sees finer ones.
var latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// opMetrics counts one op's requests, for Prometheus and for the STATS of the micro service alike.
type opMetrics struct {
	requests atomic.Uint64
	noReply  atomic.Uint64
	panics   atomic.Uint64
	nanos    atomic.Int64
	inflight atomic.Int64
	errors   map[wire.Code]*atomic.Uint64 // one for every code the op can give; the map is not changed
	seconds  prometheus.Observer
}

// opStats is the data of an endpoint in the STATS of the micro service.
type opStats struct {
	Requests   uint64               `json:"requests"`
	Errors     map[wire.Code]uint64 `json:"errors"`
	NoReply    uint64               `json:"no_reply"`
	Panics     uint64               `json:"panics"`
	InFlight   int64                `json:"in_flight"`
	Processing time.Duration        `json:"processing_time"`
}

func (m *opMetrics) stats() opStats {
	s := opStats{
		Requests: m.requests.Load(), NoReply: m.noReply.Load(), Panics: m.panics.Load(), InFlight: m.inflight.Load(),
		Processing: time.Duration(m.nanos.Load()), Errors: map[wire.Code]uint64{},
	}
	for code, n := range m.errors {
		if v := n.Load(); v > 0 {
			s.Errors[code] = v
		}
	}
	return s
}

// failed counts an error. A code that the op did not declare counts as Internal: labels come from closed sets.
func (m *opMetrics) failed(code wire.Code) {
	n := m.errors[code]
	if n == nil {
		n = m.errors[wire.Internal]
	}
	n.Add(1)
}

// newMetrics makes the metrics of a function's ops. Every series exists from the start.
func newMetrics(reg prometheus.Registerer, fn Function) map[string]*opMetrics {
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "muster_request_duration_seconds", Help: "Time from a request's arrival to its reply.",
		Buckets: latencyBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		ConstLabels: prometheus.Labels{"function": fn.Name},
	})
	reg.MustRegister(seconds)
	for _, g := range fn.Gauges {
		reg.MustRegister(newCounted(g))
	}
	ops := map[string]*opMetrics{}
	for _, op := range fn.Ops {
		m := &opMetrics{errors: map[wire.Code]*atomic.Uint64{}, seconds: seconds}
		labels := prometheus.Labels{"function": fn.Name, "op": op.Name}
		counter(reg, "muster_requests_total", "Requests that came, answered or not.", labels, whole(&m.requests))
		counter(reg, "muster_request_seconds_total", "Time from requests' arrivals to their replies, added up.", labels, m.sum)
		counter(reg, "muster_no_reply_total", "Messages without a reply subject, not applied: publish with a reply, or to a trigger.", labels, whole(&m.noReply))
		counter(reg, "muster_panics_total", "Handlers that panicked; each was answered with Internal.", labels, whole(&m.panics))
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "muster_requests_in_flight", Help: "Requests being served.", ConstLabels: labels,
		}, func() float64 { return float64(m.inflight.Load()) }))
		for _, code := range op.codes() {
			n := new(atomic.Uint64)
			m.errors[code] = n
			withCode := prometheus.Labels{"function": fn.Name, "op": op.Name, "error_code": string(code)}
			counter(reg, "muster_request_errors_total", "Requests that were answered with an error.", withCode, whole(n))
		}
		ops[op.Name] = m
	}
	return ops
}

// triggerMetrics counts the deliveries of one function's triggers.
type triggerMetrics struct{ applied, retried, dead atomic.Uint64 }

func newTriggerMetrics(reg prometheus.Registerer, function string) *triggerMetrics {
	m := &triggerMetrics{}
	for outcome, n := range map[string]*atomic.Uint64{"applied": &m.applied, "retried": &m.retried, "dead": &m.dead} {
		counter(reg, "muster_triggers_total", "Deliveries of triggers, by what became of them.",
			prometheus.Labels{"function": function, "outcome": outcome}, whole(n))
	}
	return m
}

func counter(reg prometheus.Registerer, name, help string, labels prometheus.Labels, value func() float64) {
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func whole(n *atomic.Uint64) func() float64 { return func() float64 { return float64(n.Load()) } }

func (m *opMetrics) sum() float64 { return time.Duration(m.nanos.Load()).Seconds() }

// codes lists every code the op can give, in order.
func (o *Op) codes() []wire.Code {
	codes := append(slices.Clone(common), o.Codes...)
	slices.Sort(codes)
	return slices.Compact(codes)
}
