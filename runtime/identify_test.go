package runtime

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/store"
	"muster/wire"
)

// A revision has a message id wherever the events stream may get another leader, and where the bucket may.
func TestMessage_HasAnIdWhereAnotherLeaderMayRepeatIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec   BucketSpec
		copies int
		copied bool
		id     string
	}{
		"all have one copy":      {Wanted, 1, false, ""},
		"the bucket has three":   {Wanted, 3, false, "w1"},
		"only the events do":     {Wanted, 1, true, "w1"},
		"both have":              {Wanted, 3, true, "w1"},
		"what becomes no event":  {Backends, 3, true, ""},
		"nor do network configs": {Networks, 3, true, ""},
	} {
		k := &Bucket{bus: &Bus{}, spec: c.spec}
		k.state.Store(&bucketState{copies: c.copies})
		k.bus.copied.Store(c.copied)
		m := k.message(store.Entry{Key: "h1", Header: map[string][]string{wire.HeaderCEID: {"w1"}}})
		if got := m.Header.Get(jetstream.MsgIDHeader); got != c.id {
			t.Errorf("%s: id %q, want %q", name, got, c.id)
		}
		if memo := k.message(store.Entry{Key: "_req.set.h1.a.x"}); memo.Header.Get(jetstream.MsgIDHeader) != "" {
			t.Errorf("%s: a memo has an id", name)
		}
	}
}
