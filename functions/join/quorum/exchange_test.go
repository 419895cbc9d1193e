package quorum_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/nats-io/nkeys"
	"pgregory.net/rapid"

	"muster/functions/join/quorum"
)

func exchangeKey(t testing.TB, seed byte) quorum.ExchangeKey {
	t.Helper()
	k, err := quorum.NewExchangeKey(random(seed))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestASealedShareOpensForItsMemberOnly(t *testing.T) {
	share := split(t, 1, plan(3)).Shares[board(2)]
	coordinator, member, other := exchangeKey(t, 1), exchangeKey(t, 2), exchangeKey(t, 3)
	sealed, err := coordinator.Seal(random(4), share, member.Public())
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) != 144 {
		t.Errorf("sealed is %d characters", len(sealed))
	}
	got, err := member.Open(sealed, coordinator.Public())
	if err != nil || !got.Equal(share) {
		t.Errorf("the member: %v", err)
	}
	for name, open := range map[string]func() (quorum.Share, error){
		"another member": func() (quorum.Share, error) { return other.Open(sealed, coordinator.Public()) },
		"another sender": func() (quorum.Share, error) { return member.Open(sealed, other.Public()) },
		"no base64":      func() (quorum.Share, error) { return member.Open("*"+sealed[1:], coordinator.Public()) },
		"cut":            func() (quorum.Share, error) { return member.Open(sealed[:140], coordinator.Public()) },
		"empty":          func() (quorum.Share, error) { return member.Open("", coordinator.Public()) },
	} {
		if got, err := open(); !errors.Is(err, quorum.ErrCannotOpen) || !got.IsZero() {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The contract, seen from a program that knows nkeys but not this package.
func TestASealedShareIsTheContractsOnTheBus(t *testing.T) {
	share := split(t, 1, plan(3)).Shares[board(2)]
	coordinator := exchangeKey(t, 1)
	member, err := nkeys.CreateCurveKeysWithRand(random(2))
	if err != nil {
		t.Fatal(err)
	}
	public, _ := member.PublicKey()
	sealed, err := coordinator.Seal(random(3), share, public)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := member.Open(raw, coordinator.Public())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 64 || !bytes.Equal(got, share.Reveal()) {
		t.Errorf("opens as %d other bytes", len(got))
	}
}

func TestAChangedSealedShareDoesNotOpen(t *testing.T) {
	share := split(t, 1, plan(3)).Shares[board(2)]
	coordinator, member := exchangeKey(t, 1), exchangeKey(t, 2)
	sealed, err := coordinator.Seal(random(4), share, member.Public())
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := base64.StdEncoding.DecodeString(sealed)
	rapid.Check(t, func(t *rapid.T) {
		bad := bytes.Clone(raw)
		bad[rapid.IntRange(0, len(bad)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := member.Open(base64.StdEncoding.EncodeToString(bad), coordinator.Public()); !errors.Is(err, quorum.ErrCannotOpen) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestWhatOpensIsStillNoShareUnlessItIs64Bytes(t *testing.T) {
	member := exchangeKey(t, 2)
	sender, _ := nkeys.CreateCurveKeysWithRand(random(1))
	from, _ := sender.PublicKey()
	for _, plain := range [][]byte{[]byte("x"), make([]byte, 64), bytes.Repeat([]byte{0xff}, 64), make([]byte, 65)} {
		raw, err := sender.SealWithRand(plain, member.Public(), random(3))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := member.Open(base64.StdEncoding.EncodeToString(raw), from); err == nil || !got.IsZero() {
			t.Errorf("%d bytes passed for a share", len(plain))
		}
	}
}

func TestKeysThatAreNoCurveKeys(t *testing.T) {
	k := exchangeKey(t, 1)
	share := split(t, 1, plan(3)).Shares[board(1)]
	user, _ := nkeys.FromRawSeed(nkeys.PrefixByteUser, make([]byte, 32))
	userKey, _ := user.PublicKey()
	seed, _ := k.Reveal()
	for name, key := range map[string]string{
		"empty":          "",
		"a user's":       userKey,
		"a seed":         string(seed),
		"changed":        k.Public()[:55] + "A",
		"too long":       k.Public() + strings.Repeat("A", 8),
		"huge":           strings.Repeat("X", 4096),
		"in lower case":  strings.ToLower(k.Public()),
		"with a newline": k.Public()[:28] + "\n" + k.Public()[28:],
	} {
		if err := quorum.CheckPublicKey(key); !errors.Is(err, quorum.ErrNotCurveKey) {
			t.Errorf("CheckPublicKey, %s: got %v", name, err)
		}
		if _, err := k.Seal(random(1), share, key); !errors.Is(err, quorum.ErrNotCurveKey) {
			t.Errorf("Seal, %s: got %v", name, err)
		}
		if _, err := k.Open("AAAA", key); !errors.Is(err, quorum.ErrNotCurveKey) {
			t.Errorf("Open, %s: got %v", name, err)
		}
	}
	for _, bad := range []string{"", k.Public(), "SX"} {
		if _, err := quorum.ParseExchangeKey([]byte(bad)); !errors.Is(err, quorum.ErrNotCurveKey) {
			t.Errorf("ParseExchangeKey(%q): got %v", bad, err)
		}
	}
}

func TestExchangeKeysAreKeptBySeed(t *testing.T) {
	k := exchangeKey(t, 1)
	if err := quorum.CheckPublicKey(k.Public()); err != nil {
		t.Error(err)
	}
	seed, err := k.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := quorum.ParseExchangeKey(seed)
	if err != nil || back.Public() != k.Public() {
		t.Errorf("got %v, %v", back.Public(), err)
	}
	if exchangeKey(t, 1).Public() != k.Public() || exchangeKey(t, 2).Public() == k.Public() {
		t.Error("the key does not follow from its randomness alone")
	}
}

func TestExchangeFailsWithItsReader(t *testing.T) {
	broken := errors.New("no entropy")
	if _, err := quorum.NewExchangeKey(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("NewExchangeKey: got %v", err)
	}
	k, share := exchangeKey(t, 1), split(t, 1, plan(3)).Shares[board(1)]
	if _, err := k.Seal(iotest.ErrReader(broken), share, k.Public()); !errors.Is(err, broken) {
		t.Errorf("Seal: got %v", err)
	}
	if _, err := k.Seal(random(1), quorum.Share{}, k.Public()); err == nil {
		t.Error("sealed an empty share")
	}
}
