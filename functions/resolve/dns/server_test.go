package dns_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/functions/resolve/dns"
	"muster/functions/resolve/dns/dnstest"
	"muster/runtime/natstest"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, label[:61]}, ".") // 253
	for _, name := range []string{mgs, mgs + ".", "a", "_a-1_.b", label, long, long + "."} {
		if err := dns.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", ".a", "a..b", "a b", "a*", "é", `a\.b`, "a/b", "a\n", label + "a", long + "a", long + "a.", "a\x00"} {
		if err := dns.CheckName(name); err == nil {
			t.Errorf("%q is taken for a name", name)
		} else if name != "" && name != "." && len(name) > 2 && strings.Contains(err.Error(), name) {
			t.Errorf("the error repeats %q", name)
		}
	}
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:53", "[::1]:5353", "[fe80::1%eth0.1]:53"} {
		if err := dns.CheckServer(addr); err != nil {
			t.Errorf("%q: %v", addr, err)
		}
	}
	for _, addr := range []string{
		"", "127.0.0.1", "::1", "::1:53", "[::1]", "localhost:53", "ns.example:53", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:dns",
		"0.0.0.0:53", "[::]:53", "[ff02::1]:53", "[127.0.0.1]:53", "[fe80::1%a b]:53", "127.0.0.1:53 ", "127.1:53", "010.0.0.1:53",
	} {
		if dns.CheckServer(addr) == nil {
			t.Errorf("%q is taken for a server", addr)
		}
	}
}

func TestWithoutAServerNobodyKnows(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	got := ask(t, dns.New(dns.Config{ResolvConf: conf}))
	if got.Outcome != dns.Failure || got.Reason != "no DNS server is named in "+conf {
		t.Errorf("%+v", got)
	}
}

// askAnew asks until a query has reached the server: an answer serves for a second.
func askAnew(t *testing.T, c *dns.Client, srv *dnstest.Server, servers ...string) (r dns.Result) {
	t.Helper()
	before := srv.Count(mgs, "SRV")
	natstest.Eventually(t, 30*time.Second, "a query reaches the server", func() bool {
		r = ask(t, c, servers...)
		return srv.Count(mgs, "SRV") > before
	})
	return r
}

func TestADeadServerIsPassedOver(t *testing.T) {
	t.Parallel()
	dead, alive := dnstest.Start(t), dnstest.Start(t)
	dead.All(dnstest.Silent())
	alive.Zone(srv0, aaaa0)
	c := dns.New(dns.Config{Timeout: 250 * time.Millisecond})
	if got := ask(t, c, dead.Addr(), alive.Addr()); got.Outcome != dns.Answer {
		t.Fatalf("%+v", got)
	}
	alive.All(dnstest.ServFail())
	got := askAnew(t, c, alive, dead.Addr(), alive.Addr())
	if want := "SERVFAIL from " + alive.Addr() + "; no answer from " + dead.Addr() + " in 250ms"; got.Reason != want {
		t.Errorf("reason %q, want %q", got.Reason, want)
	}
}

func TestAnswersThatDiffer(t *testing.T) {
	t.Parallel()
	srv := dnstest.Start(t)
	srv.Script(mgs, "SRV", dnstest.Records(strings.Replace(srv0, " 5 ", " 0 ", 1)), dnstest.ServFail(), dnstest.Records(strings.Replace(srv1, " 5 ", " 0 ", 1)))
	srv.Zone(aaaa0, aaaa1)
	c := dns.New(dns.Config{})
	var backends []dns.Target
	for i, want := range []struct{ name, outcome string }{{"mgs0", "answer"}, {"mgs0", "failure"}, {"mgs1", "answer"}} {
		r := askAnew(t, c, srv, srv.Addr())
		backends, _ = dns.Merge(backends, r)
		if r.Outcome.String() != want.outcome || len(backends) != 1 || backends[0].Name != want.name {
			t.Errorf("answer %d: %+v, backends %+v", i, r, backends)
		}
	}
	if most, name, qtype := srv.Busiest(); most != 1 {
		t.Errorf("%d queries within a second for %s %s", most, name, qtype)
	}
}
