package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/wire"
)

// benchLine is one line of the table.
type benchLine struct {
	name    string
	callers int
	prepare func() error
	do      func(caller, n int) (*nats.Msg, error)
	compare func(b *benchRun, rate float64) string
}

// warmUp is how long a line runs before it is measured.
const warmUp = 300 * time.Millisecond

// measure runs a line and prints it.
func (b *benchRun) measure(ctx context.Context, l benchLine) error {
	if !strings.Contains(l.name, b.Only) {
		return nil
	}
	if l.prepare != nil {
		if err := l.prepare(); err != nil {
			return err
		}
	}
	var failed atomic.Int64
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	begin := time.Now().Add(warmUp)
	end := begin.Add(b.Time)
	took := make([][]time.Duration, l.callers)
	for i := range l.callers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				sent := time.Now()
				if sent.After(end) {
					return
				}
				if _, err := l.do(i, n); err != nil {
					failed.Add(1)
					failure.CompareAndSwap(nil, &err)
				}
				if sent.After(begin) {
					took[i] = append(took[i], time.Since(sent))
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took...)
	if len(all) == 0 {
		return fmt.Errorf("%s: nothing was answered", l.name)
	}
	slices.Sort(all)
	rate := float64(len(all)) / b.Time.Seconds()
	b.rate[l.name], b.p50[l.name] = rate, all[len(all)/2]
	compared := ""
	if l.compare != nil && b.Only == "" {
		compared = l.compare(b, rate)
	}
	fmt.Fprintf(b.table, "%s\t%d\t%.0f\t%v\t%v\t%d\t%s\t\n", l.name, l.callers, rate,
		all[len(all)/2].Round(time.Microsecond), all[len(all)*99/100].Round(time.Microsecond), failed.Load(), compared)
	if err := failure.Load(); err != nil {
		fmt.Fprintf(b.std.err, "%s: first failure: %v\n", l.name, *err)
	}
	return b.table.Flush()
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
