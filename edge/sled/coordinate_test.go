package sled

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"muster/functions/join/quorum"
	"muster/wire"
)

func TestCoordinate_AllAtOnce(t *testing.T) {
	story(t, 5, func(t *testing.T, w *world) {
		began := time.Now()
		w.do(board(1), order(1, nil, boards(5)...))
		if got := w.acked(board(1)); got != "12345" {
			t.Fatalf("acks %s", got)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited for %v", took)
		}
		w.commit(1, boards(5)...)
		u, err := w.unlock(board(4))
		if err != nil || u.Epoch != 1 || len(u.From) != 3 || u.Members != 5 || u.Fingerprint == "" || len(u.Prior) != 0 {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

// A mistyped sled does not keep the others from their shares, and is the one whose ack is missing; the correction is a
// higher epoch.
func TestCoordinate_AMistypedSled(t *testing.T) {
	story(t, 4, func(t *testing.T, w *world) {
		w.do(board(1), order(1, nil, board(1), board(2), board(3), board(9)))
		time.Sleep(time.Minute)
		if got := w.acked(board(1)); got != "123" {
			t.Fatalf("acks %s", got)
		}
		w.do(board(1), order(2, nil, boards(4)...))
		if got := w.acked(board(1)); got != "1234" {
			t.Fatalf("acks %s", got)
		}
		w.commit(2, boards(4)...)
		if _, err := w.unlock(board(3)); err != nil {
			t.Error(err)
		}
	})
}

func TestCoordinate_ALateSled(t *testing.T) {
	story(t, 5, func(t *testing.T, w *world) {
		w.silence(true, board(3))
		w.do(board(2), order(1, nil, boards(5)...))
		time.Sleep(20 * time.Second)
		if got := w.acked(board(2)); got != "1245" {
			t.Fatalf("acks %s", got)
		}
		w.silence(false, board(3))
		time.Sleep(retryMax)
		if got := w.acked(board(2)); got != "12345" {
			t.Fatalf("acks %s", got)
		}
		w.commit(1, boards(5)...)
		// Everybody knows its key: it can recover the secret from any of the others.
		w.silence(true, board(1), board(2))
		if u, err := w.unlock(board(3)); err != nil || fmt.Sprint(u.From) != fmt.Sprint([]wire.Baseboard{board(3), board(4), board(5)}) {
			t.Errorf("%+v, %v", u, err)
		}
	})
}

// The coordinator is killed whenever a request is on its way, and comes back: it goes on by itself, with the configuration
// that was seen already.
func TestCoordinate_GoesOnAfterItsRestart(t *testing.T) {
	for _, die := range []int{0, 1, 3, 4, 6} { // 4 identities, 4 prepares
		t.Run(fmt.Sprint(die), func(t *testing.T) {
			story(t, 5, func(t *testing.T, w *world) {
				var mu sync.Mutex
				n := 0
				w.spy = func(to wire.Baseboard, op string, body any) error {
					mu.Lock()
					defer mu.Unlock()
					if _, prepare := body.(quorum.Prepare); !prepare && op != wire.SledIdentity {
						return nil
					}
					if n++; n > die {
						return errors.New("the coordinator is dead")
					}
					return nil
				}
				w.do(board(1), order(1, nil, boards(5)...))
				synctest.Wait()
				w.down(board(1))
				w.mu.Lock()
				w.spy = nil
				w.mu.Unlock()
				w.up(board(1))
				if got := w.acked(board(1)); got != "12345" {
					t.Fatalf("acks %s", got)
				}
				w.commit(1, boards(5)...)
				if _, err := w.unlock(board(5)); err != nil {
					t.Error(err)
				}
				w.down(board(1))
				w.up(board(1))
				if got := w.acked(board(1)); got != "12345" {
					t.Errorf("after the commit and another restart: acks %s", got)
				}
			})
		})
	}
}

// Each epoch carries the secrets of those before, with other members and another coordinator, from a threshold of the old
// members; what was never committed is not among them.
func TestCoordinate_CarriesSecretsOn(t *testing.T) {
	story(t, 6, func(t *testing.T, w *world) {
		w.do(board(1), order(1, nil, boards(5)...))
		synctest.Wait()
		w.commit(1, boards(5)...)
		first, err := w.unlock(board(1))
		if err != nil {
			t.Fatal(err)
		}
		// Epoch 2 is prepared and superseded. Epoch 3: sleds 4 and 5 are silent and replaced by 6.
		w.silence(true, board(4), board(5))
		w.do(board(1), order(2, ptr(uint64(1)), boards(5)...))
		synctest.Wait()
		w.do(board(2), order(3, ptr(uint64(1)), board(1), board(2), board(3), board(6)))
		if got := w.acked(board(2)); got != "1236" {
			t.Fatalf("acks %s", got)
		}
		if got := w.acked(board(1)); got != string(wire.NotCoordinator) {
			t.Errorf("the one before: %s", got)
		}
		w.commit(3, board(1), board(2), board(3), board(6))
		third, err := w.unlock(board(6)) // who was no member of epoch 1
		if err != nil || third.Epoch != 3 || len(third.Prior) != 1 || third.Prior[0] != (PriorSecret{1, first.Fingerprint}) {
			t.Fatalf("%+v, %v; want epoch 1 with %s", third, err, first.Fingerprint)
		}
		w.do(board(3), order(7, ptr(uint64(3)), board(1), board(2), board(3), board(6)))
		synctest.Wait()
		w.commit(7, board(1), board(2), board(3), board(6))
		u, err := w.unlock(board(1))
		want := []PriorSecret{{1, first.Fingerprint}, {3, third.Fingerprint}}
		if err != nil || fmt.Sprint(u.Prior) != fmt.Sprint(want) {
			t.Errorf("%+v, %v; want %v", u, err, want)
		}
		// Who is no longer a member gets no share.
		w.silence(false, board(4), board(5))
		if _, err := w.unlock(board(5)); err == nil {
			t.Error("a sled that was removed recovers the old secret")
		}
	})
}

// The secret before cannot be recovered yet: the coordinator says so, goes on when it can, also after its restart.
func TestCoordinate_WaitsForTheSecretBefore(t *testing.T) {
	story(t, 5, func(t *testing.T, w *world) {
		w.do(board(1), order(1, nil, boards(5)...))
		synctest.Wait()
		w.commit(1, boards(5)...)
		w.silence(true, board(3), board(4), board(5))
		w.do(board(1), order(2, ptr(uint64(1)), boards(5)...))
		time.Sleep(30 * time.Second)
		if got := w.acked(board(1)); got != string(wire.Unavailable) {
			t.Fatalf("%s", got)
		}
		w.down(board(1))
		w.up(board(1))
		w.silence(false, board(5))
		time.Sleep(retryMax + shareTimeout + identityTimeout)
		if got := w.acked(board(1)); got != "125" {
			t.Errorf("acks %s", got)
		}
	})
}

func TestCoordinate_Superseded(t *testing.T) {
	story(t, 4, func(t *testing.T, w *world) {
		w.silence(true, board(4))
		w.do(board(1), order(1, nil, boards(4)...))
		time.Sleep(time.Minute)
		// The control plane gave it up, and another coordinates; the first hears of it from a member.
		w.silence(true, board(1))
		w.silence(false, board(4))
		w.do(board(2), order(2, nil, boards(4)...))
		time.Sleep(time.Minute)
		if got := w.acked(board(2)); got != "234" {
			t.Fatalf("acks %s", got)
		}
		var mu sync.Mutex
		asked := 0
		w.mu.Lock()
		w.spy = func(_ wire.Baseboard, _ string, body any) error {
			mu.Lock()
			defer mu.Unlock()
			if p, ok := body.(quorum.Prepare); ok && p.Config.Epoch == 1 {
				asked++
			}
			return nil
		}
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		mu.Lock()
		if asked != 0 {
			t.Errorf("the superseded coordinator has sent %d prepares", asked)
		}
		mu.Unlock()
		w.silence(false, board(1))
		time.Sleep(retryMax + identityTimeout)
		if got := w.acked(board(2)); got != "1234" {
			t.Errorf("acks %s", got)
		}
	})
}

func TestCoordinate_ASledIsWipedAndBack(t *testing.T) {
	story(t, 4, func(t *testing.T, w *world) {
		w.do(board(1), order(1, nil, boards(4)...))
		if got := w.acked(board(1)); got != "1234" {
			t.Fatalf("acks %s", got)
		}
		w.down(board(3))
		w.dirs[board(3)] = t.TempDir()
		w.up(board(3))
		if err := w.ask(context.Background(), board(3), "", quorum.Commit{RackID: rack, Epoch: 1}, nil); code(err) != wire.NotPrepared {
			t.Fatalf("%v", err)
		}
		w.do(board(1), order(1, nil, boards(4)...)) // again: it looks
		if got := w.acked(board(1)); got != "1234" {
			t.Fatalf("acks %s", got)
		}
		w.commit(1, boards(4)...)
		w.silence(true, board(1))
		if _, err := w.unlock(board(3)); err != nil {
			t.Error(err)
		}
	})
}

func TestCoordinate_ResetInTheMiddle(t *testing.T) {
	story(t, 4, func(t *testing.T, w *world) {
		w.silence(true, board(4))
		w.do(board(1), order(1, nil, boards(4)...))
		time.Sleep(time.Second)
		for _, b := range boards(3) {
			w.do(b, wire.SledForget{RackID: rack})
		}
		w.silence(false, board(4))
		time.Sleep(time.Hour)
		for _, b := range boards(4) {
			var id wire.Identity
			if err := w.ask(context.Background(), b, wire.SledIdentity, nil, &id); err != nil || id.RackID != nil {
				t.Errorf("%+v, %v", id, err)
			}
		}
		if got := w.acked(board(1)); got != string(wire.NotCoordinator) {
			t.Errorf("%s", got)
		}
	})
}

// A sled that answers garbage, or refuses, is a sled that has not answered.
func TestCoordinate_Garbage(t *testing.T) {
	story(t, 4, func(t *testing.T, w *world) {
		lie := func(ctx context.Context, to wire.Baseboard, op string, body, reply any) error {
			switch {
			case to == board(2) && op == wire.SledIdentity:
				return json.Unmarshal([]byte(`{"baseboard":{"part_number":"913-0000019","serial_number":"2FAKE003"},"exchange_key":"X"}`), reply)
			case to == board(3) && op == wire.SledPrepare:
				return wire.Errorf(wire.Busy, "not now")
			}
			return w.ask(ctx, to, op, body, reply)
		}
		w.sleds[board(1)].ask = lie
		w.do(board(1), order(1, nil, boards(4)...))
		time.Sleep(time.Minute)
		if got := w.acked(board(1)); got != "14" {
			t.Errorf("acks %s", got)
		}
		if said := w.log.String(); !strings.Contains(said, "not its own") || !strings.Contains(said, "Busy") {
			t.Errorf("the log does not say why:\n%s", said)
		}
		// Said once, not at each attempt.
		if n := strings.Count(w.log.String(), "not its own"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

func TestUnlock_SaysWhatIsMissing(t *testing.T) {
	story(t, 5, func(t *testing.T, w *world) {
		if _, err := w.unlock(board(1)); !errors.Is(err, ErrNotCommitted) {
			t.Errorf("a free sled: %v", err)
		}
		w.do(board(1), order(1, nil, boards(5)...))
		synctest.Wait()
		w.commit(1, boards(3)...) // 4 and 5 have not committed yet
		w.silence(true, board(2))
		_, err := w.unlock(board(1))
		if err == nil || !strings.Contains(err.Error(), "have 2 of the 3 key shares") ||
			!strings.Contains(err.Error(), "2FAKE002: ") || !strings.Contains(err.Error(), "2FAKE005: NotPrepared") {
			t.Errorf("%v", err)
		}
	})
}

// One wrong share among the answers is left out; the right ones suffice.
func TestUnlock_AMemberLies(t *testing.T) {
	story(t, 5, func(t *testing.T, w *world) {
		w.do(board(1), order(1, nil, boards(5)...))
		synctest.Wait()
		w.commit(1, boards(5)...)
		liar, me := w.sleds[board(2)].state.Load(), w.sleds[board(1)].state.Load()
		wrong := newCast(t, 5).deal(1, 5, nil).Shares[board(2)]
		sealed, err := liar.key.Seal(newCounter(), wrong, me.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		asked := func(ctx context.Context, to wire.Baseboard, op string, body, reply any) error {
			if to == board(2) {
				reply.(*quorum.SealedShare).Share = sealed
				return nil
			}
			if _, ok := body.(quorum.ShareRequest); ok {
				time.Sleep(time.Second) // the liar is the first
			}
			return w.ask(ctx, to, op, body, reply)
		}
		got, err := me.gather(context.Background(), 1, asked, nil)
		if err != nil || len(got.from) != 3 {
			t.Errorf("%v, %v", got.from, err)
		}
		for _, b := range got.from {
			if b == board(2) {
				t.Error("its share was taken")
			}
		}
	})
}
