package dns_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/functions/resolve/dns"
	"muster/functions/resolve/dns/dnstest"
)

const mgs = "_mgs._tcp.rack.internal"

func ask(t *testing.T, c *dns.Client, servers ...string) dns.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.Ask(ctx, mgs, servers)
}

func target(name, host, address string, priority, weight uint16) dns.Target {
	return dns.Target{Name: name, Host: host, Address: address, Priority: priority, Weight: weight}
}

const (
	srv0  = mgs + ". 5 IN SRV 0 1 12225 mgs0.rack.internal."
	srv1  = mgs + ". 5 IN SRV 0 2 12225 MGS1.rack.internal."
	aaaa0 = "mgs0.rack.internal. 5 IN AAAA fd00:1122::1"
	aaaa1 = "mgs1.rack.internal. 5 IN AAAA fd00:1122::2"
)

var (
	mgs0 = target("mgs0", "mgs0.rack.internal:12225", "[fd00:1122::1]:12225", 0, 1)
	mgs1 = target("mgs1", "mgs1.rack.internal:12225", "[fd00:1122::2]:12225", 0, 2)
	gap1 = dns.Gap{Host: "mgs1.rack.internal:12225", Weight: 2}
)

// outcomes: what the server does, and what is made of it. Reasons name the server as ADDR.
var outcomes = map[string]struct {
	zone   []string
	script map[string]dnstest.Reply // "name type", replaces what the zone says
	want   dns.Result
}{
	"all targets have addresses": {
		zone: []string{srv1, srv0, aaaa0, aaaa1},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0, mgs1}, TTL: 5 * time.Second},
	},
	"both families are backends": {
		zone: []string{srv0, aaaa0, "mgs0.rack.internal. 3 IN A 127.0.0.1"},
		want: dns.Result{Outcome: dns.Answer, TTL: 3 * time.Second, Targets: []dns.Target{
			target("mgs0-v4", "mgs0.rack.internal:12225", "127.0.0.1:12225", 0, 1),
			target("mgs0-v6", "mgs0.rack.internal:12225", "[fd00:1122::1]:12225", 0, 1),
		}},
	},
	"an alias is followed within the answer": {
		zone: []string{srv0},
		script: map[string]dnstest.Reply{"mgs0.rack.internal AAAA": dnstest.Records(
			"mgs0.rack.internal. 2 IN CNAME switch0.rack.internal.", "switch0.rack.internal. 9 IN CNAME x.rack.internal.",
			"x.rack.internal. 9 IN AAAA fd00:1122::1", "other.rack.internal. 1 IN AAAA fd00::bad")},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0}, TTL: 2 * time.Second},
	},
	"glue is taken for its target only": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.RecordsAndGlue([]string{srv0, srv1},
			[]string{aaaa0, "mgs0.rack.internal. 4 IN A 127.0.0.1", "evil.rack.internal. 1 IN AAAA fd00::bad"}),
			"mgs1.rack.internal AAAA": dnstest.Records(aaaa1)},
		want: dns.Result{Outcome: dns.Answer, TTL: 4 * time.Second, Targets: []dns.Target{
			target("mgs0-v4", "mgs0.rack.internal:12225", "127.0.0.1:12225", 0, 1),
			target("mgs0-v6", "mgs0.rack.internal:12225", "[fd00:1122::1]:12225", 0, 1), mgs1,
		}},
	},
	"a TTL of 0 counts as 1 s": {
		zone: []string{strings.Replace(srv0, " 5 ", " 0 ", 1), aaaa0},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0}, TTL: time.Second},
	},
	"a huge TTL is capped": {
		zone: []string{strings.Replace(srv0, " 5 ", " 2147483647 ", 1), strings.Replace(aaaa0, " 5 ", " 86400 ", 1)},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0}, TTL: time.Minute},
	},
	"a TTL with the top bit set counts as 1 s": {
		zone: []string{strings.Replace(srv0, " 5 ", " 4294967295 ", 1), aaaa0},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0}, TTL: time.Second},
	},
	"one target fails": {
		zone:   []string{srv0, srv1, aaaa0},
		script: map[string]dnstest.Reply{"mgs1.rack.internal AAAA": dnstest.ServFail(), "mgs1.rack.internal A": dnstest.NoData(1)},
		want: dns.Result{Outcome: dns.Partial, Targets: []dns.Target{mgs0}, Gaps: []dns.Gap{gap1}, TTL: 5 * time.Second,
			Reason: "mgs1.rack.internal: SERVFAIL from ADDR"},
	},
	"one target does not exist": {
		zone: []string{srv0, srv1, aaaa0},
		want: dns.Result{Outcome: dns.Partial, Targets: []dns.Target{mgs0}, Gaps: []dns.Gap{gap1}, TTL: 5 * time.Second,
			Reason: "mgs1.rack.internal: NXDOMAIN"},
	},
	"one family fails": {
		zone:   []string{srv1, aaaa1},
		script: map[string]dnstest.Reply{"mgs1.rack.internal A": dnstest.Refused()},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs1}, TTL: 5 * time.Second,
			Gaps: []dns.Gap{{Host: gap1.Host, Weight: 2, Type: "A"}}, Reason: "mgs1.rack.internal: REFUSED from ADDR"},
	},
	"the zone says that there is no service": {
		zone: []string{mgs + ". 30 IN SRV 0 0 0 ."},
		want: dns.Result{Outcome: dns.Empty, TTL: 5 * time.Second, Reason: "the zone says that there is no such service"},
	},
	"NXDOMAIN": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.NXDomain(2)},
		want:   dns.Result{Outcome: dns.Absent, TTL: 2 * time.Second, Reason: "NXDOMAIN"},
	},
	"NXDOMAIN for long": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.NXDomain(86400)},
		want:   dns.Result{Outcome: dns.Absent, TTL: 5 * time.Second, Reason: "NXDOMAIN"},
	},
	"no records": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.NoData(0)},
		want:   dns.Result{Outcome: dns.Absent, TTL: time.Second, Reason: "no records"},
	},
	"no records and no word about it": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.NoDataBare()},
		want:   dns.Result{Outcome: dns.Absent, TTL: 5 * time.Second, Reason: "no records"},
	},
	"SERVFAIL": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.ServFail()},
		want:   dns.Result{Outcome: dns.Failure, Reason: "SERVFAIL from ADDR"},
	},
	"REFUSED": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Refused()},
		want:   dns.Result{Outcome: dns.Failure, Reason: "REFUSED from ADDR"},
	},
	"a referral is no absence": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Referral("rack.internal. 5 IN NS ns.rack.internal.")},
		want:   dns.Result{Outcome: dns.Failure, Reason: "referral to other servers from ADDR"},
	},
	"silence": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Silent()},
		want:   dns.Result{Outcome: dns.Failure, Reason: "no answer from ADDR in 250ms"},
	},
	"garbage": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Garbage()},
		want:   dns.Result{Outcome: dns.Failure, Reason: "unreadable answer from ADDR"},
	},
	"half of the records": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Changed(dnstest.Records(srv0, srv1),
			func(p []byte) []byte { return p[:len(p)-20] })},
		want: dns.Result{Outcome: dns.Failure, Reason: "unreadable answer from ADDR"},
	},
	"another id": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.WrongID(dnstest.NXDomain(1))},
		want:   dns.Result{Outcome: dns.Failure, Reason: "unreadable answer from ADDR"},
	},
	"another question": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.WrongName(dnstest.NXDomain(1))},
		want:   dns.Result{Outcome: dns.Failure, Reason: "unreadable answer from ADDR"},
	},
	"a forger is quicker than the server": {
		zone: []string{aaaa0},
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Then(dnstest.WrongID(dnstest.NXDomain(1)), dnstest.Garbage(),
			dnstest.WrongName(dnstest.NXDomain(1)), dnstest.Records(srv0))},
		want: dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0}, TTL: 5 * time.Second},
	},
	"truncated, whole over TCP": {
		zone:   []string{aaaa0},
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Truncated(srv0)},
		want:   dns.Result{Outcome: dns.Answer, Targets: []dns.Target{mgs0}, TTL: 5 * time.Second},
	},
	"truncated over TCP too": {
		script: map[string]dnstest.Reply{mgs + " SRV": dnstest.Truncated()},
		want:   dns.Result{Outcome: dns.Failure, Reason: "truncated answer over TCP from ADDR"},
	},
}

