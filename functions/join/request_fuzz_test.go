package join

import (
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"muster/wire"
)

// FuzzCheckRequest judges whatever JSON can say: it never panics, what it says is fit to be sent and holds no key, and a
// request that it takes has a normal form that it takes as well.
func FuzzCheckRequest(f *testing.F) {
	full, err := os.ReadFile("testdata/request.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"trust_quorum_peers":[null,{}],"rack_network_config":{"ports":[null],"bgp":[null],"bfd":[null]}}`))
	f.Add([]byte(`{"rack_network_config":{"rack_subnet":"fd00::/56","ports":[{"addresses":[null],"routes":[null],"lldp":{},"tx_eq":{},` +
		`"bgp_peers":[{"md5_auth_key":"","addr":{"type":"numbered"}},{"md5_auth_key":"\u0000","addr":{"type":"unnumbered"}}]}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &wire.JoinRequest{}
		if json.Unmarshal(body, r, json.RejectUnknownMembers(true)) != nil {
			return
		}
		const secret = "zqHunter2qz" // in no text of ours
		if c := r.RackNetworkConfig; c != nil {
			for i := range c.Ports {
				for j := range c.Ports[i].BGPPeers {
					if key := c.Ports[i].BGPPeers[j].MD5AuthKey; key != nil && *key != "" {
						*key = secret + *key
					}
				}
			}
		}
		found := checkRequest(r)
		if len(found) > maxProblems+1 {
			t.Fatalf("%d problems", len(found))
		}
		for i, p := range found {
			fitToSend(t, p, i == maxProblems)
			if strings.Contains(p.Problem, secret) {
				t.Fatalf("a key shows: %+v", p)
			}
		}
		n := normal(r)
		if d := cmp.Diff(n, normal(n)); d != "" {
			t.Fatalf("normal is not idempotent: once -, twice +\n%s", d)
		}
		if again := checkRequest(n); found == nil && again != nil {
			t.Fatalf("its normal form: %+v", again)
		}
		b, err := json.Marshal(redacted(r.RackNetworkConfig))
		if err != nil || strings.Contains(string(b), secret) {
			t.Fatalf("redacted: %s, %v", b, err)
		}
	})
}

func fitToSend(t *testing.T, p wire.Problem, last bool) {
	inRequest := strings.HasPrefix(p.Field, "trust_quorum_peers") || strings.HasPrefix(p.Field, "rack_network_config")
	if inRequest == last || len(p.Field) > 100 || p.Problem == "" || len(p.Problem) > 300 {
		t.Fatalf("%+v", p)
	}
	for _, c := range p.Field + p.Problem {
		if c < ' ' || c > '~' {
			t.Fatalf("not printable ASCII: %+v", p)
		}
	}
}
