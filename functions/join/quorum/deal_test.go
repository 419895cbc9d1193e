package quorum_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cloudflare/circl/group"
	"github.com/cloudflare/circl/secretsharing"
	"pgregory.net/rapid"

	"muster/functions/join/quorum"
	"muster/wire"
)

const rackID = "9bb7d1f4-2d5c-4d0b-8f3e-6a1c0e5b7a90"

func board(i int) wire.Baseboard {
	return wire.Baseboard{PartNumber: "913-0000019", SerialNumber: fmt.Sprintf("2FAKE%03d", i)}
}

func boards(n int) []wire.Baseboard {
	all := make([]wire.Baseboard, n)
	for i := range all {
		all[i] = board(i + 1)
	}
	return all
}

func random(seed byte) *rand.ChaCha8 {
	return rand.NewChaCha8([32]byte{seed})
}

func plan(n int) quorum.Plan {
	return quorum.Plan{RackID: rackID, Epoch: 1, Coordinator: board(1), Members: boards(n)}
}

func split(t testing.TB, seed byte, p quorum.Plan) quorum.Deal {
	t.Helper()
	deal, err := quorum.Split(random(seed), p)
	if err != nil {
		t.Fatal(err)
	}
	return deal
}

// pick is that many shares of the deal, of members drawn at random.
func pick(t *rapid.T, deal quorum.Deal, n int) map[wire.Baseboard]quorum.Share {
	order := rapid.Permutation(deal.Config.Baseboards()).Draw(t, "order")
	some := map[wire.Baseboard]quorum.Share{}
	for _, b := range order[:n] {
		some[b] = deal.Shares[b]
	}
	return some
}

func draw(t *rapid.T) quorum.Deal {
	n := rapid.IntRange(quorum.MinMembers, quorum.MaxMembers).Draw(t, "members")
	seed := rapid.Byte().Draw(t, "seed")
	p := plan(n)
	p.Members = rapid.Permutation(p.Members).Draw(t, "asked in the order")
	deal, err := quorum.Split(random(seed), p)
	if err != nil {
		t.Fatal(err)
	}
	return deal
}

func TestAnyThresholdOfMembersRecoversTheSecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deal := draw(t)
		n := len(deal.Config.Members)
		some := pick(t, deal, rapid.IntRange(quorum.Threshold(n), n).Draw(t, "shares"))
		got, err := quorum.Recover(deal.Config, some)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(deal.Secret) {
			t.Fatalf("recovered %s, dealt %s", quorum.Fingerprint(got), quorum.Fingerprint(deal.Secret))
		}
	})
}

func TestFewerMembersDoNotRecoverTheSecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deal := draw(t)
		n := len(deal.Config.Members)
		few := rapid.IntRange(0, quorum.Threshold(n)-1).Draw(t, "shares")
		some := pick(t, deal, few)

		_, err := quorum.Recover(deal.Config, some)
		tooFew, ok := errors.AsType[*quorum.TooFewSharesError](err)
		if !ok || *tooFew != (quorum.TooFewSharesError{Have: few, Need: quorum.Threshold(n), Members: n}) {
			t.Fatalf("want too few shares, got %v", err)
		}
		if few == 0 {
			return
		}
		// Nor by going around Recover: what the few shares interpolate to is something else.
		var points []secretsharing.Share
		for _, s := range some {
			id, value := group.Ristretto255.NewScalar(), group.Ristretto255.NewScalar()
			b := s.Reveal()
			if err := errors.Join(id.UnmarshalBinary(b[:32]), value.UnmarshalBinary(b[32:])); err != nil {
				t.Fatal(err)
			}
			points = append(points, secretsharing.Share{ID: id, Value: value})
		}
		guess, err := secretsharing.Recover(uint(few-1), points)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := guess.MarshalBinary(); bytes.Equal(b, deal.Secret.Reveal()) {
			t.Fatalf("%d shares of %d gave the secret away", few, n)
		}
	})
}

func TestAChangedShareIsCaughtByName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deal := draw(t)
		n := len(deal.Config.Members)
		some := pick(t, deal, rapid.IntRange(quorum.Threshold(n), n).Draw(t, "shares"))
		victim := rapid.SampledFrom(slices.SortedFunc(maps.Keys(some), wire.Baseboard.Compare)).Draw(t, "victim")

		changed := some[victim].Reveal()
		changed[rapid.IntRange(0, len(changed)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		bad, err := quorum.ParseShare(changed)
		if err != nil {
			return // no longer two scalars
		}
		some[victim] = bad

		for what, err := range map[string]error{
			"Recover":    second(quorum.Recover(deal.Config, some)),
			"CheckShare": deal.Config.CheckShare(victim, bad),
		} {
			refused, ok := errors.AsType[*quorum.ShareError](err)
			if !ok || refused.Member != victim || !errors.Is(err, quorum.ErrShareMismatch) {
				t.Fatalf("%s: want a mismatch of %v, got %v", what, victim, err)
			}
			if !strings.Contains(err.Error(), victim.String()) {
				t.Fatalf("%s: %q does not name %v", what, err, victim)
			}
		}
		if err := deal.Commitments.Check(deal.Config.Threshold, bad); !errors.Is(err, quorum.ErrShareMismatch) {
			t.Fatalf("commitments: want a mismatch, got %v", err)
		}
	})
}

