package join

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSledSubnet(t *testing.T) {
	for _, c := range []struct {
		rack   string
		number int
		want   string
		err    string
	}{
		{"fd00:1122:3344:200::/56", 1, "fd00:1122:3344:201::/64", ""},
		{"fd00:1122:3344:200::/56", 32, "fd00:1122:3344:220::/64", ""},
		{"FD00:1122:3344:0100:0:0:0:0/56", 255, "fd00:1122:3344:1ff::/64", ""},
		{"fd00:1122:3344:200::/56", 0, "", "sled number: must be 1 to 255; got 0"},
		{"fd00:1122:3344:200::/56", -1, "", "sled number: must be 1 to 255; got -1"},
		{"fd00:1122:3344:200::/56", 256, "", "sled number: must be 1 to 255; got 256"},
		{"fd00:1122:3344:201::/56", 1, "", "rack subnet: must have no host bits"},
		{"fd00:1122:3344:200::/64", 1, "", "rack subnet: must be an IPv6 network of 56 bits"},
		{"", 1, "", "rack subnet: is required"},
	} {
		got, err := sledSubnet(c.rack, c.number)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("sledSubnet(%q, %d) = %q, %v", c.rack, c.number, got, err)
		}
	}
}

func TestSledSubnet_AllOfARackAreItsOwnAndApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"))
		rack := netip.PrefixFrom(netip.AddrFrom16(b), 56).Masked()
		if rack.Addr().Is4In6() {
			t.Skip("an IPv4 address in IPv6 form")
		}
		seen := map[string]bool{}
		for n := 1; n <= 255; n++ {
			s, err := sledSubnet(rack.String(), n)
			if err != nil {
				t.Fatal(err)
			}
			p, err := parseNet(s)
			if err != nil || p.Bits() != 64 || !rack.Contains(p.Addr()) || !rack.Contains(lastAddr(p)) || seen[s] {
				t.Fatalf("number %d of %v is %s, %v", n, rack, s, err)
			}
			seen[s] = true
		}
	})
}

func TestLastAddr(t *testing.T) {
	for net, want := range map[string]string{
		"10.0.0.0/8": "10.255.255.255", "0.0.0.0/0": "255.255.255.255", "10.0.0.7/32": "10.0.0.7", "10.0.0.0/31": "10.0.0.1",
		"fd00:1122:3344:200::/56": "fd00:1122:3344:2ff:ffff:ffff:ffff:ffff", "::/0": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	} {
		if got := lastAddr(netip.MustParsePrefix(net)); got.String() != want {
			t.Errorf("last of %s is %s, want %s", net, got, want)
		}
	}
}
