package test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// perTriggerHive is how many triggers go to one hive, each for an agent of its own.
const perTriggerHive = 200

// triggers publishes one trigger after the other, some of them twice.
func (w *whole) triggers() error {
	js, err := jetstream.New(w.nc(3))
	if err != nil {
		return err
	}
	return w.each(50*time.Millisecond, func(n int) error {
		id := fmt.Sprint(n)
		m := nats.NewMsg(wire.TriggerSubject(wire.Declare, "set", fmt.Sprintf("triggered%d", n/perTriggerHive), "a"+id))
		m.Data = []byte(state("up"))
		for name, value := range map[string]string{"specversion": "1.0", "id": id, "source": "/whole", "type": "t"} {
			m.Header["ce-"+name] = []string{value}
		}
		for stored, end := 0, time.Now().Add(wholeLimit); stored < 1+n%2; {
			once, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			_, err := js.PublishMsg(once, m)
			cancel()
			switch {
			case err == nil:
				stored++
			case time.Now().After(end):
				return fmt.Errorf("publish trigger %d: %w", n, err)
			}
		}
		w.triggered = n + 1
		return nil
	})
}

// throughput tells how much faster declarations are on one server than on these three.
func (w *whole) throughput() {
	one := startServers(w.t, 1)
	replica := serveProcess(w.t, one[0].url)
	for _, m := range []struct {
		what, url string
	}{{"one server", one[0].url}, {"three servers", w.url}} {
		const callers, lasts = 64, 3 * time.Second
		nc := natstest.Connect(w.t, m.url)
		var done, failed atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for i := range callers {
			wg.Go(func() {
				for n := 0; time.Since(began) < lasts; n++ {
					a, err := try(nc, wholeWait, fmt.Sprintf("muster.declare.set.speed%d.a", i), state([]string{"up", "paused"}[n%2]))
					if err != nil || a.failure != nil {
						failed.Add(1)
					} else {
						done.Add(1)
					}
				}
			})
		}
		wg.Wait()
		w.t.Logf("throughput on %s, each write synced to disk: %.0f declarations/s of %d callers (%d failed)",
			m.what, float64(done.Load())/time.Since(began).Seconds(), callers, failed.Load())
	}
	replica.end()
	one[0].kill()
}