func second[A any](_ A, err error) error { return err }

func TestRecoverNamesEverySledItRefuses(t *testing.T) {
	deal := split(t, 1, plan(5))
	other := split(t, 2, plan(5))
	shares := maps.Clone(deal.Shares)
	shares[board(2)], shares[board(3)] = shares[board(3)], shares[board(2)]
	shares[board(4)] = other.Shares[board(4)]
	shares[board(5)] = quorum.Share{}
	shares[board(9)] = deal.Shares[board(1)]
	_, err := quorum.Recover(deal.Config, shares)
	want := `recover rack secret: key share of 913-0000019:2FAKE002: key share does not match
key share of 913-0000019:2FAKE003: key share does not match
key share of 913-0000019:2FAKE004: key share does not match
key share of 913-0000019:2FAKE005: key share does not match
key share of 913-0000019:2FAKE009: not a member of the configuration`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if !errors.Is(err, quorum.ErrNotMember) {
		t.Error("not ErrNotMember")
	}
}

func TestTooFewSharesSaysHowManyOfHowMany(t *testing.T) {
	deal := split(t, 1, plan(9))
	_, err := quorum.Recover(deal.Config, map[wire.Baseboard]quorum.Share{board(3): deal.Shares[board(3)]})
	if want := "recover rack secret: have 1 key shares, need 5 of 9"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A coordinator at fault: the digests are right, the shares are not of one secret.
func TestSharesOfTwoSecretsUnderOneConfigurationAreRefused(t *testing.T) {
	deal, other := split(t, 1, plan(5)), split(t, 2, plan(5))
	shares := maps.Clone(deal.Shares)
	shares[board(5)] = other.Shares[board(5)]
	deal.Config.Members[4].ShareDigest = shares[board(5)].Digest()
	if _, err := quorum.Recover(deal.Config, shares); !errors.Is(err, quorum.ErrUneven) {
		t.Errorf("want ErrUneven, got %v", err)
	}

	shares[board(5)] = shares[board(1)]
	deal.Config.Members[4].ShareDigest = shares[board(5)].Digest()
	_, err := quorum.Recover(deal.Config, shares)
	refused, ok := errors.AsType[*quorum.ShareError](err)
	if !ok || refused.Member != board(5) || !errors.Is(err, quorum.ErrShareRepeated) {
		t.Errorf("want the repeated share of %v, got %v", board(5), err)
	}
}

func TestRecoverDoesNotTrustTheConfiguration(t *testing.T) {
	deal := split(t, 1, plan(5))
	deal.Config.Threshold = 1
	_, err := quorum.Recover(deal.Config, deal.Shares)
	if broken := quorum.Broken(err); len(broken) != 1 || broken[0].Rule != quorum.RuleThreshold {
		t.Errorf("want the threshold refused, got %v", err)
	}
}

func TestSplitUsesItsReaderAndNothingElse(t *testing.T) {
	one, same, other := split(t, 1, plan(5)), split(t, 1, plan(5)), split(t, 2, plan(5))
	if !one.Config.Equal(same.Config) || !one.Secret.Equal(same.Secret) {
		t.Error("the same randomness gave another deal")
	}
	if one.Secret.Equal(other.Secret) {
		t.Error("other randomness gave the same secret")
	}
}

func TestSplitFailsWithItsReader(t *testing.T) {
	broken := errors.New("no entropy")
	p := plan(3)
	if _, err := quorum.Split(iotest.ErrReader(broken), p); !errors.Is(err, broken) {
		t.Errorf("first read: got %v", err)
	}
	// 2 coefficients of 64 bytes are there, the salt is not.
	p.Epoch, p.Prior = 2, quorum.Secrets{1: split(t, 1, p).Secret}
	short := bytes.NewReader(make([]byte, 130))
	deal, err := quorum.Split(short, p)
	if err == nil || !deal.Secret.IsZero() {
		t.Errorf("short of a salt: got %v", err)
	}
}

func TestSplitDealsToMembersInBaseboardOrder(t *testing.T) {
	p := plan(4)
	slices.Reverse(p.Members)
	before := slices.Clone(p.Members)
	deal := split(t, 1, p)
	if got := deal.Config.Baseboards(); !slices.Equal(got, boards(4)) {
		t.Errorf("members are %v", got)
	}
	if !slices.Equal(p.Members, before) {
		t.Error("the plan was changed")
	}
	for i, b := range boards(4) {
		id := make([]byte, 32)
		id[0] = byte(i + 1) // circl marshals scalars little end first
		if got := deal.Shares[b].Reveal()[:32]; !bytes.Equal(got, id) {
			t.Errorf("%v has share id %x, want %x", b, got, id)
		}
	}
}

func TestSplitRefusesABrokenPlan(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*quorum.Plan)
		rule   quorum.Rule
	}{
		"2 members":           {func(p *quorum.Plan) { p.Members = boards(2) }, quorum.RuleMembershipSize},
		"33 members":          {func(p *quorum.Plan) { p.Members = boards(33) }, quorum.RuleMembershipSize},
		"a member twice":      {func(p *quorum.Plan) { p.Members = append(boards(4), board(2)) }, quorum.RuleDuplicateMember},
		"coordinator outside": {func(p *quorum.Plan) { p.Coordinator = board(7) }, quorum.RuleCoordinatorIsMember},
		"epoch 0":             {func(p *quorum.Plan) { p.Epoch = 0 }, quorum.RuleEpoch},
		"epoch 2^63":          {func(p *quorum.Plan) { p.Epoch = 1 << 63 }, quorum.RuleEpoch},
		"no rack":             {func(p *quorum.Plan) { p.RackID = "" }, quorum.RuleRackID},
		"a secret to come": {func(p *quorum.Plan) {
			p.Prior = quorum.Secrets{1: split(t, 1, plan(3)).Secret}
		}, quorum.RulePriorEpoch},
	} {
		p := plan(5)
		c.change(&p)
		deal, err := quorum.Split(random(1), p)
		if broken := quorum.Broken(err); len(broken) != 1 || broken[0].Rule != c.rule {
			t.Errorf("%s: want %s, got %v", name, c.rule, err)
		}
		if len(deal.Shares) > 0 || !deal.Secret.IsZero() {
			t.Errorf("%s: refused, and yet dealt", name)
		}
	}
}

