package quorum_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/functions/join/quorum"
)

// The contract's example with its ellipses filled in.
const golden = `{"rack_id":"9bb7d1f4-2d5c-4d0b-8f3e-6a1c0e5b7a90","epoch":1,` +
	`"coordinator":{"part_number":"913-0000019","serial_number":"2FAKE001"},` +
	`"members":[[{"part_number":"913-0000019","serial_number":"2FAKE001"},"650973aabbccddeeff00112233445566778899aabbccddeeff00112233445566"],` +
	`[{"part_number":"913-0000019","serial_number":"2FAKE002"},"0000000000000000000000000000000000000000000000000000000000000001"],` +
	`[{"part_number":"913-0000019","serial_number":"2FAKE003"},"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"]],` +
	`"threshold":2,"encrypted_rack_secrets":null}`

func goldenConfig(t testing.TB) quorum.Configuration {
	t.Helper()
	c := quorum.Configuration{RackID: rackID, Epoch: 1, Coordinator: board(1), Threshold: 2}
	for i, digest := range []string{
		"650973aabbccddeeff00112233445566778899aabbccddeeff00112233445566",
		strings.Repeat("0", 63) + "1",
		strings.Repeat("f", 64),
	} {
		m := quorum.Member{Baseboard: board(i + 1)}
		if err := m.ShareDigest.UnmarshalText([]byte(digest)); err != nil {
			t.Fatal(err)
		}
		c.Members = append(c.Members, m)
	}
	return c
}

func TestConfigurationJSONIsTheContracts(t *testing.T) {
	c := goldenConfig(t)
	got, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != golden {
		t.Errorf("got  %s\nwant %s", got, golden)
	}
	if got := c.Canonical(); string(got) != golden {
		t.Errorf("canonical: got  %s\nwant %s", got, golden)
	}
	var back quorum.Configuration
	if err := json.Unmarshal([]byte(golden), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, back); diff != "" {
		t.Error(diff)
	}
	if err := back.Validate(); err != nil {
		t.Error(err)
	}
	if got, want := c.Digest().String(), "82cf39690a79a7839eef501a0a461c0efaa456f97fd045ca1d202cb0d102c515"; got != want {
		t.Errorf("digest is %s, want %s: stored digests no longer match", got, want)
	}
}

// With shares, secret and prior secrets: what is stored and sent today is read the
// same tomorrow. All of it follows from the seed.
func TestADealDoesNotChangeWithTheCode(t *testing.T) {
	deal, _ := secondEpoch(t)
	if got, want := deal.Config.Digest().String(), "eed11af824647ee48dfea814e28e5916cb3268ef55be7ed1cc06fb190a958855"; got != want {
		t.Errorf("configuration digest is %s, want %s", got, want)
	}
	if got, want := quorum.Fingerprint(deal.Secret), "2011135715d8706e"; got != want {
		t.Errorf("fingerprint is %s, want %s", got, want)
	}
}

