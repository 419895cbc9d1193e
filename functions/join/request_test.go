package join

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"muster/wire"
)

// fullRequest is a legal request with every member that there is.
func fullRequest(t testing.TB) *wire.JoinRequest {
	t.Helper()
	b, err := os.ReadFile("testdata/request.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &wire.JoinRequest{}
	if err := json.Unmarshal(b, r, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	return r
}

// smallRequest is one with nothing that may be left out.
func smallRequest() *wire.JoinRequest {
	return &wire.JoinRequest{
		TrustQuorumPeers: []wire.Baseboard{},
		RackNetworkConfig: &wire.RackNetworkConfig{
			RackSubnet: "fd00:1122:3344:200::/56", InfraIPFirst: "2001:db8::1", InfraIPLast: "2001:db8::1",
			Ports: []wire.Port{{
				Port: "qsfp0", Switch: "switch0", UplinkPortSpeed: "speed400_g",
				Addresses: []wire.UplinkAddress{}, Routes: []wire.Route{}, BGPPeers: []wire.BGPPeer{},
			}},
		},
	}
}

// wrongRequest is a change that makes the full request wrong, and all that is said of it then, as "field: problem".
type wrongRequest struct {
	change func(r *wire.JoinRequest)
	want   []string
}

// inNetwork makes a wrongRequest of a change to the network config. The paths of what is said begin behind it, and "^" stands
// for it within the texts.
func inNetwork(change func(c *wire.RackNetworkConfig), want ...string) wrongRequest {
	want = slices.Clone(want)
	for i := range want {
		want[i] = "rack_network_config." + strings.ReplaceAll(want[i], "^", "rack_network_config.")
	}
	return wrongRequest{func(r *wire.JoinRequest) { change(r.RackNetworkConfig) }, want}
}

func checkWrong(t *testing.T, cases map[string]wrongRequest) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := fullRequest(t)
			c.change(r)
			var got []string
			for _, p := range checkRequest(r) {
				got = append(got, p.Field+": "+p.Problem)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("want -, got +\n%s", d)
			}
		})
	}
}

func TestCheckRequest_TakesWhatIsLegal(t *testing.T) {
	for name, r := range map[string]*wire.JoinRequest{"full": fullRequest(t), "small": smallRequest()} {
		if p := checkRequest(r); p != nil {
			t.Errorf("%s: %+v", name, p)
		}
		if p := checkRequest(normal(r)); p != nil {
			t.Errorf("%s, in normal form: %+v", name, p)
		}
	}
}

// How many sleds there are is a state of the rack, up to what a record can hold.
func TestCheckRequest_TakesAnyNumberOfPeersUpToTheLimit(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 32, 33, 256} {
		r := smallRequest()
		r.TrustQuorumPeers = manyPeers(n)
		if p := checkRequest(r); p != nil {
			t.Errorf("%d peers: %+v", n, p)
		}
	}
}

func manyPeers(n int) []wire.Baseboard {
	peers := make([]wire.Baseboard, n)
	for i := range peers {
		peers[i] = wire.Baseboard{PartNumber: "913-0000019", SerialNumber: fmt.Sprintf("S%05d", i)}
	}
	return peers
}

