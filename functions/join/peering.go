package join

import (
	"net/netip"

	"muster/wire"
)

// Bounds of what routers tell each other. An ASN is never 0 (RFC 7607); a TCP-MD5 key is at most 80 bytes (RFC 2385 and
// the kernels that implement it); the lifetime is that of a router advertisement, in seconds.
const (
	maxASN            = 1<<32 - 1
	maxPaths          = 32
	maxMD5Key         = 80
	maxRouterLifetime = 9000
)

// routers checks the BGP routers of a rack.
func (n *networkCheck) routers(path string, routers []wire.BGP) {
	asns := firsts[uint32]{}
	for i, b := range routers {
		at := element(path, i)
		within(n.problems, at+".asn", &b.ASN, 1, maxASN)
		if b.ASN != 0 {
			asns.see(n.problems, b.ASN, at+".asn", "is the same ASN as")
		}
		given(n.problems, at+".originate", b.Originate)
		n.nets(at+".originate", b.Originate)
		within(n.problems, at+".max_paths", b.MaxPaths, 1, maxPaths)
	}
}

// neighbor is what makes two BGP peers of a port the same: the address of a numbered one; the link of one that is not.
type neighbor struct {
	address netip.Addr
	port    string
	vlan    uint16 // 0 for none
}

// peers checks the BGP peers of a port.
func (n *networkCheck) peers(path string, peers []wire.BGPPeer) {
	given(n.problems, path, peers)
	seen := firsts[neighbor]{}
	for i := range peers {
		at := element(path, i)
		if who, ok := n.peer(at, &peers[i]); ok {
			seen.see(n.problems, who, at+".addr", "is the same peer as")
		}
	}
}

// peer checks one and tells who it is, as far as it can tell.
func (n *networkCheck) peer(path string, p *wire.BGPPeer) (neighbor, bool) {
	if !n.asns[p.ASN] {
		n.add(path+".asn", "must be the asn of an entry of rack_network_config.bgp")
	}
	named := n.portName(path+".port", p.Port)
	n.vlan(path, p.VLANID)
	n.policy(path+".allowed_export", p.AllowedExport)
	n.policy(path+".allowed_import", p.AllowedImport)
	if p.HoldTime != nil && p.Keepalive != nil && *p.Keepalive > *p.HoldTime {
		n.add(path+".keepalive", "must be at most %s.hold_time", path)
		n.add(path+".hold_time", "must be at least %s.keepalive", path)
	}
	n.key(path+".md5_auth_key", p.MD5AuthKey)
	within(n.problems, path+".min_ttl", p.MinTTL, 1, 255)
	within(n.problems, path+".remote_asn", p.RemoteASN, 1, maxASN)
	return n.peerAddr(path+".addr", p, named)
}

// key checks a secret. What it is must not show in what is said of it, not even by its length.
func (n *networkCheck) key(field string, key *string) {
	switch {
	case key == nil:
	case *key == redactedKey:
		n.add(field, "is what replies show in place of a key; give the key itself")
	case !printable(*key, maxMD5Key):
		n.add(field, "must be 1 to %d printable ASCII characters", maxMD5Key)
	}
}

func (n *networkCheck) policy(path string, p *wire.RoutePolicy) {
	if p == nil || !n.oneOf(path+".type", p.Type, "no_filtering", "allow") {
		return
	}
	if p.Type == "allow" {
		given(n.problems, path+".value", p.Value)
		n.nets(path+".value", p.Value)
	} else if len(p.Value) > 0 {
		n.add(path+".value", "must be left out of a policy of type no_filtering")
	}
}

// peerAddr checks how a peer is reached; named tells whether its port has a name.
func (n *networkCheck) peerAddr(path string, p *wire.BGPPeer, named bool) (neighbor, bool) {
	a := &p.Addr
	if !n.oneOf(path+".type", a.Type, "unnumbered", "numbered") {
		return neighbor{}, false
	}
	if a.Type == "unnumbered" {
		if a.RouterLifetime == nil {
			n.add(path+".router_lifetime", "is required: 0 to %d seconds", maxRouterLifetime)
		}
		within(n.problems, path+".router_lifetime", a.RouterLifetime, 0, maxRouterLifetime)
		if a.TargetAddr != "" {
			n.add(path+".target_addr", "must be left out of an unnumbered peer")
		}
		if a.SrcAddr != nil {
			n.add(path+".src_addr", "must be left out of an unnumbered peer")
		}
		who := neighbor{port: p.Port}
		if p.VLANID != nil {
			who.vlan = *p.VLANID
		}
		return who, named
	}
	if a.RouterLifetime != nil {
		n.add(path+".router_lifetime", "must be left out of a numbered peer")
	}
	target, ok := n.host(path+".target_addr", a.TargetAddr)
	if a.SrcAddr != nil {
		if src, fine := n.host(path+".src_addr", *a.SrcAddr); fine && ok {
			n.sameFamily(path+".target_addr", target, path+".src_addr", src)
		}
	}
	return neighbor{address: target}, ok
}

// sessions checks the BFD sessions of a rack.
func (n *networkCheck) sessions(path string, peers []wire.BFDPeer) {
	type session struct {
		switchSlot string
		remote     netip.Addr
	}
	seen := firsts[session]{}
	for i, b := range peers {
		at := element(path, i)
		remote, ok := n.host(at+".remote", b.Remote)
		if b.Local != nil {
			if local, fine := n.host(at+".local", *b.Local); fine && ok {
				n.sameFamily(at+".remote", remote, at+".local", local)
			}
		}
		if n.switchSlot(at, b.Switch) && ok {
			seen.see(n.problems, session{b.Switch, remote}, at+".remote", "is the same remote on the same switch as")
		}
		n.oneOf(at+".mode", b.Mode, "single_hop", "multi_hop")
		within(n.problems, at+".detection_threshold", &b.DetectionThreshold, 1, 255)
		if b.RequiredRx == 0 {
			n.add(at+".required_rx", "must be at least 1")
		}
	}
}
