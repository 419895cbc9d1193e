package join

import (
	"strings"
	"testing"

	"muster/wire"
)

func TestCheckNetwork_Routers(t *testing.T) {
	bgp := func(change func(b []wire.BGP), want ...string) wrongRequest {
		return inNetwork(func(c *network) { change(c.BGP) }, want...)
	}
	checkWrong(t, map[string]wrongRequest{
		"ASN twice": bgp(func(b []wire.BGP) { b[1].ASN = 65001 },
			"ports[0].bgp_peers[1].asn: must be the asn of an entry of ^bgp",
			"bgp[0].asn: is the same ASN as ^bgp[1].asn", "bgp[1].asn: is the same ASN as ^bgp[0].asn"),
		"ASN 0": bgp(func(b []wire.BGP) { b[1].ASN = 0 },
			"ports[0].bgp_peers[1].asn: must be the asn of an entry of ^bgp",
			"bgp[1].asn: must be 1 to 4294967295"),
		"no originate": bgp(func(b []wire.BGP) { b[1].Originate = nil }, "bgp[1].originate: is required: a list, [] for none"),
		"originate host bits": bgp(func(b []wire.BGP) { b[0].Originate[0] = "203.0.113.1/24" },
			"bgp[0].originate[0]: must have no host bits: the network is 203.0.113.0/24"),
		"originate no network": bgp(func(b []wire.BGP) { b[0].Originate[0] = "all" },
			`bgp[0].originate[0]: must be a network, as in 192.0.2.0/24`),
		"max_paths 0":  bgp(func(b []wire.BGP) { b[0].MaxPaths = new(uint8(0)) }, "bgp[0].max_paths: must be 1 to 32"),
		"max_paths 33": bgp(func(b []wire.BGP) { b[0].MaxPaths = new(uint8(33)) }, "bgp[0].max_paths: must be 1 to 32"),
	})
}

