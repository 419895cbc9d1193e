package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"

	"muster/wire"
)

// What porcupine is told of one backend: its record is the lease that counts, "" for none. Leases here outlive the test.

type leaseAsked struct {
	op    string // register, heartbeat or deregister
	lease string // what the caller holds, "" for none
}

type leaseTold struct {
	expired bool
	lease   string
}

var leaseModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(was, input, output any) (bool, any) {
		now, in, out := was.(string), input.(leaseAsked), output.(leaseTold)
		switch {
		case out.expired:
			return in.lease != "" && in.lease != now, now
		case in.op == "register" && in.lease == "":
			return out.lease != "" && out.lease != now, out.lease
		case in.lease != now:
			return false, now
		case in.op == "deregister":
			return true, ""
		}
		return out.lease == now, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// leases has callers take one backend from each other, and returns what they were told.
func leases(nc *nats.Conn, t *tally, backend string, clients, each int) (all []porcupine.Operation, err error) {
	began := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id := range clients {
		wg.Go(func() {
			c := leaseClient{nc: nc, tally: t, backend: backend, rand: rand.New(rand.NewPCG(uint64(len(backend)), uint64(id)))}
			for n := range each {
				o, failed := c.round(fmt.Sprintf("%d-%d", id, n), began)
				o.ClientId = id
				mu.Lock()
				all = append(all, o)
				if failed != nil {
					err = failed
				}
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return all, err
}

type leaseClient struct {
	nc      *nats.Conn
	tally   *tally
	backend string
	rand    *rand.Rand
	held    string // the last lease it got, current or not
}

func (c *leaseClient) round(id string, began time.Time) (porcupine.Operation, error) {
	in, body := leaseAsked{op: "register"}, wire.Register{Address: "[fd00::1]:80", TTL: "1h"}
	switch n := c.rand.IntN(10); {
	case c.held == "" || n < 2:
	case n < 4:
		in.lease, body.Lease = c.held, c.held
	case n < 8:
		in = leaseAsked{"heartbeat", c.held}
	default:
		in = leaseAsked{"deregister", c.held}
	}
	var text []byte
	var err error
	if in.op == "register" {
		text, err = json.Marshal(body)
	} else {
		text, err = json.Marshal(wire.Heartbeat{Lease: in.lease})
	}
	o := porcupine.Operation{Input: in, Call: time.Since(began).Nanoseconds()}
	if err != nil {
		return o, err
	}
	a, err := c.tally.insist(c.nc, "muster.resolve."+in.op+".model."+c.backend, string(text), wire.HeaderRequestID, id)
	o.Return = time.Since(began).Nanoseconds()
	switch {
	case err != nil:
		return o, err
	case a.failure != nil && a.failure.Code != wire.LeaseExpired:
		return o, fmt.Errorf("%+v: %s", in, a.raw)
	case a.failure != nil:
		o.Output = leaseTold{expired: true}
		return o, nil
	}
	var l wire.Lease
	if err := json.Unmarshal(a.raw, &l); err != nil {
		return o, err
	}
	o.Output = leaseTold{lease: l.Lease}
	if in.op != "deregister" {
		c.held = l.Lease
	}
	return o, nil
}
