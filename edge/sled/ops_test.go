package sled

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/functions/join/quorum"
	"muster/wire"
)

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(x, y)
}

// raw asks a sled as `nats req` does.
func (f *fleet) raw(to wire.Baseboard, op, body string) *nats.Msg {
	f.t.Helper()
	m, err := f.bus.Conn().Request(wire.SledSubject(to, op), []byte(body), patience)
	if err != nil {
		f.t.Fatalf("%s %s: %v", op, body, err)
	}
	return m
}

// What the contract's table says, byte by byte, and what sleds refuse.
func TestBus_Contract(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.up(boards(3)...)
	one := `{"part_number":"913-0000019","serial_number":"2FAKE001"}`
	members := `[` + one + `,{"part_number":"913-0000019","serial_number":"2FAKE002"},{"part_number":"913-0000019","serial_number":"2FAKE003"}]`
	reconfigure := `{"rack_id":"` + rack + `","epoch":1,"last_committed_epoch":null,"threshold":2,"members":` + members + `}`
	change := func(old, with string) string { return strings.Replace(reconfigure, old, with, 1) }
	start := `{"generation":0,"schema_version":1,"body":{"id":"0e4c7a2c-0000-4000-8000-000000000001","subnet":{"net":"fd00:1122:3344:201::/64"},"use_trust_quorum":true,"is_lrtq_learner":false,"rack_id":"` + rack + `"}}`
	network := `{"generation":4,"config":{"rack_subnet":"fd00:1122:3344:200::/56","infra_ip_first":"10.0.0.1","infra_ip_last":"10.0.0.9","ports":[]}}`
	for _, x := range []struct {
		op, body string
		want     string // a success, or the code of a refusal
	}{
		{"identity", `{"x":1}`, "InvalidRequest"},
		{"coordinator-status", "", "NotCoordinator"},
		{"reconfigure", "", "InvalidRequest"},
		{"reconfigure", "[]", "InvalidRequest"},
		{"reconfigure", change(`"threshold"`, `"treshold"`), "InvalidRequest"},
		{"reconfigure", change(`"epoch":1`, `"epoch":0`), "InvalidRequest"},
		{"reconfigure", change(`"epoch":1`, `"epoch":9223372036854775808`), "InvalidRequest"},
		{"reconfigure", change(`"epoch":1`, `"epoch":1.5`), "InvalidRequest"},
		{"reconfigure", change(`"threshold":2`, `"threshold":3`), "InvalidRequest"},
		{"reconfigure", change(`,{"part_number":"913-0000019","serial_number":"2FAKE003"}]`, `]`), "InvalidRequest"},
		{"commit", `{"rack_id":"` + rack + `","epoch":1}`, "NotPrepared"},
		{"start", start, "NotPrepared"},
		{"share", `{"rack_id":"` + rack + `","epoch":1,"requester":` + one + `}`, "NotPrepared"},
		{"reset", `{"rack_id":"` + rack + `"}`, "{}"},
		{"reconfigure", reconfigure, "{}"},
		{"reconfigure", reconfigure, "{}"},
		{"reconfigure", change(`"rack_id":"9`, `"rack_id":"8`), "WrongRack"},
		{"reconfigure", change(`"threshold":2,"members":[`, `"threshold":3,"members":[{"part_number":"p","serial_number":"s"},`), "EpochConflict"},
		{"prepare", "{}", "InvalidRequest"},
		{"prepare", `{"config":{"rack_id":"r","epoch":1,"coordinator":{},"members":[[{},"00"]],"threshold":1,"encrypted_rack_secrets":null}}`, "InvalidRequest"},
		{"wait", "", ""},
		{"commit", `{"rack_id":"` + rack + `","epoch":1}`, `{"status":"committed"}`},
		{"commit", `{"rack_id":"` + rack + `","epoch":1}`, `{"status":"committed"}`},
		{"commit", `{"rack_id":"` + rack + `","epoch":2}`, "NotPrepared"},
		{"commit", `{"rack_id":"other","epoch":1}`, "WrongRack"},
		{"reconfigure", change(`"epoch":1`, `"epoch":2`), "LastCommittedEpochMismatch"},
		{"share", `{"rack_id":"` + rack + `","epoch":1,"requester":{"part_number":"p","serial_number":"s"}}`, "NotMember"},
		{"start", start, "{}"},
		{"start", start, "{}"},
		{"start", strings.Replace(start, "201::", "202::", 1), "AlreadyStarted"},
		{"network", network, `{"generation":4}`},
		{"network", network, `{"generation":4}`},
		{"network", strings.Replace(network, "0.9", "0.8", 1), "GenerationConflict"},
		{"network", strings.Replace(network, ":4", ":3", 1), "StaleGeneration"},
		{"network", strings.Replace(network, `"ports"`, `"port"`, 1), "InvalidRequest"},
		{"reconfigure", change(`"epoch":1,"last_committed_epoch":null`, `"epoch":3,"last_committed_epoch":1`), "{}"},
		{"reconfigure", change(`"epoch":1,"last_committed_epoch":null`, `"epoch":2,"last_committed_epoch":1`), "StaleEpoch"},
		{"reset", `{"rack_id":"other"}`, "WrongRack"},
		{"reset", `{"rack_id":"` + rack + `"}`, "{}"},
		{"reset", `{"rack_id":"` + rack + `"}`, "{}"},
		{"coordinator-status", "", "NotCoordinator"},
	} {
		if x.op == "wait" {
			f.acked(board(1), 3)
			continue
		}
		m := f.raw(board(1), x.op, x.body)
		if strings.HasPrefix(x.want, "{") {
			if !sameJSON(t, string(m.Data), x.want) || m.Header.Get(wire.HeaderErrorCode) != "" {
				t.Errorf("%s %s: %s, want %s", x.op, x.body, m.Data, x.want)
			}
			continue
		}
		var e wire.ErrorBody
		if err := json.Unmarshal(m.Data, &e); err != nil || string(e.Code) != x.want {
			t.Errorf("%s %s: %s, want %s", x.op, x.body, m.Data, x.want)
		}
		if status := m.Header.Get(wire.HeaderErrorCode); status != map[bool]string{true: "400", false: "409"}[x.want == "InvalidRequest"] {
			t.Errorf("%s: status %s", x.want, status)
		}
	}
}

