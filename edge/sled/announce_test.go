package sled

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// announced is what the bucket holds of a sled, "" for nothing.
func (f *fleet) announced(b wire.Baseboard) string {
	js, err := jetstream.New(f.bus.Conn())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	kv, err := js.KeyValue(ctx, wire.BucketSleds)
	if err != nil {
		return ""
	}
	e, err := kv.Get(ctx, wire.SledKey(b))
	if err != nil {
		return ""
	}
	return string(e.Value())
}

// message is the last message of a sled's key, with its headers.
func (f *fleet) message(b wire.Baseboard) *jetstream.RawStreamMsg {
	f.t.Helper()
	js, err := jetstream.New(f.bus.Conn())
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := js.Stream(ctx, wire.BucketStream(wire.BucketSleds))
	if err != nil {
		f.t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(ctx, wire.KeySubject(wire.BucketSleds, wire.SledKey(b)))
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

func TestBus_Announcement(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.config = func(s *Sled) { s.every = time.Hour } // it is not the clock that makes it announce itself
	f.up(board(1))
	natstest.Eventually(t, patience, "it is announced", func() bool { return f.announced(board(1)) != "" })
	key := f.identity(board(1)).ExchangeKey
	want := `{"baseboard":{"part_number":"913-0000019","serial_number":"2FAKE001"},"committed_epoch":null,"exchange_key":"` + key +
		`","network_generation":0,"prepared_epoch":null,"rack_id":null,"started":false}`
	if got := f.announced(board(1)); !sameJSON(t, got, want) {
		t.Errorf("announced %s, want %s", got, want)
	}
	if ttl := f.message(board(1)).Header.Get(jetstream.MsgTTLHeader); ttl != "30s" {
		t.Errorf("TTL %q", ttl)
	}
	// A change shows at once, with the same TTL.
	f.must(board(1), wire.SledNetwork, networkRequest(3), nil)
	natstest.Eventually(t, patience, "the change is announced", func() bool {
		return strings.Contains(f.announced(board(1)), `"network_generation":3`)
	})
	last := f.message(board(1))
	if ttl := last.Header.Get(jetstream.MsgTTLHeader); ttl != "30s" {
		t.Errorf("TTL of the change %q", ttl)
	}
	// So does a new connection: the server may have been away for longer than the announcement lives.
	f.node.Restart()
	natstest.Eventually(t, patience, "it is announced again", func() bool {
		return f.announced(board(1)) != "" && f.message(board(1)).Sequence > last.Sequence
	})
}

func TestBus_AnnouncementIsRenewedAndExpires(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.config = func(s *Sled) { s.every, s.ttl = 300*time.Millisecond, 2*time.Second }
	f.up(boards(2)...)
	natstest.Eventually(t, patience, "both are announced", func() bool {
		return f.announced(board(1)) != "" && f.announced(board(2)) != ""
	})
	f.down(board(2))
	gone, began := f.message(board(2)).Time, f.message(board(1)).Sequence
	natstest.Eventually(t, patience, "the one that is gone has expired", func() bool {
		if f.announced(board(1)) == "" {
			t.Fatal("the one that is there has expired, too")
		}
		return f.announced(board(2)) == ""
	})
	if lived := time.Since(gone); lived < 1500*time.Millisecond {
		t.Errorf("it lived for %v only", lived)
	}
	if f.message(board(1)).Sequence <= began {
		t.Error("it is not renewed")
	}
	// The bucket is deleted and made again: the sled is there again by itself.
	js, err := jetstream.New(f.bus.Conn())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := js.DeleteKeyValue(ctx, wire.BucketSleds); err != nil {
		t.Fatal(err)
	}
	other := f.connect("another that makes it")
	other.Bucket(runtime.Sleds)
	natstest.Eventually(t, patience, "it is announced again", func() bool { return f.announced(board(1)) != "" })
}
