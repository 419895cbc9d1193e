package resolve

import (
	"strings"
	"testing"

	"muster/wire"
)

func TestSource(t *testing.T) {
	good := map[string]wire.Source{
		"dns":               {DNS: &wire.DNSSource{Name: "_mgs._tcp.rack.internal", Servers: []string{"[::1]:5353", "127.0.0.1:53"}}},
		"dns of the system": {DNS: &wire.DNSSource{Name: "_mgs._tcp.rack.internal."}},
		"static":            *staticSource, "static, empty": {Static: map[string]string{}}, "leases": *leasesSource,
	}
	for what, s := range good {
		if err := checkSource(&s); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	bad := map[string]struct {
		source wire.Source
		field  string
	}{
		"none":                   {wire.Source{}, ""},
		"two":                    {wire.Source{Static: map[string]string{}, Leases: &struct{}{}}, ""},
		"all":                    {wire.Source{DNS: &wire.DNSSource{Name: "a.b"}, Static: map[string]string{}, Leases: &struct{}{}}, ""},
		"no name":                {wire.Source{DNS: &wire.DNSSource{}}, "dns.name"},
		"no DNS name":            {wire.Source{DNS: &wire.DNSSource{Name: "a..b"}}, "dns.name"},
		"a server by name":       {wire.Source{DNS: &wire.DNSSource{Name: "a.b", Servers: []string{"[::1]:53", "ns.b:53"}}}, "dns.servers[1]"},
		"a server without port":  {wire.Source{DNS: &wire.DNSSource{Name: "a.b", Servers: []string{"10.0.0.1"}}}, "dns.servers[0]"},
		"too many servers":       {wire.Source{DNS: &wire.DNSSource{Name: "a.b", Servers: make([]string, 9)}}, "dns.servers"},
		"static under no name":   {wire.Source{Static: map[string]string{"a b": "[fd00::1]:80"}}, "static"},
		"static without address": {wire.Source{Static: map[string]string{"a": ""}}, "static.a"},
		"static, unbracketed":    {wire.Source{Static: map[string]string{"a": "fd00::1:80"}}, "static.a"},
	}
	for what, c := range bad {
		err := checkSource(&c.source)
		e := wire.AsError(err)
		if err == nil || e.Code != wire.InvalidRequest {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got, _ := e.Details["field"].(string); got != c.field {
			t.Errorf("%s: field %q, want %q", what, got, c.field)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, s := range []string{
		"[fd00::1]:80", "[::1]:1", "[::]:65535", "10.0.0.1:80", "0.0.0.0:1", "host:80", "mgs0.rack.internal:12225", "mgs0.rack.internal.:80", "a-b.c:80", "h1:80",
		"[::ffff:10.0.0.1]:80", strings.Repeat("a", 63) + ":80",
	} {
		if err := checkAddress("address", s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"", "fd00::1:80", "::1:80", "fd00::1", "[fd00::1]", "[fd00::1]80", "[fd00::1]:", "[fd00::1]:0", "[fd00::1]:65536", "[fd00::1]:+80", "[fd00::1]:080", "[fd00::1]:http",
		"[10.0.0.1]:80", "[]:80", ":80", "[fd00::1:80", "fd00::1]:80", "[[fd00::1]]:80", "10.0.0:80", "10.0.0.256:80", "1:80", "host", "host:80:80", "ho st:80", "-a:80", "a-:80",
		"a..b:80", ".a:80", "hôst:80", "a\x00b:80", "[fd00::1]:80 ", " [fd00::1]:80", "http://a:80", "a/b:80", strings.Repeat("a", 64) + ":80", strings.Repeat("a.", 130) + "a:80", "[fd00::1]:-1",
	} {
		err := checkAddress("address", s)
		if e := wire.AsError(err); err == nil || e.Code != wire.InvalidRequest || e.Details["field"] != "address" {
			t.Errorf("%q: %v", s, err)
		} else if len(s) > 20 && strings.Contains(e.Message, s) {
			t.Errorf("%q is echoed", s)
		}
	}
}