// untimed leaves out when it was heard.
var untimed = cmpopts.IgnoreFields(dns.Result{}, "At", "Took")

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := dnstest.Start(t)
			srv.Zone(tc.zone...)
			for q, reply := range tc.script {
				name, qtype, _ := strings.Cut(q, " ")
				srv.Script(name, qtype, reply)
			}
			got := ask(t, dns.New(dns.Config{Timeout: 250 * time.Millisecond}), srv.Addr())
			got.Reason = strings.ReplaceAll(got.Reason, srv.Addr(), "ADDR")
			if diff := cmp.Diff(tc.want, got, untimed); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if most, name, qtype := srv.Busiest(); most > 1 {
				t.Errorf("%d queries for %s %s within a second", most, name, qtype)
			}
		})
	}
}

func ExampleClient_Ask() {
	srv := dnstest.Start(exampleTB{})
	srv.Zone(
		"_mgs._tcp.rack.internal. 5 IN SRV 0 0 12225 mgs0.rack.internal.",
		"mgs0.rack.internal.      5 IN AAAA fd00:1122::1",
	)
	client := dns.New(dns.Config{})
	got := client.Ask(context.Background(), "_mgs._tcp.rack.internal", []string{srv.Addr()})
	backends, complete := dns.Merge(nil, got)
	fmt.Println(got.Outcome, complete)
	for _, b := range backends {
		fmt.Println(b.Name, b.Address)
	}
	// Output:
	// answer true
	// mgs0 [fd00:1122::1]:12225
}

// exampleTB lets an example start a server, which then lasts as long as the test program.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()               {}
func (exampleTB) Cleanup(func())        {}
func (exampleTB) Fatalf(string, ...any) { panic("no DNS server") }
