package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// A line has figures however short its rounds are beside a request, and ends when every request fails.
func TestBench_LineHasFigures(t *testing.T) {
	for name, c := range map[string]struct {
		takes    time.Duration
		fails    error
		counted  bool
		measured time.Duration
	}{
		"quick":    {takes: 5 * time.Millisecond, counted: true, measured: 100 * time.Millisecond},
		"slow":     {takes: time.Second, counted: true, measured: 1900 * time.Millisecond}, // one begun before, one while it counts
		"no reply": {takes: time.Second, fails: errors.New("no reply"), measured: 1900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &benchRun{samples: map[string]*sample{}, std: streams{err: io.Discard}}
				line := benchLine{name: name, callers: 3, do: func(int, int) (*nats.Msg, error) {
					time.Sleep(c.takes)
					return nil, c.fails
				}}
				if err := b.measure(context.Background(), line, 100*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				s := b.samples[name]
				if counted := len(s.took) > 0; counted != c.counted || s.measured != c.measured {
					t.Errorf("%d requests counted, measured for %v; want %v and %v", len(s.took), s.measured, c.counted, c.measured)
				}
				if (s.failed > 0) != (c.fails != nil) {
					t.Errorf("%d failed", s.failed)
				}
			})
		})
	}
}
