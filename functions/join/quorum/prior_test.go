package quorum_test

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha3"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
	"pgregory.net/rapid"

	"muster/functions/join/quorum"
	"muster/wire"
)

// Over many epochs, some of them never committed, with changing members: whoever
// recovers the newest secret has those of all committed epochs, and no others.
func TestTheNewestSecretOpensAllCommittedEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dealt := quorum.Secrets{} // by epoch, committed ones only
		var last *quorum.Deal     // the last committed one
		var prior quorum.Secrets  // as its members recover it
		pool := boards(12)        // sleds around
		coordinator := pool[0]    // in all epochs
		members := func(n int) []wire.Baseboard {
			rest := rapid.Permutation(pool[1:]).Draw(t, "sleds")
			return append([]wire.Baseboard{coordinator}, rest[:n-1]...)
		}
		epoch := uint64(0)
		for range rapid.IntRange(1, 8).Draw(t, "epochs") {
			epoch += rapid.Uint64Range(1, 1<<40).Draw(t, "step")
			deal, err := quorum.Split(random(rapid.Byte().Draw(t, "seed")), quorum.Plan{
				RackID: rackID, Epoch: epoch, Coordinator: coordinator, Prior: prior,
				Members: members(rapid.IntRange(3, 12).Draw(t, "members")),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := deal.Config.Validate(); err != nil {
				t.Fatalf("epoch %d: %v", epoch, err)
			}
			if first := last == nil; first != (deal.Config.EncryptedRackSecrets == nil) {
				t.Fatalf("epoch %d: first committed: %v, encrypted secrets: %v", epoch, first, !first)
			}
			if !rapid.Bool().Draw(t, "commits") {
				continue
			}
			secret, err := quorum.Recover(deal.Config, pick(t, deal, deal.Config.Threshold))
			if err != nil {
				t.Fatal(err)
			}
			dealt[epoch], last = deal.Secret, &deal
			if prior, err = deal.Config.Secrets(secret); err != nil {
				t.Fatal(err)
			}
			if len(prior) != len(dealt) {
				t.Fatalf("epoch %d opens %d secrets of %d", epoch, len(prior), len(dealt))
			}
			for e, s := range dealt {
				if !prior[e].Equal(s) {
					t.Fatalf("epoch %d opens another secret for epoch %d", epoch, e)
				}
			}
		}
	})
}

func secondEpoch(t *testing.T) (quorum.Deal, quorum.Secrets) {
	t.Helper()
	first := split(t, 1, plan(3))
	p := plan(3)
	p.Epoch, p.Prior = 2, quorum.Secrets{1: first.Secret}
	return split(t, 2, p), p.Prior
}

