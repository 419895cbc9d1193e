package join

import (
	"net/netip"
	"strings"

	"pgregory.net/rapid"

	"muster/wire"
)

// drawRequest makes requests, right and wrong ones, in all forms.
func drawRequest(t *rapid.T) *wire.JoinRequest {
	d := drawer{t}
	peers := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) wire.Baseboard {
		return wire.Baseboard{PartNumber: drawer{t}.of("p", "q"), SerialNumber: drawer{t}.of("a", "b", "B", "c")}
	}), -1, 6, rapid.ID).Draw(t, "peers")
	c := &wire.RackNetworkConfig{
		RackSubnet:   d.of("fd00:1122:3344:200::/56", "FD00:1122:3344:0200::/56", "fd00::/48", ""),
		InfraIPFirst: d.address(), InfraIPLast: d.address(),
		Ports: list(d, 3, d.port), BGP: list(d, 2, d.bgp), BFD: list(d, 2, d.bfd),
	}
	return &wire.JoinRequest{TrustQuorumPeers: peers, RackNetworkConfig: c}
}

type drawer struct{ t *rapid.T }

func (d drawer) of(choices ...string) string { return rapid.SampledFrom(choices).Draw(d.t, "text") }
func (d drawer) flip() bool                  { return rapid.Bool().Draw(d.t, "flip") }
func (d drawer) address() string {
	return d.of("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:DB8:0::1", "fe80::1", "x")
}
func (d drawer) net() string { return d.of("192.0.2.0/24", "2001:db8::/32", "2001:0db8::/32", "x", "") }

// list draws nil, empty and filled lists.
func list[T any](d drawer, most int, one func() T) []T {
	if d.flip() {
		return nil
	}
	out := []T{}
	for range rapid.IntRange(0, most).Draw(d.t, "length") {
		out = append(out, one())
	}
	return out
}

func maybe[T any](d drawer, one func() T) *T {
	if d.flip() {
		return nil
	}
	return new(one())
}

func number[T uint8 | uint16 | uint32 | uint64](d drawer) func() T {
	return func() T { return T(rapid.Uint8Range(0, 4).Draw(d.t, "number")) }
}

func (d drawer) text() string { return d.of("", "a", "b é") }

func (d drawer) port() wire.Port {
	return wire.Port{
		Port: d.of("qsfp0", "qsfp1"), Switch: d.of("switch0", "switch1"), UplinkPortSpeed: d.of("speed0_g", "x"),
		Addresses: list(d, 2, func() wire.UplinkAddress {
			return wire.UplinkAddress{
				Address: wire.AddressSource{Type: d.of("static", "addrconf"), IPNet: d.of("192.0.2.1/24", "2001:DB8::1/64", "")},
				VLANID:  maybe(d, number[uint16](d)),
			}
		}),
		Routes: list(d, 2, func() wire.Route {
			return wire.Route{Destination: d.net(), Nexthop: d.address(), RIBPriority: maybe(d, number[uint8](d)), VLANID: maybe(d, number[uint16](d))}
		}),
		BGPPeers: list(d, 2, d.peer), UplinkPortFEC: maybe(d, func() string { return d.of("rs", "none", "x") }), Autoneg: d.flip(),
		LLDP: maybe(d, func() wire.LLDP {
			return wire.LLDP{Status: d.of("enabled", ""), ChassisID: maybe(d, d.text), ManagementAddrs: list(d, 2, d.address), PortDescription: maybe(d, d.text),
				PortID: maybe(d, d.text), SystemDescription: maybe(d, d.text), SystemName: maybe(d, d.text)}
		}),
		TxEq: maybe(d, func() wire.TxEq {
			return wire.TxEq{Main: maybe(d, func() int32 { return rapid.Int32().Draw(d.t, "tap") })}
		}),
	}
}

func (d drawer) peer() wire.BGPPeer {
	policy := func() wire.RoutePolicy {
		return wire.RoutePolicy{Type: d.of("allow", "no_filtering", "x"), Value: list(d, 2, d.net)}
	}
	return wire.BGPPeer{
		ASN: number[uint32](d)(), Port: d.of("qsfp0", ""),
		Addr: wire.BGPPeerAddr{Type: d.of("numbered", "unnumbered"), TargetAddr: d.address(), SrcAddr: maybe(d, d.address),
			RouterLifetime: maybe(d, number[uint16](d))},
		AllowedExport: maybe(d, policy), AllowedImport: maybe(d, policy), Communities: list(d, 2, number[uint32](d)),
		HoldTime: maybe(d, number[uint64](d)), Keepalive: maybe(d, number[uint64](d)), MD5AuthKey: maybe(d, func() string { return d.of("k", "b é") }), VLANID: maybe(d, number[uint16](d)),
	}
}