func TestCheckNetwork_Peers(t *testing.T) {
	at := "ports[0].bgp_peers[0]."
	peer := func(change func(p *wire.BGPPeer), want ...string) wrongRequest {
		return inNetwork(func(c *network) { change(&c.Ports[0].BGPPeers[0]) }, want...)
	}
	second := func(change func(p *wire.BGPPeer), want ...string) wrongRequest {
		return inNetwork(func(c *network) { change(&c.Ports[0].BGPPeers[1]) }, want...)
	}
	policy := func(p wire.RoutePolicy, want ...string) wrongRequest {
		return peer(func(to *wire.BGPPeer) { to.AllowedExport = &p }, want...)
	}
	key := func(key string) wrongRequest {
		return peer(func(p *wire.BGPPeer) { p.MD5AuthKey = &key }, at+"md5_auth_key: must be 1 to 80 printable ASCII characters")
	}
	twice := []string{"ports[0].bgp_peers[0].addr: is the same peer as ^ports[0].bgp_peers[1].addr",
		"ports[0].bgp_peers[1].addr: is the same peer as ^ports[0].bgp_peers[0].addr"}
	checkWrong(t, map[string]wrongRequest{
		"unknown ASN": peer(func(p *wire.BGPPeer) { p.ASN = 65002 }, at+"asn: must be the asn of an entry of ^bgp"),
		"no ASN":      peer(func(p *wire.BGPPeer) { p.ASN = 0 }, at+"asn: must be the asn of an entry of ^bgp"),
		"no port":     peer(func(p *wire.BGPPeer) { p.Port = "" }, at+`port: must be 1 to 64 printable ASCII characters without spaces`),
		"vlan 0":      peer(func(p *wire.BGPPeer) { p.VLANID = new(uint16(0)) }, at+"vlan_id: must be 1 to 4094"),
		"vlan 4095":   peer(func(p *wire.BGPPeer) { p.VLANID = new(uint16(4095)) }, at+"vlan_id: must be 1 to 4094"),
		"min_ttl 0":   peer(func(p *wire.BGPPeer) { p.MinTTL = new(uint8(0)) }, at+"min_ttl: must be 1 to 255"),
		"remote 0":    peer(func(p *wire.BGPPeer) { p.RemoteASN = new(uint32(0)) }, at+"remote_asn: must be 1 to 4294967295"),
		"keepalive": peer(func(p *wire.BGPPeer) { p.Keepalive = new(uint64(7)) },
			at+"keepalive: must be at most ^"+at+"hold_time", at+"hold_time: must be at least ^"+at+"keepalive"),

		"no address type":      peer(func(p *wire.BGPPeer) { p.Addr.Type = "" }, at+"addr.type: is required: one of unnumbered, numbered"),
		"another address type": peer(func(p *wire.BGPPeer) { p.Addr.Type = "static" }, at+`addr.type: must be one of unnumbered, numbered`),
		"no target":            peer(func(p *wire.BGPPeer) { p.Addr.TargetAddr = "" }, at+"addr.target_addr: is required: an IPv4 or IPv6 address"),
		"wrong target":         peer(func(p *wire.BGPPeer) { p.Addr.TargetAddr = "host" }, at+`addr.target_addr: must be an IPv4 or IPv6 address`),
		"wrong source":         peer(func(p *wire.BGPPeer) { p.Addr.SrcAddr = new("host") }, at+`addr.src_addr: must be an IPv4 or IPv6 address`),
		"source of another family": peer(func(p *wire.BGPPeer) { p.Addr.SrcAddr = new("fe80::1") },
			at+"addr.target_addr: must be of the same family as ^"+at+"addr.src_addr", at+"addr.src_addr: must be of the same family as ^"+at+"addr.target_addr"),
		"numbered with a lifetime": peer(func(p *wire.BGPPeer) { p.Addr.RouterLifetime = new(uint16(1)) }, at+"addr.router_lifetime: must be left out of a numbered peer"),
		"no lifetime": second(func(p *wire.BGPPeer) { p.Addr.RouterLifetime = nil },
			"ports[0].bgp_peers[1].addr.router_lifetime: is required: 0 to 9000 seconds"),
		"lifetime 9001": second(func(p *wire.BGPPeer) { p.Addr.RouterLifetime = new(uint16(9001)) },
			"ports[0].bgp_peers[1].addr.router_lifetime: must be 0 to 9000"),
		"unnumbered with addresses": second(func(p *wire.BGPPeer) { p.Addr.TargetAddr, p.Addr.SrcAddr = "192.0.2.2", new("192.0.2.10") },
			"ports[0].bgp_peers[1].addr.target_addr: must be left out of an unnumbered peer",
			"ports[0].bgp_peers[1].addr.src_addr: must be left out of an unnumbered peer"),
		"numbered twice": second(func(p *wire.BGPPeer) {
			p.Addr, p.VLANID = wire.BGPPeerAddr{Type: "numbered", TargetAddr: "192.0.2.1"}, new(uint16(7))
		}, twice...),
		"unnumbered twice": peer(func(p *wire.BGPPeer) {
			p.Addr, p.VLANID = wire.BGPPeerAddr{Type: "unnumbered", RouterLifetime: new(uint16(0))}, nil
		}, twice...),

		"no policy":         policy(wire.RoutePolicy{}, at+"allowed_export.type: is required: one of no_filtering, allow"),
		"another policy":    policy(wire.RoutePolicy{Type: "deny"}, at+`allowed_export.type: must be one of no_filtering, allow`),
		"allow what":        policy(wire.RoutePolicy{Type: "allow"}, at+"allowed_export.value: is required: a list, [] for none"),
		"allow no network":  policy(wire.RoutePolicy{Type: "allow", Value: []string{"::/0", ""}}, at+"allowed_export.value[1]: is required: a network, as in 192.0.2.0/24"),
		"allow host bits":   policy(wire.RoutePolicy{Type: "allow", Value: []string{"::1/0"}}, at+"allowed_export.value[0]: must have no host bits: the network is ::/0"),
		"unfiltered values": policy(wire.RoutePolicy{Type: "no_filtering", Value: []string{"::/0"}}, at+"allowed_export.value: must be left out of a policy of type no_filtering"),
		"import as well": peer(func(p *wire.BGPPeer) { p.AllowedImport.Type = "x" },
			at+`allowed_import.type: must be one of no_filtering, allow`),

		"empty key":    key(""),
		"long key":     key(strings.Repeat("k", 81)),
		"key with LF":  key("secret\n"),
		"key in UTF-8": key("sécret"),
		"redacted key": peer(func(p *wire.BGPPeer) { p.MD5AuthKey = new("[redacted]") },
			at+"md5_auth_key: is what replies show in place of a key; give the key itself"),
	})
}

