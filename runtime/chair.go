package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"muster/runtime/store"
	"muster/wire"
)

// How long a chair is held. One that was not renewed for chairHeld is given up before another replica may take it, after
// chairTaken without a renewal; the server drops it after chairTTL. Where nothing tells that the last holder has left, it
// may still believe that it holds it, until its next renewal fails: whoever takes it then keeps still for chairStill.
const (
	chairRenew = 1500 * time.Millisecond
	chairWrite = time.Second // a renewal that is not answered by then is looked for
	chairHeld  = 4 * time.Second
	chairTaken = 5500 * time.Millisecond
	chairTTL   = 8 * time.Second
	chairLook  = 500 * time.Millisecond
	chairStill = 2 * time.Second
)

// Chair is work that one replica at a time does: the one that holds a key. It is for what would do harm twice, or cost
// too much; a replica that was stopped for a while and goes on finds its context ended.
//
// No two replicas hold it at once as long as their clocks run at the same speed; what the clocks show does not matter.
type Chair struct {
	Log  store.Log // of a bucket whose keys expire
	Key  string
	Name string // who holds it, for operators who read the key
	Say  *slog.Logger
}

// Hold waits for the chair, over and over, and calls work with a context that ends when it is lost, until ctx ends. held
// tells whether it still is: ask right before what must not be done by two.
func (c Chair) Hold(ctx context.Context, work func(ctx context.Context, held func() bool)) {
	id := c.Name + " " + nuid.Next()
	var seen uint64    // the holder's last revision
	var when time.Time // since when we see it
	for ctx.Err() == nil {
		rev, err := store.Read(ctx, c.Log, c.Key)
		switch {
		case err != nil:
		case rev.Absent(), rev.Revision == seen && time.Since(when) > chairTaken:
			began := time.Now()
			if mine, err := c.write(ctx, id, rev.Revision); err == nil {
				c.Say.Info("chair taken", "key", c.Key, "bucket", c.Log.Bucket())
				still := time.Duration(0)
				if rev.Absent() && !free(rev) {
					still = chairStill
				}
				c.hold(ctx, id, mine, began, still, work)
				c.Say.Info("chair left", "key", c.Key, "bucket", c.Log.Bucket())
			}
		case rev.Revision != seen:
			seen, when = rev.Revision, time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(chairLook):
		}
	}
}

// free tells whether a chair that nobody holds was left by its holder, or not renewed for chairTTL. Else it may have been
// taken away from one who does not know yet: by an operator, or with its bucket.
func free(rev store.Revision) bool {
	return rev.Header[wire.HeaderHandedOver] != nil || rev.Header[wire.HeaderMarker] != nil
}

// hold works and renews until the chair is lost.
func (c Chair) hold(ctx context.Context, id string, mine uint64, renewed time.Time, still time.Duration, work func(context.Context, func() bool)) {
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	var until atomic.Pointer[time.Time]
	renew := func(began time.Time) {
		renewed = began
		end := began.Add(chairHeld)
		until.Store(&end)
	}
	renew(renewed)
	from := renewed.Add(still)
	go func() {
		defer close(done)
		work(working, func() bool {
			now := time.Now()
			return working.Err() == nil && !now.Before(from) && now.Before(*until.Load())
		})
	}()
	defer func() {
		stop()
		<-done
		c.leave(mine)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-time.After(min(chairRenew, time.Until(renewed.Add(chairHeld)))):
		}
		if time.Since(renewed) >= chairHeld {
			return
		}
		began := time.Now()
		rev, err := c.renew(ctx, id, mine, renewed.Add(chairHeld))
		switch _, lost := errors.AsType[*store.Conflict](err); {
		case err == nil:
			mine = rev
			renew(began)
		case lost:
			return
		}
	}
}

// renew writes the chair anew, and looks what became of that when it is not told.
func (c Chair) renew(ctx context.Context, id string, mine uint64, end time.Time) (uint64, error) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	attempt, cancelAttempt := context.WithTimeout(ctx, chairWrite)
	rev, err := c.write(attempt, id, mine)
	cancelAttempt()
	if err != nil {
		look, cancelLook := context.WithTimeout(ctx, chairWrite)
		defer cancelLook()
		rev, err = c.mine(look, id, mine, err)
	}
	return rev, err
}

func (c Chair) write(ctx context.Context, id string, follows uint64) (uint64, error) {
	return c.Log.Write(ctx, []store.Entry{{Key: c.Key, Value: []byte(id), Follows: follows, TTL: chairTTL}})
}

// mine looks whether a renewal that failed is stored nevertheless, by us.
func (c Chair) mine(ctx context.Context, id string, last uint64, err error) (uint64, error) {
	rev, readErr := c.Log.Last(ctx, c.Key)
	switch {
	case readErr != nil:
		return 0, readErr
	case string(rev.Value) == id && !rev.Marker:
		if rev.Revision != last {
			return rev.Revision, nil
		}
		return 0, fmt.Errorf("renew chair: %v", err) //nolint:errorlint // a conflict that is none is not passed on
	}
	return 0, &store.Conflict{Found: rev.Revision}
}

// leave lets another replica have the chair at once.
func (c Chair) leave(mine uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := c.Log.Write(ctx, []store.Entry{{Key: c.Key, Follows: mine, TTL: time.Second, Header: chairLeft()}})
	if err != nil {
		c.Say.Debug("chair not handed over", "key", c.Key, "cause", err)
	}
}

func chairLeft() map[string][]string {
	return map[string][]string{wire.HeaderKVOperation: {wire.KVDelete}, wire.HeaderHandedOver: {"1"}}
}
