package resolve

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"muster/functions/resolve/dns"
	"muster/wire"
)

// maxServers is how many DNS servers a source may name: who has more has a resolver in front of them.
const maxServers = 8

// checkSource checks the body of define.
func checkSource(s *wire.Source) error {
	n := 0
	for _, set := range []bool{s.DNS != nil, s.Static != nil, s.Leases != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return wire.Invalid("", "a source is exactly one of dns, static and leases; %d are given", n)
	}
	switch {
	case s.DNS != nil:
		return checkDNS(s.DNS)
	case s.Static != nil:
		for name, address := range s.Static {
			if !wire.ValidName(name) {
				return wire.Invalid("static", "a member of static is not a name: it must match %s", wire.NamePattern)
			}
			if err := checkAddress("static."+name, address); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkDNS(s *wire.DNSSource) error {
	if err := dns.CheckName(s.Name); err != nil {
		return wire.Invalid("dns.name", "dns.name must be a DNS name: %v", err)
	}
	if len(s.Servers) > maxServers {
		return wire.Invalid("dns.servers", "dns.servers must be at most %d", maxServers)
	}
	for i, server := range s.Servers {
		if err := dns.CheckServer(server); err != nil {
			return wire.Invalid("dns.servers["+strconv.Itoa(i)+"]", "dns.servers[%d] must be an IP address and a port, as in [::1]:53: %v", i, err)
		}
	}
	return nil
}

// hostname is what may stand for an IP address in an address.
var hostname = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$`)

// checkAddress checks an address: an IP address or host name and a port from 1 to 65535, IPv6 in brackets.
func checkAddress(field, s string) error {
	bad := func(why string) error {
		return wire.Invalid(field, "%s must be host:port, IPv6 in brackets, as in [fd00::1]:80: %s", field, why)
	}
	if s == "" {
		return wire.Invalid(field, "%s is required: host:port, IPv6 in brackets, as in [fd00::1]:80", field)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return bad("there is no port")
	}
	host, port := s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
		return bad("the port is not 1 to 65535")
	}
	if strings.HasPrefix(host, "[") {
		ip, err := netip.ParseAddr(strings.TrimSuffix(host[1:], "]"))
		if err != nil || !ip.Is6() || !strings.HasSuffix(host, "]") {
			return bad("what is in brackets is not an IPv6 address")
		}
		return nil
	}
	switch ip, err := netip.ParseAddr(host); {
	case err == nil && ip.Is4():
		return nil
	case strings.Contains(host, ":"):
		return bad("an IPv6 address stands in brackets")
	}
	if len(host) > 253 || !hostname.MatchString(host) || allNumeric(host) {
		return bad("the host is neither an IP address nor a host name")
	}
	return nil
}

// allNumeric tells whether the last label of a host name is a number, which makes it a broken IPv4 address.
func allNumeric(host string) bool {
	last := host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:]
	_, err := strconv.ParseUint(strings.TrimSuffix(last, "."), 10, 64)
	return err == nil
}