func TestBus_PrepareOfAnotherCoordinator(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.up(boards(3)...)
	c := newCast(t, 3)
	for _, b := range boards(3)[1:] {
		delete(c.keys, b)
	}
	d := c.deal(1, 3, nil)
	key := f.identity(board(2)).ExchangeKey
	sealed, err := c.keys[board(1)].Seal(newCounter(), d.Shares[board(2)], key)
	if err != nil {
		t.Fatal(err)
	}
	body := quorum.Prepare{
		Config: d.Config, Share: sealed, SenderKey: c.keys[board(1)].Public(),
		Keys: []quorum.MemberKey{{Member: board(1), Key: c.keys[board(1)].Public()}, {Member: board(2), Key: key}},
	}
	f.must(board(2), wire.SledPrepare, body, nil)
	f.must(board(2), wire.SledPrepare, body, nil)
	f.must(board(2), wire.SledCommit, quorum.Commit{RackID: rack, Epoch: 1}, nil)
	var reply quorum.SealedShare
	f.must(board(2), wire.SledShare, quorum.ShareRequest{RackID: rack, Epoch: 1, Requester: board(1)}, &reply)
	share, err := c.keys[board(1)].Open(reply.Share, key)
	if err != nil || !share.Equal(d.Shares[board(2)]) {
		t.Errorf("%v", err)
	}
	if err := f.ask(board(3), wire.SledPrepare, body, nil); code(err) != wire.ShareMismatch {
		t.Errorf("another's share: %v", err)
	}
}

// Whatever is sent to whatever op, it is refused and the sled goes on as before.
func TestBus_Garbage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.up(board(1))
	before := f.identity(board(1))
	s := &Sled{Config: Config{Baseboard: board(1)}}
	for _, op := range s.Function().Ops {
		for _, body := range []string{
			"null", "[]", "7", `"x"`, "{", "}", `{"a":1}`, `{"rack_id":null}`, `{"rack_id":7}`, `{"epoch":"1"}`, `{"epoch":-1}`, `{"members":[[[]]]}`,
			`{"config":7}`, `{"config":{"members":[[]]}}`, `{"config":{"members":[[{},7]]}}`, `{"keys":[[]]}`, `{"keys":[[{},null]]}`, `{"keys":7}`,
			`{"body":[]}`, `{"body":{"subnet":7}}`, `{"generation":1e400}`, strings.Repeat("[", 10000), "\xff\xfe", "\xEF\xBB\xBF{}", "{}{}",
		} {
			m := f.raw(board(1), op.Name, body)
			var e wire.ErrorBody
			if err := json.Unmarshal(m.Data, &e); err != nil || e.Code != wire.InvalidRequest {
				t.Errorf("%s %.40q: %s", op.Name, body, m.Data)
			}
		}
	}
	if after := f.identity(board(1)); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, was %+v", after, before)
	}
	if strings.Contains(f.log.String(), "panic") {
		t.Error("something panicked")
	}
}

func TestBus_Schema(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.up(board(1))
	var schemas struct {
		Function string `json:"function"`
		Ops      map[string]struct {
			Subject string `json:"subject"`
		} `json:"ops"`
	}
	if err := json.Unmarshal(f.raw(board(1), "schema", "").Data, &schemas); err != nil {
		t.Fatal(err)
	}
	if got := schemas.Ops["coordinator-status"].Subject; schemas.Function != "sled" || len(schemas.Ops) != 9 || got != "muster.sled.913-0000019.2FAKE001.coordinator-status" {
		t.Errorf("%+v", schemas)
	}
}

// A message without a reply subject is not applied.
func TestBus_NoReply(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.up(board(1))
	if err := f.bus.Conn().Publish(wire.SledSubject(board(1), wire.SledNetwork), encodeRequest(t, networkRequest(1))); err != nil {
		t.Fatal(err)
	}
	f.must(board(1), wire.SledNetwork, networkRequest(2), nil)
	if id := f.identity(board(1)); id.NetworkGeneration != 2 {
		t.Errorf("%+v", id)
	}
	if err := f.ask(board(1), wire.SledNetwork, networkRequest(1), nil); code(err) != wire.StaleGeneration {
		t.Errorf("%v", err)
	}
}

func encodeRequest(t *testing.T, r any) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