func TestPriorSecretsAreBoundToRackEpochAndSecret(t *testing.T) {
	deal, prior := secondEpoch(t)
	enc := deal.Config.EncryptedRackSecrets
	got, err := quorum.DecryptPrior(rackID, 2, deal.Secret, enc)
	if err != nil || len(got) != 1 || !got[1].Equal(prior[1]) {
		t.Fatalf("round trip: %v", err)
	}
	otherRack := "8" + rackID[1:]
	for name, open := range map[string]func() (quorum.Secrets, error){
		"other rack":   func() (quorum.Secrets, error) { return quorum.DecryptPrior(otherRack, 2, deal.Secret, enc) },
		"other epoch":  func() (quorum.Secrets, error) { return quorum.DecryptPrior(rackID, 3, deal.Secret, enc) },
		"other secret": func() (quorum.Secrets, error) { return quorum.DecryptPrior(rackID, 2, prior[1], enc) },
		"no secret":    func() (quorum.Secrets, error) { return quorum.DecryptPrior(rackID, 2, quorum.RackSecret{}, enc) },
	} {
		if got, err := open(); !errors.Is(err, quorum.ErrCannotDecrypt) || got != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestChangedPriorSecretsDoNotDecrypt(t *testing.T) {
	deal, _ := secondEpoch(t)
	rapid.Check(t, func(t *rapid.T) {
		enc := quorum.EncryptedRackSecrets{
			Salt: bytes.Clone(deal.Config.EncryptedRackSecrets.Salt),
			Data: bytes.Clone(deal.Config.EncryptedRackSecrets.Data),
		}
		at := rapid.SampledFrom([]quorum.Hex{enc.Salt, enc.Data}).Draw(t, "which")
		at[rapid.IntRange(0, len(at)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := quorum.DecryptPrior(rackID, 2, deal.Secret, &enc); !errors.Is(err, quorum.ErrCannotDecrypt) {
			t.Fatalf("got %v", err)
		}
	})
}

// encrypt is EncryptPrior written again from its description, for clear text that it
// would not write.
func encrypt(t *testing.T, epoch uint64, secret quorum.RackSecret, plain []byte) *quorum.EncryptedRackSecrets {
	t.Helper()
	context := append([]byte("muster/quorum/v1/prior-secrets\x00\x00\x00\x00\x00\x00\x00\x00\x24"), rackID...)
	context = binary.BigEndian.AppendUint64(context, epoch)
	salt := make([]byte, 32)
	key, err := hkdf.Key(sha3.New256, secret.Reveal(), salt, string(context), 32)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return &quorum.EncryptedRackSecrets{Salt: salt, Data: aead.Seal(nil, make([]byte, 12), plain, context)}
}

func TestPriorSecretsOfAnotherWriter(t *testing.T) {
	secret, prior := split(t, 1, plan(3)).Secret, split(t, 2, plan(3)).Secret
	entry := func(epoch uint64) []byte {
		return append(binary.BigEndian.AppendUint64(nil, epoch), prior.Reveal()...)
	}
	got, err := quorum.DecryptPrior(rackID, 5, secret, encrypt(t, 5, secret, append(entry(1), entry(4)...)))
	if err != nil || len(got) != 2 || !got[1].Equal(prior) || !got[4].Equal(prior) {
		t.Errorf("as described: %v", err)
	}
	for name, plain := range map[string][]byte{
		"epoch 0":       entry(0),
		"its own epoch": entry(5),
		"falling":       append(entry(2), entry(1)...),
		"twice":         append(entry(2), entry(2)...),
		"no scalar":     append(entry(1)[:8], bytes.Repeat([]byte{0xff}, 32)...),
	} {
		got, err := quorum.DecryptPrior(rackID, 5, secret, encrypt(t, 5, secret, plain))
		if !errors.Is(err, quorum.ErrCannotDecrypt) || got != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNoPriorSecretsAreNull(t *testing.T) {
	secret := split(t, 1, plan(3)).Secret
	enc, err := quorum.EncryptPrior(random(1), rackID, 1, secret, nil)
	if err != nil || enc != nil {
		t.Fatalf("got %v, %v", enc, err)
	}
	got, err := quorum.DecryptPrior(rackID, 1, secret, nil)
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEncryptPriorTakesEarlierEpochsOnly(t *testing.T) {
	secret := split(t, 1, plan(3)).Secret
	for name, prior := range map[string]quorum.Secrets{
		"epoch 0":       {0: secret},
		"its own epoch": {5: secret},
		"a later epoch": {6: secret},
		"an empty one":  {1: quorum.RackSecret{}},
	} {
		_, err := quorum.EncryptPrior(random(1), rackID, 5, secret, prior)
		if broken := quorum.Broken(err); len(broken) != 1 || broken[0].Rule != quorum.RulePriorEpoch {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestEncryptedRackSecretsJSONIsHex(t *testing.T) {
	deal, _ := secondEpoch(t)
	enc := deal.Config.EncryptedRackSecrets
	text, err := json.Marshal(enc)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]string
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if len(fields) != 2 || len(fields["salt"]) != 64 || len(fields["data"]) != 2*(40+16) {
		t.Errorf("got %s", text)
	}
	for _, bad := range []string{`{"salt":"0"}`, `{"data":"xy"}`, `{"data":7}`} {
		if err := json.Unmarshal([]byte(bad), new(quorum.EncryptedRackSecrets)); err == nil {
			t.Errorf("%s passed", bad)
		}
	}
}
