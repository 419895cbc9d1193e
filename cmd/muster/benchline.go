package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"muster/wire"
)

// benchLine is one line of the table.
type benchLine struct {
	name    string
	callers int
	pace    time.Duration // between the requests of a caller; 0: as fast as it goes
	prepare func() error
	begin   func(ctx context.Context) (end func(), err error) // around each time that it is measured
	do      func(caller, n int) (*nats.Msg, error)
	compare func() string // its figures beside others'
}

// warmUp is how long a line runs before it is measured, at most as long as it is then measured.
const warmUp = 200 * time.Millisecond

// sample is what was measured of a line so far.
type sample struct {
	took     []time.Duration // of each request
	measured time.Duration
	failed   int
}

// measure runs a line for a while and adds to its sample. It runs until a request that was sent in that time, or else a
// later one, has ended: a line is never without figures because the machine is slow.
func (b *benchRun) measure(ctx context.Context, l benchLine, during time.Duration) error {
	s := b.samples[l.name]
	if s == nil {
		s = &sample{}
		b.samples[l.name] = s
	}
	if l.prepare != nil && s.measured == 0 {
		if err := l.prepare(); err != nil {
			return err
		}
	}
	if l.begin != nil {
		end, err := l.begin(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	var failed, ended atomic.Int64 // ended: of those that count
	var late atomic.Bool           // nothing that was sent in time has ended in time
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	begin := time.Now().Add(min(warmUp, during))
	end := begin.Add(during)
	took := make([][]time.Duration, l.callers)
	for i := range l.callers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if l.pace > 0 {
					time.Sleep(time.Until(begin.Add(l.pace*time.Duration(i)/time.Duration(l.callers) + time.Duration(n)*l.pace)))
				}
				sent := time.Now()
				if sent.After(end) {
					if ended.Load() > 0 {
						return
					}
					late.Store(true)
				}
				_, err := l.do(i, n)
				if err != nil {
					failed.Add(1)
					failure.CompareAndSwap(nil, &err)
				}
				if sent.After(begin) {
					ended.Add(1)
					if err == nil {
						took[i] = append(took[i], time.Since(sent))
					}
				}
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil && s.failed == 0 {
		fmt.Fprintf(b.std.err, "%s: first failure: %v\n", l.name, *err)
	}
	s.took = append(s.took, slices.Concat(took...)...)
	if late.Load() {
		during = time.Since(begin)
	}
	s.measured += during
	s.failed += int(failed.Load())
	return ctx.Err()
}

// report prints the table.
func (b *benchRun) report(lines []benchLine) error {
	if len(lines) == 0 {
		return nil
	}
	fmt.Fprintln(b.std.out)
	table := tabwriter.NewWriter(b.std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "line\tcallers\trequests/s\tp50\tp99\tfailed\tcompared")
	for _, l := range lines {
		s := b.samples[l.name]
		slices.Sort(s.took)
		if len(s.took) == 0 {
			fmt.Fprintf(table, "%s\t%d\t0\t\t\t%d\t\n", l.name, l.callers, s.failed)
			continue
		}
		compared := ""
		if l.compare != nil && b.Only == "" {
			compared = l.compare()
		}
		fmt.Fprintf(table, "%s\t%d\t%.0f\t%v\t%v\t%d\t%s\n", l.name, l.callers, s.rate(),
			s.quantile(0.5).Round(time.Microsecond), s.quantile(0.99).Round(time.Microsecond), s.failed, compared)
	}
	return table.Flush()
}

// rate is in requests a second, answered ones only.
func (s *sample) rate() float64 { return float64(len(s.took)) / s.measured.Seconds() }

// quantile needs took sorted.
func (s *sample) quantile(q float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	return s.took[int(q*float64(len(s.took)-1))]
}

// request sends a request and takes an error reply for a failure.
func (b *benchRun) request(caller int, subject string, body []byte) (*nats.Msg, error) {
	reply, err := b.conns[caller%benchClients].Request(subject, body, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if reply.Header.Get(wire.HeaderErrorCode) != "" {
		return nil, fmt.Errorf("%s", reply.Data)
	}
	return reply, nil
}