func TestCheckRequest_Peers(t *testing.T) {
	const noName = "must match " + wire.NamePattern
	edit := func(change func(p []wire.Baseboard), want ...string) wrongRequest {
		return wrongRequest{func(r *wire.JoinRequest) { change(r.TrustQuorumPeers) }, want}
	}
	checkWrong(t, map[string]wrongRequest{
		"missing": {func(r *wire.JoinRequest) { r.TrustQuorumPeers = nil },
			[]string{"trust_quorum_peers: is required: a list, [] for none"}},
		"too many": {func(r *wire.JoinRequest) { r.TrustQuorumPeers = make([]wire.Baseboard, 257) },
			[]string{"trust_quorum_peers: must be at most 256 sleds; got 257"}},
		"empty serial": edit(func(p []wire.Baseboard) { p[1].SerialNumber = "" }, "trust_quorum_peers[1].serial_number: "+noName),
		"empty part":   edit(func(p []wire.Baseboard) { p[1].PartNumber = "" }, "trust_quorum_peers[1].part_number: "+noName),
		"null": edit(func(p []wire.Baseboard) { p[2] = wire.Baseboard{} },
			"trust_quorum_peers[2].part_number: "+noName, "trust_quorum_peers[2].serial_number: "+noName),
		"dot":       edit(func(p []wire.Baseboard) { p[0].SerialNumber = "a.b" }, "trust_quorum_peers[0].serial_number: "+noName),
		"too long":  edit(func(p []wire.Baseboard) { p[0].PartNumber = strings.Repeat("a", 65) }, "trust_quorum_peers[0].part_number: "+noName),
		"duplicate": edit(func(p []wire.Baseboard) { p[2] = p[0] }, "trust_quorum_peers[0]: is the same sled as trust_quorum_peers[2]", "trust_quorum_peers[2]: is the same sled as trust_quorum_peers[0]"),
		"three times": edit(func(p []wire.Baseboard) { p[1], p[2] = p[0], p[0] },
			"trust_quorum_peers[0]: is the same sled as trust_quorum_peers[1]", "trust_quorum_peers[1]: is the same sled as trust_quorum_peers[0]",
			"trust_quorum_peers[2]: is the same sled as trust_quorum_peers[0]"),
		"no name twice": edit(func(p []wire.Baseboard) { p[0].SerialNumber, p[1].SerialNumber = "", "" },
			"trust_quorum_peers[0].serial_number: "+noName, "trust_quorum_peers[1].serial_number: "+noName),
	})
}

func TestCheckRequest_SledsThatDifferInCaseAreTwo(t *testing.T) {
	r := smallRequest()
	r.TrustQuorumPeers = []wire.Baseboard{{PartNumber: "p", SerialNumber: "a"}, {PartNumber: "p", SerialNumber: "A"}}
	if p := checkRequest(r); p != nil {
		t.Errorf("%+v", p)
	}
}

func TestCheckRequest_AllProblemsComeInOneList(t *testing.T) {
	var fields []string
	for _, p := range checkRequest(&wire.JoinRequest{}) {
		fields = append(fields, p.Field)
	}
	if want := []string{"trust_quorum_peers", "rack_network_config"}; !slices.Equal(fields, want) {
		t.Errorf("nothing there: %v, want %v", fields, want)
	}
	r := fullRequest(t)
	r.TrustQuorumPeers[1].SerialNumber, r.RackNetworkConfig.Ports[0].Port, r.RackNetworkConfig.BFD[0].RequiredRx = "", "", 0
	fields = nil
	for _, p := range checkRequest(r) {
		fields = append(fields, p.Field)
	}
	want := []string{"trust_quorum_peers[1].serial_number", "rack_network_config.ports[0].port", "rack_network_config.bfd[0].required_rx"}
	if !slices.Equal(fields, want) {
		t.Errorf("%v, want %v", fields, want)
	}
}

func TestCheckRequest_LongListsEndWithACount(t *testing.T) {
	for n, last := range map[int]string{
		50: "trust_quorum_peers[49].serial_number: must match " + wire.NamePattern,
		51: ": 1 more not listed; mend these first",
		99: ": 49 more not listed; mend these first",
	} {
		r := smallRequest()
		r.TrustQuorumPeers = manyPeers(n)
		for i := range r.TrustQuorumPeers {
			r.TrustQuorumPeers[i].SerialNumber = "_"
		}
		got := checkRequest(r)
		if len(got) != min(n, 51) {
			t.Errorf("%d wrong: %d entries", n, len(got))
		}
		if p := got[len(got)-1]; p.Field+": "+p.Problem != last {
			t.Errorf("%d wrong: the last is %+v, want %q", n, p, last)
		}
	}
}