func TestValidateNamesTheRule(t *testing.T) {
	type config = quorum.Configuration
	for name, c := range map[string]struct {
		change func(*config)
		rule   quorum.Rule
		field  string
	}{
		"no rack":             {func(c *config) { c.RackID = "" }, quorum.RuleRackID, "rack_id"},
		"rack is no name":     {func(c *config) { c.RackID = "a b" }, quorum.RuleRackID, "rack_id"},
		"epoch 0":             {func(c *config) { c.Epoch = 0 }, quorum.RuleEpoch, "epoch"},
		"epoch 2^63":          {func(c *config) { c.Epoch = 1 << 63 }, quorum.RuleEpoch, "epoch"},
		"threshold 0":         {func(c *config) { c.Threshold = 0 }, quorum.RuleThreshold, "threshold"},
		"threshold 1":         {func(c *config) { c.Threshold = 1 }, quorum.RuleThreshold, "threshold"},
		"threshold n":         {func(c *config) { c.Threshold = 3 }, quorum.RuleThreshold, "threshold"},
		"coordinator outside": {func(c *config) { c.Coordinator = board(4) }, quorum.RuleCoordinatorIsMember, "coordinator"},
		"2 members": {func(c *config) { c.Members = c.Members[:2] },
			quorum.RuleMembershipSize, "members"},
		"out of order": {func(c *config) { c.Members[1], c.Members[2] = c.Members[2], c.Members[1] },
			quorum.RuleMemberOrder, "members"},
		"a member twice": {func(c *config) { c.Members[2].Baseboard = board(2) },
			quorum.RuleDuplicateMember, "members[2][0]"},
		"a bad name": {func(c *config) { c.Members[2].Baseboard.SerialNumber = "2FAKE003." },
			quorum.RuleName, "members[2][0].serial_number"},
		"short salt": {func(c *config) {
			c.EncryptedRackSecrets = &quorum.EncryptedRackSecrets{Salt: make([]byte, 31), Data: make([]byte, 56)}
		}, quorum.RuleEncryptedRackSecrets, "encrypted_rack_secrets.salt"},
		"no data": {func(c *config) {
			c.EncryptedRackSecrets = &quorum.EncryptedRackSecrets{Salt: make([]byte, 32), Data: make([]byte, 16)}
		}, quorum.RuleEncryptedRackSecrets, "encrypted_rack_secrets.data"},
		"half an entry": {func(c *config) {
			c.EncryptedRackSecrets = &quorum.EncryptedRackSecrets{Salt: make([]byte, 32), Data: make([]byte, 76)}
		}, quorum.RuleEncryptedRackSecrets, "encrypted_rack_secrets.data"},
	} {
		config := goldenConfig(t)
		c.change(&config)
		broken := quorum.Broken(config.Validate())
		if len(broken) != 1 || broken[0].Rule != c.rule || broken[0].Field != c.field {
			t.Errorf("%s: want rule %s at %s, got %v", name, c.rule, c.field, broken)
		}
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	var got []quorum.Rule
	for _, e := range quorum.Broken((quorum.Configuration{}).Validate()) {
		got = append(got, e.Rule)
	}
	want := []quorum.Rule{quorum.RuleRackID, quorum.RuleEpoch, quorum.RuleMembershipSize,
		quorum.RuleCoordinatorIsMember, quorum.RuleThreshold}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEqualSeesEveryField(t *testing.T) {
	same := func() quorum.Configuration {
		c := goldenConfig(t)
		c.EncryptedRackSecrets = &quorum.EncryptedRackSecrets{Salt: make([]byte, 32), Data: make([]byte, 56)}
		return c
	}
	if a, b := same(), same(); !a.Equal(b) || a.Digest() != b.Digest() {
		t.Error("not equal to itself")
	}
	for name, change := range map[string]func(*quorum.Configuration){
		"rack":         func(c *quorum.Configuration) { c.RackID = "r2" },
		"epoch":        func(c *quorum.Configuration) { c.Epoch = 2 },
		"coordinator":  func(c *quorum.Configuration) { c.Coordinator = board(2) },
		"member":       func(c *quorum.Configuration) { c.Members[2].Baseboard = board(4) },
		"share digest": func(c *quorum.Configuration) { c.Members[2].ShareDigest[31] ^= 1 },
		"threshold":    func(c *quorum.Configuration) { c.Threshold = 3 },
		"no prior":     func(c *quorum.Configuration) { c.EncryptedRackSecrets = nil },
		"salt":         func(c *quorum.Configuration) { c.EncryptedRackSecrets.Salt[0] ^= 1 },
		"data":         func(c *quorum.Configuration) { c.EncryptedRackSecrets.Data[0] ^= 1 },
	} {
		c := same()
		change(&c)
		if c.Equal(same()) || same().Equal(c) || c.Digest() == same().Digest() {
			t.Errorf("another %s goes unseen", name)
		}
	}
}

func TestMembersAreReadStrictly(t *testing.T) {
	const b, d = `{"part_number":"P","serial_number":"S"}`, `"650973aabbccddeeff00112233445566778899aabbccddeeff00112233445566"`
	var m quorum.Member
	for _, good := range []string{
		`[` + b + `,` + d + `]`,
		` [ { "serial_number" : "S" , "part_number" : "P" } , ` + strings.ToUpper(d) + ` ] `,
	} {
		if err := json.Unmarshal([]byte(good), &m); err != nil || m.Baseboard.String() != "P:S" {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		`null`, `{}`, `[]`, `"P:S"`, `[` + b + `]`, `[` + b + `,` + d + `,` + d + `]`, `[` + d + `,` + b + `]`,
		`[` + b + `,null]`, `[null,` + d + `]`, `[` + b + `,"65"]`, `[` + b + `,7]`,
		`[` + b + `,"` + strings.Repeat("g", 64) + `"]`,
		`[{},` + d + `]`,
		`[[],` + d + `]`,
		`[{"part_number":"P"},` + d + `]`,
		`[{"part_number":"P","serial_number":null},` + d + `]`,
		`[{"part_number":"P","serial_number":["S"]},` + d + `]`,
		`[{"part_number":"P","Serial_Number":"S"},` + d + `]`,
		`[{"part_number":"P","serial_number":"S","serial_number":"T"},` + d + `]`,
		`[{"part_number":"P","serial_number":"S","model":"x"},` + d + `]`,
	} {
		was := m
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s: passed", bad)
		}
		if m != was {
			t.Errorf("%s: refused, and yet changed", bad)
		}
	}
}

// Whatever passes is what we would have written ourselves.
func FuzzConfigurationJSON(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(strings.ToUpper(golden)))
	f.Add([]byte(strings.Replace(golden, "null", `{"salt":"`+strings.Repeat("0A", 32)+`","data":"`+strings.Repeat("fF", 56)+`"}`, 1)))
	f.Add([]byte(strings.Replace(golden, `"epoch":1`, `"epoch":9223372036854775808`, 1)))
	f.Add([]byte(strings.Replace(golden, `2FAKE002`, `2\u0046AKE002`, 1)))
	f.Add([]byte(strings.Replace(golden, `2FAKE003`, "<\xff\\ud800", 1)))
	f.Add([]byte(`{"members":[[{"part_number":"","serial_number":""},""],null,[]]}`))
	f.Add([]byte(strings.Repeat("[", 10_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c quorum.Configuration
		if err := json.Unmarshal(data, &c); err != nil {
			return
		}
		valid := c.Validate() == nil
		first := c.Canonical()
		var again quorum.Configuration
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatalf("does not read what it wrote: %v\n%s", err, first)
		}
		if !bytes.Equal(first, again.Canonical()) {
			t.Fatalf("not canonical:\n%s\n%s", first, again.Canonical())
		}
		if !valid {
			return
		}
		if !c.Equal(again) || c.Digest() != again.Digest() {
			t.Fatalf("not equal after a round trip: %s", first)
		}
		if len(c.Members) > quorum.MaxMembers || c.Threshold > len(c.Members) || c.Epoch > quorum.MaxEpoch {
			t.Fatalf("valid: %s", first)
		}
		if _, err := quorum.Recover(c, nil); err == nil {
			t.Fatal("a secret out of nothing")
		}
	})
}
