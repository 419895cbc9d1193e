package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A gauge shows every value of its label, and nothing at all while it cannot be counted.
func TestGauge(t *testing.T) {
	var failure error
	reg := prometheus.NewRegistry()
	newMetrics(reg, Function{Name: "f", Gauges: []Gauge{{
		Name: "things", Help: "h", Label: "kind", Values: []string{"a", "b"},
		Count: func(context.Context) (map[string]int, error) {
			return map[string]int{"a": 3, "none of them": 1}, failure
		},
	}}})
	shown := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "things" {
					got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		return got
	}
	if got := shown(); len(got) != 2 || got["a"] != 3 || got["b"] != 0 {
		t.Errorf("got %v", got)
	}
	failure = errors.New("no link")
	if got := shown(); len(got) != 0 {
		t.Errorf("got %v while it cannot be counted", got)
	}
}
