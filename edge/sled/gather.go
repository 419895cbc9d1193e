package sled

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/functions/join/quorum"
	"muster/runtime"
	"muster/wire"
)

// asking asks a sled for an op and decodes the reply, as [runtime.Bus.Ask] does.
type asking func(ctx context.Context, to wire.Baseboard, op string, body, reply any) error

// asksOfSleds lists what a sled asks of others.
func asksOfSleds() []runtime.Ask {
	var asks []runtime.Ask
	for _, op := range []string{wire.SledIdentity, wire.SledPrepare, wire.SledShare} {
		asks = append(asks, runtime.Ask{Function: wire.Sled, Subject: wire.SledSubjects(op)})
	}
	return asks
}

// shareTimeout is how long a member may take to give its share.
const shareTimeout = 2 * time.Second

// gathered is a rack secret and whose shares gave it.
type gathered struct {
	secret quorum.RackSecret
	from   []wire.Baseboard // in baseboard order
}

// gather recovers the secret of an epoch that this sled takes part in: it asks the other members for their shares, again
// and again, until a threshold of them with this sled's own is there or ctx ends. trouble, if it is set, is told what is
// wrong with a member, when that is news.
func (s *state) gather(ctx context.Context, epoch uint64, ask asking, trouble func(wire.Baseboard, error)) (gathered, error) {
	e := s.epochs[epoch]
	if e == nil {
		return gathered{}, fmt.Errorf("this sled has no part in epoch %d", epoch)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type given struct {
		by    wire.Baseboard
		share quorum.Share
		err   error
	}
	came := make(chan given)
	for _, b := range e.config.Baseboards() {
		if b == s.board {
			continue
		}
		go func() {
			for failures := 0; ctx.Err() == nil; failures++ {
				share, err := s.fetch(ctx, e, b, ask)
				select {
				case came <- given{b, share, err}:
				case <-ctx.Done():
					return
				}
				if err == nil {
					return
				}
				select {
				case <-time.After(backoff(failures)):
				case <-ctx.Done():
				}
			}
		}()
	}
	shares, problems := map[wire.Baseboard]quorum.Share{s.board: e.share}, map[wire.Baseboard]string{}
	for len(shares) < e.config.Threshold {
		select {
		case g := <-came:
			if g.err == nil {
				shares[g.by] = g.share
				delete(problems, g.by)
				continue
			}
			if trouble != nil && problems[g.by] != g.err.Error() {
				trouble(g.by, g.err)
			}
			problems[g.by] = g.err.Error()
		case <-ctx.Done():
			return gathered{}, tooFew(len(shares), e.config.Threshold, problems)
		}
	}
	secret, err := quorum.Recover(e.config, shares)
	return gathered{secret, slices.SortedFunc(maps.Keys(shares), wire.Baseboard.Compare)}, err
}

// fetch gets one member's share and checks that it is the right one.
func (s *state) fetch(ctx context.Context, e *prepared, from wire.Baseboard, ask asking) (quorum.Share, error) {
	key := e.keys[from]
	if key == "" {
		return quorum.Share{}, errors.New("its key was never told to this sled")
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	var sealed quorum.SealedShare
	body := quorum.ShareRequest{RackID: e.config.RackID, Epoch: e.config.Epoch, Requester: s.board}
	if err := ask(ctx, from, wire.SledShare, body, &sealed); err != nil {
		return quorum.Share{}, err
	}
	share, err := s.key.Open(sealed.Share, key)
	if err != nil {
		return quorum.Share{}, err
	}
	return share, e.config.CheckShare(from, share)
}

// tooFew tells how many shares there are, and why there are not more.
func tooFew(have, need int, problems map[wire.Baseboard]string) error {
	err := fmt.Errorf("have %d of the %d key shares it takes", have, need)
	for _, b := range slices.SortedFunc(maps.Keys(problems), wire.Baseboard.Compare) {
		err = fmt.Errorf("%w; %v: %s", err, b, problems[b])
	}
	return err
}
