// Package hive is what runs on a hive, a host of agents: it follows the hive's declaration, carries out what changed, and
// reports.
//
// It never acts on silence. When the declaration is missing, unreadable or out of sight, everything stays as it is. A
// dead watch is noticed: the declaration is read again at every reconnect and on a slow poll. A change that fails is
// tried again with growing pauses, and said in the report. The decisions are in plan.go.
package hive

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"

	"muster/runtime"
	"muster/wire"
)

// Config is what a hive is made of.
type Config struct {
	Name     string // of the hive
	OnChange string // shell command for a changed agent; "" only reports the declared states as reached
	Bus      *runtime.Bus
	Log      *slog.Logger
}

// Function is a hive's process as a function that answers nothing: it tells which keys it touches.
func Function(name string) runtime.Function {
	return runtime.Function{
		Name: wire.Hive, Instance: []string{name}, Version: "1.0.0", Description: "a hive: follows its declaration, and reports",
		Keys: []runtime.Key{
			{Bucket: wire.BucketWanted, Key: name},
			{Bucket: wire.BucketReported, Key: name, Writes: true},
		},
	}
}

// settle is how long a report waits for more to say.
const settle = 20 * time.Millisecond

type ended struct {
	action
	problem string
}

// Run follows the declaration until ctx ends; then it stops what its commands are at, and returns.
func Run(ctx context.Context, c Config) {
	sights := make(chan runtime.Sight)
	go c.Bus.Follow(ctx, wire.BucketWanted, c.Name, func(s runtime.Sight) {
		select {
		case sights <- s:
		case <-ctx.Done():
		}
	})
	p := newPlan()
	ends := make(chan ended)
	report := time.NewTimer(0)
	defer report.Stop()
	for {
		for _, a := range p.start(time.Now()) {
			c.Log.Info("changing agent", "agent", a.agent, "state", a.state)
			go func() { ends <- ended{a, c.carryOut(ctx, a)} }()
		}
		var retry <-chan time.Time
		if next := p.next(); !next.IsZero() && p.running < parallel {
			retry = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			for ; p.running > 0; p.running-- {
				<-ends
			}
			return
		case s := <-sights:
			c.take(p, s)
			report.Reset(settle)
		case e := <-ends:
			p.done(e.action, e.problem, time.Now())
			if e.problem != "" {
				c.Log.Warn("change failed, it will be tried again", "agent", e.agent, "state", e.state, "cause", e.problem)
			}
			report.Reset(settle)
		case <-retry:
		case <-report.C:
			report.Reset(wire.ReportEvery)
			if err := c.report(ctx, p); err != nil && ctx.Err() == nil {
				c.Log.Warn("report not stored", "cause", err)
				report.Reset(time.Second)
			}
		}
	}
}

func (c Config) take(p *plan, s runtime.Sight) {
	switch {
	case s.Blind != nil:
		c.Log.Warn("cannot see the declaration; everything stays as it is", "cause", s.Blind)
	case s.Revision.Absent():
		c.Log.Info("nothing is declared; everything stays as it is")
	default:
		if err := p.declare(s.Revision.Revision, s.Revision.Value); err != nil {
			c.Log.Error("the declaration cannot be read; everything stays as it is", "cause", err)
			return
		}
		c.Log.Info("following declaration", "revision", s.Revision.Revision)
	}
}

func (c Config) carryOut(ctx context.Context, a action) string {
	if c.OnChange == "" {
		return ""
	}
	return hook(ctx, c.OnChange, c.Name, a)
}

func (c Config) report(ctx context.Context, p *plan) error {
	body, err := json.Marshal(p.report(time.Now()), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.Bus.Put(ctx, wire.BucketReported, c.Name, body, 0)
}
