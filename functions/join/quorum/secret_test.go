package quorum_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"muster/functions/join/quorum"
)

// A secret as it ends up somewhere inside: fmt calls no methods of these fields.
type keeper struct {
	secret  quorum.RackSecret
	share   quorum.Share
	key     quorum.ExchangeKey
	all     quorum.Secrets
	Pointer *quorum.RackSecret
	Shares  []quorum.Share
}

func TestSecretsDoNotPrint(t *testing.T) {
	deal, prior := secondEpoch(t)
	key := exchangeKey(t, 1)
	share := deal.Shares[board(1)]
	seed, err := key.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	_, rawSeed, err := nkeys.DecodeSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	inside := keeper{deal.Secret, share, key, prior, &deal.Secret, []quorum.Share{share}}
	var out bytes.Buffer
	for _, v := range []any{
		deal.Secret, &deal.Secret, share, &share, key, &key, prior, deal, &deal, inside, &inside,
		struct{ error }{fmt.Errorf("with %v and %x", deal.Secret, share)},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%b", "%c", "%U", "%t", "%e", "%100v"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		fmt.Fprintln(&out, v)
		text, err := json.Marshal(v)
		out.Write(text)
		if err != nil {
			out.WriteString(err.Error())
		}
		text, _ = xml.Marshal(v)
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
	}
	out.WriteString(deal.Secret.String() + deal.Secret.GoString() + share.String() + share.GoString())

	printed := out.String()
	for name, secret := range map[string][]byte{
		"secret": deal.Secret.Reveal(), "prior secret": prior[1].Reveal(), "share": share.Reveal()[32:],
		"seed": seed, "raw seed": rawSeed,
	} {
		for form, text := range map[string]string{
			"raw":    string(secret[:8]),
			"hex":    hex.EncodeToString(secret[:8]),
			"HEX":    strings.ToUpper(hex.EncodeToString(secret[:8])),
			"spaced": fmt.Sprintf("% x", secret[:8]),
			"bytes":  strings.Trim(fmt.Sprintf("%d", secret[:8]), "[]"),
			"go":     strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", secret[:8]), "[]byte{"), "}"),
			"base64": base64.StdEncoding.EncodeToString(secret[:9]),
			"octal":  strings.Trim(fmt.Sprintf("%o", secret[:8]), "[]"),
			"binary": strings.Trim(fmt.Sprintf("%b", secret[:8]), "[]"),
		} {
			if strings.Contains(printed, text) {
				t.Errorf("the %s got out as %s", name, form)
			}
		}
	}
	for _, v := range []any{deal.Secret, &deal.Secret, share, key} {
		if got := fmt.Sprintf("%d %x %#v %+v", v, v, v, v); got != "[hidden] [hidden] [hidden] [hidden]" {
			t.Errorf("%T prints as %s", v, got)
		}
	}
}

func TestASecretIsKeptByItsBytes(t *testing.T) {
	secret := split(t, 1, plan(3)).Secret
	back, err := quorum.ParseRackSecret(secret.Reveal())
	if err != nil || !back.Equal(secret) {
		t.Errorf("got %v", err)
	}
	for _, bad := range [][]byte{nil, make([]byte, 31), make([]byte, 33), bytes.Repeat([]byte{0xff}, 32)} {
		if got, err := quorum.ParseRackSecret(bad); err == nil || !got.IsZero() {
			t.Errorf("%x passed", bad)
		}
	}
	if (quorum.RackSecret{}).Equal(secret) || (quorum.RackSecret{}).Reveal() != nil || !(quorum.RackSecret{}).IsZero() {
		t.Error("the zero value is something")
	}
}

func TestRevealGivesACopy(t *testing.T) {
	deal := split(t, 1, plan(3))
	secret, share := deal.Secret.Reveal(), deal.Shares[board(1)].Reveal()
	clear(secret)
	clear(share)
	if bytes.Equal(deal.Secret.Reveal(), secret) || bytes.Equal(deal.Shares[board(1)].Reveal(), share) {
		t.Error("what was revealed can be changed from outside")
	}
}

func TestAShareIs64BytesOfTwoScalars(t *testing.T) {
	good := split(t, 1, plan(3)).Shares[board(1)].Reveal()
	if back, err := quorum.ParseShare(good); err != nil || !bytes.Equal(back.Reveal(), good) {
		t.Errorf("round trip: %v", err)
	}
	noID, big := bytes.Clone(good), bytes.Clone(good)
	clear(noID[:32])
	big[63] = 0xff
	for name, b := range map[string][]byte{"empty": nil, "short": good[:63], "long": append(good, 0), "id 0": noID, "not reduced": big} {
		if s, err := quorum.ParseShare(b); err == nil || !s.IsZero() {
			t.Errorf("%s: passed", name)
		}
	}
}

func TestFingerprintsTellSecretsApart(t *testing.T) {
	seen := map[string]bool{}
	for seed := range byte(20) {
		secret := split(t, seed, plan(3)).Secret
		mark := quorum.Fingerprint(secret)
		if len(mark) != 16 || seen[mark] || strings.Contains(hex.EncodeToString(secret.Reveal()), mark) {
			t.Errorf("fingerprint %q", mark)
		}
		seen[mark] = true
	}
}

func TestCheckShareRefusesStrangersAndNothing(t *testing.T) {
	deal := split(t, 1, plan(3))
	err := deal.Config.CheckShare(board(9), deal.Shares[board(1)])
	if !errors.Is(err, quorum.ErrNotMember) {
		t.Errorf("got %v", err)
	}
	if err := deal.Config.CheckShare(board(1), deal.Shares[board(1)]); err != nil {
		t.Error(err)
	}
	deal.Config.Members[0].ShareDigest = quorum.Share{}.Digest()
	if err := deal.Config.CheckShare(board(1), quorum.Share{}); !errors.Is(err, quorum.ErrShareMismatch) {
		t.Errorf("no share passes for the share of no bytes: %v", err)
	}
}