func TestCommitmentsHoldEveryShareOfTheirDealAndNoOther(t *testing.T) {
	for _, n := range []int{3, 4, 32} {
		deal, other := split(t, 1, plan(n)), split(t, 2, plan(n))
		text, err := deal.Commitments.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 728 {
			t.Errorf("%d members: %d characters do not fit the promise", n, len(text))
		}
		var c quorum.Commitments
		if err := c.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		threshold := deal.Config.Threshold
		for b, s := range deal.Shares {
			if err := c.Check(threshold, s); err != nil {
				t.Errorf("%d members: share of %v: %v", n, b, err)
			}
		}
		if c.Check(threshold, other.Shares[board(1)]) == nil {
			t.Errorf("%d members: a share of another deal passed", n)
		}
		if c.Check(threshold+1, deal.Shares[board(1)]) == nil || c.Check(0, deal.Shares[board(1)]) == nil {
			t.Errorf("%d members: another threshold passed", n)
		}
		if c.Check(threshold, quorum.Share{}) == nil || (quorum.Commitments{}).Check(threshold, deal.Shares[board(1)]) == nil {
			t.Errorf("%d members: nothing passed for something", n)
		}
		if c.CheckSecret(deal.Secret) != nil || c.CheckSecret(other.Secret) == nil || c.CheckSecret(quorum.RackSecret{}) == nil {
			t.Errorf("%d members: CheckSecret is wrong", n)
		}
	}
}

func TestCommitmentsRefuseOtherText(t *testing.T) {
	good, _ := split(t, 1, plan(3)).Commitments.MarshalText()
	for name, text := range map[string]string{
		"empty":          "",
		"no base64":      "*" + string(good[1:]),
		"one element":    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		"cut":            string(good[:44]),
		"not of a group": strings.Repeat("/", 84) + "/w==",
		"too long":       strings.Repeat("A", 732),
	} {
		var c quorum.Commitments
		if err := c.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

func BenchmarkSplit32(b *testing.B) {
	p := plan(32)
	r := random(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := quorum.Split(r, p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecover32(b *testing.B) {
	deal := split(b, 1, plan(32))
	for b.Loop() {
		if _, err := quorum.Recover(deal.Config, deal.Shares); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommitmentsCheck32(b *testing.B) {
	deal := split(b, 1, plan(32))
	for b.Loop() {
		if err := deal.Commitments.Check(deal.Config.Threshold, deal.Shares[board(32)]); err != nil {
			b.Fatal(err)
		}
	}
}
