package join

import (
	"errors"
	"fmt"
	"net/netip"
)

// A rack's subnet is a /56, which holds 256 of the /64 that sleds get. Number 0 is reserved.
const (
	rackBits      = 56
	sledBits      = 64
	maxSledNumber = 255
)

// The errors of the parsers below are texts of problems.

// parseHost reads the address of one host. The same IP has one form: an IPv4 address within IPv6 is refused, and so is a
// zone, which means something on one machine only.
func parseHost(s string) (netip.Addr, error) {
	if s == "" {
		return netip.Addr{}, errors.New("is required: an IPv4 or IPv6 address")
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, errors.New("must be an IPv4 or IPv6 address")
	}
	return a, hostly(a)
}

// parseHostNet reads the address of one host with the length of its network, as in 192.0.2.7/24.
func parseHostNet(s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, errors.New("is required: an address with its prefix length, as in 192.0.2.7/24")
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("must be an address with its prefix length, as in 192.0.2.7/24")
	}
	return p, hostly(p.Addr())
}

// hostly wants an address that a host can have.
func hostly(a netip.Addr) error {
	switch {
	case a.Is4In6():
		return fmt.Errorf("must be written as IPv4, %s", a.Unmap())
	case a.IsUnspecified(), a.IsMulticast():
		return errors.New("must be the address of one host")
	}
	return nil
}

// parseNet reads a network, as in 192.0.2.0/24.
func parseNet(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case s == "":
		return netip.Prefix{}, errors.New("is required: a network, as in 192.0.2.0/24")
	case err != nil:
		return netip.Prefix{}, errors.New("must be a network, as in 192.0.2.0/24")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("must be written as IPv4")
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("must have no host bits: the network is %s", p.Masked())
	}
	return p, nil
}

// parseRackSubnet reads the subnet of a rack.
func parseRackSubnet(s string) (netip.Prefix, error) {
	const form = "an IPv6 network of 56 bits, as in fd00:1122:3344:200::/56"
	p, err := netip.ParsePrefix(s)
	switch {
	case s == "":
		return netip.Prefix{}, errors.New("is required: " + form)
	case err != nil, p.Addr().Is4(), p.Addr().Is4In6(), p.Bits() != rackBits:
		return netip.Prefix{}, errors.New("must be " + form)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("must have no host bits: the network is %s", p.Masked())
	}
	return p, nil
}

// sledSubnet is the number-th /64 of a rack's subnet. The first sled is number 1, the last possible one 255.
func sledSubnet(rackSubnet string, number int) (string, error) {
	rack, err := parseRackSubnet(rackSubnet)
	if err != nil {
		return "", fmt.Errorf("rack subnet: %w", err)
	}
	if number < 1 || number > maxSledNumber {
		return "", fmt.Errorf("sled number: must be 1 to %d; got %d", maxSledNumber, number)
	}
	net := rack.Addr().As16()
	net[rackBits/8] = byte(number)
	return netip.PrefixFrom(netip.AddrFrom16(net), sledBits).String(), nil
}

// respelled is an address or a network in the one spelling that netip prints. What is neither stays as it is, since it
// is another's task to refuse it.
func respelled(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String()
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.String()
	}
	return s
}

// lastAddr is the last address of a network.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
