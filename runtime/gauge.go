package runtime

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauge counts what a function knows of, by one label of few values. It is counted when it is scraped, so that every
// replica shows what is there now. While it cannot be counted it is absent, which is not 0.
type Gauge struct {
	Name   string
	Help   string
	Label  string
	Values []string // of the label: all that there are, counted or not
	Count  func(ctx context.Context) (map[string]int, error)
}

// countLimit is how long a scrape waits for a count.
const countLimit = 3 * time.Second

// counted is a gauge as Prometheus collects it.
type counted struct {
	Gauge
	desc *prometheus.Desc
}

func newCounted(g Gauge) counted {
	return counted{g, prometheus.NewDesc(g.Name, g.Help, []string{g.Label}, nil)}
}

func (c counted) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

func (c counted) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countLimit)
	defer cancel()
	n, err := c.Count(ctx)
	if err != nil {
		return
	}
	for _, value := range c.Values {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n[value]), value)
	}
}
