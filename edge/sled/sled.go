// Package sled is what runs on a sled: it keeps its share of the rack secret, coordinates an epoch of the trust quorum
// when it is told to, starts its agent and takes the rack's network config. [Run] is all a process needs.
//
// Roles: the control plane (functions/join) asks one sled to reconfigure, which makes that one the coordinator: it makes
// the secret, sends every member its share and shows who has acked. Then the control plane commits, starts and configures
// every sled. Sleds ask each other only for identities, prepares and shares.
//
// What always holds: what a sled answers is on its disk before it answers; a coordinator's configuration is on its disk
// before anybody sees it, so there is one for each epoch whatever crashes; an equal repeat is answered as the first time; a
// sled belongs to one rack, and epochs and generations only rise, until it is reset; a share goes only to members of a
// committed epoch, sealed. What makes progress: a coordinator asks silent members again until all have acked or a higher
// epoch comes, and goes on after its own restart.
//
// The gap: who may send to a sled may make it a coordinator or prepare it; permissions on its subjects are what guards
// them. While an epoch is being prepared its coordinator's disk holds all shares.
//
// The decisions are pure: rules.go and agent.go for what is answered, spread.go for what a coordinator does next.
package sled

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster/runtime"
	"muster/wire"
)

// Version is the version of the micro service.
const Version = "1.0.0"

// Config is what a sled is made of.
type Config struct {
	Baseboard wire.Baseboard
	Dir       string // where it keeps what it knows; made if absent
	OnStart   string // shell command for its start; "" for none
	OnNetwork string // shell command for a network config; "" for none
	Bus       *runtime.Bus
	Log       *slog.Logger
	Metrics   prometheus.Registerer // one for each sled; nil keeps them to itself
	Output    io.Writer             // takes what the commands print; nil is standard error
}

// Sled is a sled that has its store open.
type Sled struct {
	Config
	log    *slog.Logger
	random io.Reader
	ask    asking
	hooks  *hooks
	every  time.Duration // between announcements
	ttl    time.Duration // of an announcement

	mu    sync.Mutex // held while the state changes
	store *store
	state atomic.Pointer[state]

	acks    atomic.Pointer[acks]
	changed chan struct{} // the state did, for the announcer
	moved   chan struct{} // the state did, for the coordinator
	asked   chan struct{} // for what is coordinated already: look again whether its members hold it
}

// New opens the sled's store. A store that cannot be read is an error: the sled must not start without what it knew.
func New(c Config) (*Sled, error) {
	if err := c.Baseboard.Check(); err != nil {
		return nil, fmt.Errorf("baseboard: %w", err)
	}
	if c.Output == nil {
		c.Output = os.Stderr
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	s := &Sled{
		Config: c, log: c.Log.With("sled", c.Baseboard.String()), random: rand.Reader, hooks: newHooks(),
		every: announceEvery, ttl: announceTTL,
		changed: make(chan struct{}, 1), moved: make(chan struct{}, 1), asked: make(chan struct{}, 1),
	}
	if c.Bus != nil {
		s.ask = askOn(c.Bus)
	}
	st, now, err := openStore(c.Dir, c.Baseboard, s.random)
	if err != nil {
		return nil, err
	}
	s.store = st
	s.state.Store(now)
	return s, nil
}

// Run runs a sled until ctx ends. Then it takes no more requests, finishes those it has, and returns.
func Run(ctx context.Context, c Config) error {
	s, err := New(c)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// stopWithin is how long a sled may take to finish what it has.
const stopWithin = 15 * time.Second

// Run serves the sled until ctx ends, and closes its store.
func (s *Sled) Run(ctx context.Context) error {
	svc, err := s.Bus.Serve(ctx, s.Function(), s.Metrics)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	var work sync.WaitGroup
	work.Go(func() { s.announce(ctx) })
	work.Go(func() { s.coordinate(ctx) })
	work.Go(func() { s.startAgain(ctx) })
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err = s.Bus.Stop(stop, svc)
	s.hooks.stop()
	work.Wait()
	return errors.Join(err, s.Close())
}

// Close gives the store to others, for a sled that does not run.
func (s *Sled) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return nil
	}
	st := s.store
	s.store = nil
	return st.close()
}

// change applies a rule to the state, keeps what comes out of it, and then shows it. It is on disk before anybody sees it.
func (s *Sled) change(rule func(*state) (*state, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.state.Load()
	next, err := rule(now)
	if err != nil || next == now {
		return err
	}
	if s.store == nil {
		return errStopping()
	}
	if err := s.store.save(next); err != nil {
		return err
	}
	s.state.Store(next)
	s.tell(now, next)
	wake(s.changed)
	wake(s.moved)
	return nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tell logs what has changed, old and new. Neither shares nor network configs are in it.
func (s *Sled) tell(old, now *state) {
	from, to := old.identity(), now.identity()
	var attrs []any
	differ := func(name string, old, now any) {
		if old != now {
			attrs = append(attrs, name, now, "old_"+name, old)
		}
	}
	differ("rack", old.rack, now.rack)
	differ("prepared_epoch", number(from.PreparedEpoch), number(to.PreparedEpoch))
	differ("committed_epoch", number(from.CommittedEpoch), number(to.CommittedEpoch))
	differ("started", from.Started, to.Started)
	differ("network_generation", from.NetworkGeneration, to.NetworkGeneration)
	if len(attrs) > 0 {
		s.log.Info("changed", attrs...)
	}
}

// number is 0 for none.
func number(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
