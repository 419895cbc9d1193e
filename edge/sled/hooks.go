package sled

import (
	"context"
	"strconv"
	"sync"
	"time"

	"muster/edge/hook"
	"muster/wire"
)

// hooks runs the operator's commands, one at a time. A command outlives the request that asked for it: its repeat waits
// for the same run, so that one that takes longer than any request may take succeeds all the same.
type hooks struct {
	mu   sync.Mutex
	runs map[string]*hookRun // under way or waiting, by what they are for
	ends bool
	lane sync.Mutex // whose command runs
	quit chan struct{}
	work sync.WaitGroup
}

type hookRun struct {
	done chan struct{}
	err  error // once it is done
}

func newHooks() *hooks { return &hooks{runs: map[string]*hookRun{}, quit: make(chan struct{})} }

func errStopping() error { return wire.Errorf(wire.Unavailable, "the sled is stopping") }

// run runs do, or joins the run that is for the same, and returns how it ended. When ctx ends before, it goes on.
func (h *hooks) run(ctx context.Context, what string, do func(context.Context) error) error {
	h.mu.Lock()
	r := h.runs[what]
	switch {
	case h.ends:
		h.mu.Unlock()
		return errStopping()
	case r == nil:
		r = &hookRun{done: make(chan struct{})}
		h.runs[what] = r
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		h.work.Go(func() {
			defer cancel()
			h.lane.Lock()
			defer h.lane.Unlock()
			r.err = do(ctx)
			h.mu.Lock()
			delete(h.runs, what)
			h.mu.Unlock()
			close(r.done)
		})
		h.work.Go(func() {
			select {
			case <-h.quit:
				cancel()
			case <-r.done:
			}
		})
	}
	h.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return wire.Errorf(wire.DeadlineExceeded, "this is recorded, and the sled's command for it is still running; ask again").
			With("outcome", wire.Recorded)
	}
}

// stop ends what runs and waits for its end.
func (h *hooks) stop() {
	h.mu.Lock()
	if !h.ends {
		h.ends = true
		close(h.quit)
	}
	h.mu.Unlock()
	h.work.Wait()
}

// startAgent runs the on-start command for what the sled was told to be, and notes its success. A start that succeeded
// meanwhile is not run again, unless that is what is wanted.
func (s *Sled) startAgent(ctx context.Context, r wire.StartSled, again bool) error {
	return s.hooks.run(ctx, "start "+r.Body.RackID+" "+r.Body.ID, func(ctx context.Context) error {
		if a := s.state.Load().agent; a == nil || a.request != r || a.started && !again {
			return nil // done, or reset
		}
		if err := s.command(ctx, s.OnStart, r.Body, nil, nil); err != nil {
			return wire.Errorf(wire.Internal, "the on-start command failed: %v", err).Because(err)
		}
		return s.change(func(now *state) (*state, error) { return now.started(r), nil })
	})
}

// writeNetwork runs the on-network command for a network config, and notes its success. It is not run for one that is no
// longer the newest: the command that runs last must have the last word.
func (s *Sled) writeNetwork(ctx context.Context, r wire.SledNetworkConfig) error {
	generation := strconv.FormatUint(r.Generation, 10)
	return s.hooks.run(ctx, "network "+generation, func(ctx context.Context) error {
		now := s.state.Load()
		switch n := now.network; {
		case n == nil || n.generation == r.Generation && n.written:
			return nil // done, or reset
		case n.generation != r.Generation:
			return staleGeneration(n.generation)
		}
		var self wire.StartSledBody
		if now.agent != nil {
			self = now.agent.request.Body
		}
		env := []string{"MUSTER_GENERATION=" + generation}
		if err := s.command(ctx, s.OnNetwork, self, env, r.Config); err != nil {
			return wire.Errorf(wire.Internal, "the on-network command failed: %v", err).Because(err)
		}
		return s.change(func(now *state) (*state, error) { return now.configured(r.Generation), nil })
	})
}

// command runs one of the operator's commands; "" is none and succeeds.
func (s *Sled) command(ctx context.Context, line string, self wire.StartSledBody, env []string, config *wire.RackNetworkConfig) error {
	if line == "" {
		return nil
	}
	c := hook.Command{
		Line: line, Out: s.Output,
		Env: append(env, "MUSTER_SLED_ID="+self.ID, "MUSTER_SUBNET="+self.Subnet.Net, "MUSTER_RACK_ID="+self.RackID),
	}
	if config != nil {
		c.Stdin, c.Hide = encodeNetwork(config), secretsOf(config)
	}
	return hook.Run(ctx, c)
}

// Pauses between attempts to start again what this sled was before its process started.
const (
	restartFirst = time.Second
	restartMax   = 30 * time.Second
)

// startAgain runs the on-start command for a sled that was started in an earlier life of this process, until it succeeds.
func (s *Sled) startAgain(ctx context.Context) {
	a := s.state.Load().agent
	if a == nil || !a.started || s.OnStart == "" {
		return
	}
	for pause := restartFirst; ; pause = min(2*pause, restartMax) {
		err := s.startAgent(ctx, a.request, true)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Warn("the on-start command failed, it will be run again", "cause", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if now := s.state.Load().agent; now == nil || now.request != a.request {
			return // reset meanwhile
		}
	}
}
