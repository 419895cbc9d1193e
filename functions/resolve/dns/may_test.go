package dns_test

import (
	"sync/atomic"
	"testing"

	"muster/functions/resolve/dns"
	"muster/functions/resolve/dns/dnstest"
)

// A query that may not be sent any more when its turn comes stays, however long it has waited for that.
func TestClientAsksOnlyWhileItMay(t *testing.T) {
	t.Parallel()
	s := dnstest.Start(t)
	s.All(dnstest.ServFail())
	var no atomic.Bool
	c := dns.New(dns.Config{May: func() bool { return !no.Load() }})
	for i, may := range []bool{true, false} {
		no.Store(!may)
		if r := c.Ask(t.Context(), "_mgs._tcp.rack.internal", []string{s.Addr()}); r.Outcome != dns.Failure {
			t.Errorf("ask %d: %v", i, r.Outcome)
		}
	}
	if got := s.Count("_mgs._tcp.rack.internal.", "SRV"); got != 1 {
		t.Errorf("%d queries, want the one that was allowed", got)
	}
}