func TestCheckNetwork_TakesPeersThatOnlyLookAlike(t *testing.T) {
	unnumbered := func(port string, vlan *uint16) wire.BGPPeer {
		return wire.BGPPeer{ASN: 65001, Port: port, VLANID: vlan, Addr: wire.BGPPeerAddr{Type: "unnumbered", RouterLifetime: new(uint16(0))}}
	}
	r := fullRequest(t)
	r.RackNetworkConfig.Ports[1].BGPPeers = []wire.BGPPeer{
		unnumbered("qsfp0", nil), unnumbered("qsfp0", new(uint16(1))), unnumbered("qsfp1", nil),
		{ASN: 65001, Port: "qsfp0", Addr: wire.BGPPeerAddr{Type: "numbered", TargetAddr: "192.0.2.1"},
			AllowedExport: &wire.RoutePolicy{Type: "allow", Value: []string{}}, HoldTime: new(uint64(0)), Keepalive: new(uint64(0)),
			MD5AuthKey: new(strings.Repeat("~", 80)), MinTTL: new(uint8(1))},
		{ASN: 65001, Port: "qsfp0", Addr: wire.BGPPeerAddr{Type: "numbered", TargetAddr: "192.0.2.2"}, Keepalive: new(uint64(9))},
	}
	if p := checkRequest(r); p != nil {
		t.Errorf("%+v", p)
	}
}

func TestCheckNetwork_Sessions(t *testing.T) {
	bfd := func(change func(b []wire.BFDPeer), want ...string) wrongRequest {
		return inNetwork(func(c *network) { change(c.BFD) }, want...)
	}
	checkWrong(t, map[string]wrongRequest{
		"no remote":    bfd(func(b []wire.BFDPeer) { b[0].Remote = "" }, "bfd[0].remote: is required: an IPv4 or IPv6 address"),
		"wrong remote": bfd(func(b []wire.BFDPeer) { b[0].Remote = "x" }, `bfd[0].remote: must be an IPv4 or IPv6 address`),
		"wrong local":  bfd(func(b []wire.BFDPeer) { b[0].Local = new("x") }, `bfd[0].local: must be an IPv4 or IPv6 address`),
		"two families": bfd(func(b []wire.BFDPeer) { b[0].Local = new("fe80::1") },
			"bfd[0].remote: must be of the same family as ^bfd[0].local", "bfd[0].local: must be of the same family as ^bfd[0].remote"),
		"remote twice": bfd(func(b []wire.BFDPeer) { b[1].Switch = "switch0" },
			"bfd[0].remote: is the same remote on the same switch as ^bfd[1].remote",
			"bfd[1].remote: is the same remote on the same switch as ^bfd[0].remote"),
		"no switch":      bfd(func(b []wire.BFDPeer) { b[0].Switch = "" }, "bfd[0].switch: is required: one of switch0, switch1"),
		"another switch": bfd(func(b []wire.BFDPeer) { b[0].Switch = "switch2" }, `bfd[0].switch: must be one of switch0, switch1`),
		"no mode":        bfd(func(b []wire.BFDPeer) { b[0].Mode = "" }, "bfd[0].mode: is required: one of single_hop, multi_hop"),
		"another mode":   bfd(func(b []wire.BFDPeer) { b[0].Mode = "SingleHop" }, `bfd[0].mode: must be one of single_hop, multi_hop`),
		"threshold 0":    bfd(func(b []wire.BFDPeer) { b[0].DetectionThreshold = 0 }, "bfd[0].detection_threshold: must be 1 to 255"),
		"required_rx 0":  bfd(func(b []wire.BFDPeer) { b[0].RequiredRx = 0 }, "bfd[0].required_rx: must be at least 1"),
	})
}