func (d drawer) bgp() wire.BGP {
	return wire.BGP{ASN: number[uint32](d)(), Originate: list(d, 2, d.net), Checker: maybe(d, d.text), Shaper: maybe(d, d.text), MaxPaths: maybe(d, number[uint8](d))}
}

func (d drawer) bfd() wire.BFDPeer {
	return wire.BFDPeer{Remote: d.address(), Local: maybe(d, d.address), Switch: d.of("switch0", "switch1"), Mode: d.of("single_hop", "multi_hop"),
		DetectionThreshold: number[uint8](d)(), RequiredRx: number[uint64](d)()}
}

// drawOtherForm writes r in another way that says the same and is judged the same.
func drawOtherForm(t *rapid.T, r *wire.JoinRequest) *wire.JoinRequest {
	d := drawer{t}
	o := twinOf(r)
	if len(o.TrustQuorumPeers) > 0 {
		o.TrustQuorumPeers = rapid.Permutation(o.TrustQuorumPeers).Draw(t, "order")
	}
	c := o.RackNetworkConfig
	d.spell(&c.RackSubnet, &c.InfraIPFirst, &c.InfraIPLast)
	nothing(d, &c.BGP)
	nothing(d, &c.BFD)
	for i := range c.Ports {
		d.otherPort(&c.Ports[i])
	}
	for i := range c.BGP {
		b := &c.BGP[i]
		d.unsaid(&b.Checker, &b.Shaper)
		d.spellAll(b.Originate)
		if b.MaxPaths == nil && d.flip() {
			b.MaxPaths = new(uint8(1))
		} else if b.MaxPaths != nil && *b.MaxPaths == 1 && d.flip() {
			b.MaxPaths = nil
		}
	}
	for i := range c.BFD {
		d.spell(&c.BFD[i].Remote, c.BFD[i].Local)
	}
	return o
}

func (d drawer) otherPort(p *wire.Port) {
	for i := range p.Addresses {
		d.spell(&p.Addresses[i].Address.IPNet)
	}
	for i := range p.Routes {
		d.spell(&p.Routes[i].Destination, &p.Routes[i].Nexthop)
	}
	for i := range p.BGPPeers {
		b := &p.BGPPeers[i]
		d.spell(&b.Addr.TargetAddr, b.Addr.SrcAddr)
		nothing(d, &b.Communities)
		for _, policy := range []**wire.RoutePolicy{&b.AllowedExport, &b.AllowedImport} {
			switch {
			case *policy == nil && d.flip():
				*policy = &wire.RoutePolicy{Type: "no_filtering"}
			case *policy == nil:
			case (*policy).Type == "no_filtering" && len((*policy).Value) == 0 && d.flip():
				*policy = nil
			default:
				d.spellAll((*policy).Value)
			}
		}
	}
	if p.LLDP != nil {
		nothing(d, &p.LLDP.ManagementAddrs)
		d.spellAll(p.LLDP.ManagementAddrs)
		d.unsaid(&p.LLDP.ChassisID, &p.LLDP.PortID, &p.LLDP.PortDescription, &p.LLDP.SystemName, &p.LLDP.SystemDescription)
	}
	if p.TxEq == nil && d.flip() {
		p.TxEq = &wire.TxEq{}
	}
}

// nothing may turn an empty list into none and the other way round.
func nothing[T any](d drawer, list *[]T) {
	if len(*list) == 0 && d.flip() {
		*list = nil
	} else if *list == nil && d.flip() {
		*list = []T{}
	}
}

// unsaid may turn an empty text into none and the other way round.
func (d drawer) unsaid(texts ...**string) {
	for _, s := range texts {
		if *s == nil && d.flip() {
			*s = new("")
		} else if *s != nil && **s == "" && d.flip() {
			*s = nil
		}
	}
}

// spell may write an IPv6 address or network at full length, in capitals.
func (d drawer) spell(texts ...*string) {
	for _, s := range texts {
		if s == nil || !d.flip() {
			continue
		}
		host, bits, isNet := strings.Cut(*s, "/")
		if a, err := netip.ParseAddr(host); err == nil {
			*s = strings.ToUpper(a.StringExpanded())
			if isNet {
				*s += "/" + bits
			}
		}
	}
}

func (d drawer) spellAll(texts []string) {
	for i := range texts {
		d.spell(&texts[i])
	}
}
