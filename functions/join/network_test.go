package join

import (
	"strings"
	"testing"

	"muster/wire"
)

type network = wire.RackNetworkConfig

func TestCheckNetwork_Subnets(t *testing.T) {
	const form = "an IPv6 network of 56 bits, as in fd00:1122:3344:200::/56"
	rack := func(s string, want string) wrongRequest {
		return inNetwork(func(c *network) { c.RackSubnet = s }, "rack_subnet: "+want)
	}
	infra := func(first, last string, want ...string) wrongRequest {
		return inNetwork(func(c *network) { c.InfraIPFirst, c.InfraIPLast = first, last }, want...)
	}
	overlap := []string{
		"rack_subnet: overlaps the range of ^infra_ip_first and ^infra_ip_last",
		"infra_ip_first: begins a range that overlaps ^rack_subnet",
		"infra_ip_last: ends a range that overlaps ^rack_subnet",
	}
	overlaps := func(first, last string) wrongRequest { return infra(first, last, overlap...) }
	checkWrong(t, map[string]wrongRequest{
		"missing": {func(r *wire.JoinRequest) { r.RackNetworkConfig = nil }, []string{"rack_network_config: is required"}},

		"no rack subnet":      rack("", "is required: "+form),
		"rack subnet of 64":   rack("fd00:1122:3344:200::/64", "must be "+form),
		"rack subnet of 55":   rack("fd00:1122:3344:200::/55", "must be "+form),
		"rack subnet is IPv4": rack("10.0.0.0/8", "must be "+form),
		"an address":          rack("fd00::", "must be "+form),
		"no network at all":   rack("fd00::/56 ", "must be "+form),
		"IPv4 within IPv6":    rack("::ffff:1.2.3.4/56", "must be "+form),
		"host bits":           rack("fd00:1122:3344:201::/56", "must have no host bits: the network is fd00:1122:3344:200::/56"),
		"the last host bit":   rack("fd00:1122:3344:200::1/56", "must have no host bits: the network is fd00:1122:3344:200::/56"),

		"no first":        infra("", "192.0.2.20", "infra_ip_first: is required: an IPv4 or IPv6 address"),
		"no last":         infra("192.0.2.10", "", "infra_ip_last: is required: an IPv4 or IPv6 address"),
		"first a network": infra("192.0.2.0/24", "192.0.2.20", `infra_ip_first: must be an IPv4 or IPv6 address`),
		"last no address": infra("192.0.2.10", "banana", `infra_ip_last: must be an IPv4 or IPv6 address`),
		"a zone":          infra("fe80::1%eth0", "fe80::2", `infra_ip_first: must be an IPv4 or IPv6 address`),
		"mapped":          infra("::ffff:192.0.2.10", "192.0.2.20", "infra_ip_first: must be written as IPv4, 192.0.2.10"),
		"unspecified":     infra("0.0.0.0", "192.0.2.20", "infra_ip_first: must be the address of one host"),
		"multicast":       infra("2001:db8::1", "ff02::1", "infra_ip_last: must be the address of one host"),
		"two families": infra("192.0.2.10", "2001:db8::1", "infra_ip_first: must be of the same family as ^infra_ip_last",
			"infra_ip_last: must be of the same family as ^infra_ip_first"),
		"out of order": infra("192.0.2.20", "192.0.2.10", "infra_ip_first: must not be after ^infra_ip_last",
			"infra_ip_last: must not be before ^infra_ip_first"),
		"within the rack":     overlaps("fd00:1122:3344:200::5", "fd00:1122:3344:200::6"),
		"around the rack":     overlaps("fd00::1", "fdff::1"),
		"into the rack":       overlaps("fd00::1", "fd00:1122:3344:200::"),
		"from the rack's end": overlaps("fd00:1122:3344:2ff:ffff:ffff:ffff:ffff", "fd00:1122:3344:300::"),
	})
}

func TestCheckNetwork_TakesRangesAtTheEdge(t *testing.T) {
	for _, c := range [][2]string{
		{"192.0.2.10", "192.0.2.10"}, {"192.0.2.9", "192.0.2.10"},
		{"fd00::1", "fd00:1122:3344:1ff:ffff:ffff:ffff:ffff"}, {"fd00:1122:3344:300::", "fd00:1122:3344:300::1"},
	} {
		r := smallRequest()
		r.RackNetworkConfig.InfraIPFirst, r.RackNetworkConfig.InfraIPLast = c[0], c[1]
		if p := checkRequest(r); p != nil {
			t.Errorf("%v: %+v", c, p)
		}
	}
}

func TestCheckNetwork_Ports(t *testing.T) {
	port := func(change func(p *wire.Port), want ...string) wrongRequest {
		return inNetwork(func(c *network) { change(&c.Ports[0]) }, want...)
	}
	const speeds = "speed0_g, speed1_g, speed10_g, speed25_g, speed40_g, speed50_g, speed100_g, speed200_g, speed400_g"
	name := func(s string) wrongRequest {
		return port(func(p *wire.Port) { p.Port = s }, "ports[0].port: must be 1 to 64 printable ASCII characters without spaces")
	}
	checkWrong(t, map[string]wrongRequest{
		"no ports":    inNetwork(func(c *network) { c.Ports = nil }, "ports: must be a list of at least one port"),
		"empty ports": inNetwork(func(c *network) { c.Ports = []wire.Port{} }, "ports: must be a list of at least one port"),
		"no name":     name(""),
		"a space":     name("qsfp 0"),
		"a tab":       name("qsfp\t0"),
		"not ASCII":   name("qsfpé"),
		"too long":    name(strings.Repeat("q", 65)),
		"port twice": inNetwork(func(c *network) { c.Ports[1].Switch = "switch0" },
			"ports[0].port: is the same port of the same switch as ^ports[1].port",
			"ports[1].port: is the same port of the same switch as ^ports[0].port"),
		"no switch":      port(func(p *wire.Port) { p.Switch = "" }, "ports[0].switch: is required: one of switch0, switch1"),
		"another switch": port(func(p *wire.Port) { p.Switch = "Switch0" }, `ports[0].switch: must be one of switch0, switch1`),
		"no speed":       port(func(p *wire.Port) { p.UplinkPortSpeed = "" }, "ports[0].uplink_port_speed: is required: one of "+speeds),
		"another speed":  port(func(p *wire.Port) { p.UplinkPortSpeed = "100G" }, "ports[0].uplink_port_speed: must be one of "+speeds),
		"empty FEC":      port(func(p *wire.Port) { p.UplinkPortFEC = new("") }, "ports[0].uplink_port_fec: is required: one of firecode, none, rs"),
		"another FEC":    port(func(p *wire.Port) { p.UplinkPortFEC = new("RS") }, `ports[0].uplink_port_fec: must be one of firecode, none, rs`),
		"no lists": port(func(p *wire.Port) { p.Addresses, p.Routes, p.BGPPeers = nil, nil, nil },
			"ports[0].addresses: is required: a list, [] for none", "ports[0].routes: is required: a list, [] for none",
			"ports[0].bgp_peers: is required: a list, [] for none"),
		"no LLDP status":      port(func(p *wire.Port) { p.LLDP = &wire.LLDP{} }, "ports[0].lldp.status: is required: one of enabled, disabled, rx_only, tx_only"),
		"another LLDP status": port(func(p *wire.Port) { p.LLDP.Status = "on" }, `ports[0].lldp.status: must be one of enabled, disabled, rx_only, tx_only`),
		"LLDP address": port(func(p *wire.Port) { p.LLDP.ManagementAddrs[1] = "x" },
			`ports[0].lldp.management_addrs[1]: must be an IPv4 or IPv6 address`),
		"LLDP text": port(func(p *wire.Port) { p.LLDP.SystemName = new(strings.Repeat("x", 256)) },
			"ports[0].lldp.system_name: must be at most 255 bytes; got 256"),
	})
}

func TestCheckNetwork_Addresses(t *testing.T) {
	ipNet := func(s string, want ...string) wrongRequest {
		return inNetwork(func(c *network) { c.Ports[0].Addresses[0].Address.IPNet = s }, want...)
	}
	const field, form = "ports[0].addresses[0].address.ip_net", "an address with its prefix length, as in 192.0.2.7/24"
	overlaps := func(s string) wrongRequest {
		return ipNet(s, "rack_subnet: overlaps the network of ^"+field, field+": is of a network that overlaps ^rack_subnet")
	}
	vlan := func(id uint16) wrongRequest {
		return inNetwork(func(c *network) { c.Ports[0].Addresses[2].VLANID = &id }, "ports[0].addresses[2].vlan_id: must be 1 to 4094")
	}
	checkWrong(t, map[string]wrongRequest{
		"no type": inNetwork(func(c *network) { c.Ports[0].Addresses[0].Address.Type = "" },
			"ports[0].addresses[0].address.type: is required: one of addrconf, static"),
		"another type": inNetwork(func(c *network) { c.Ports[0].Addresses[0].Address.Type = "dhcp" },
			`ports[0].addresses[0].address.type: must be one of addrconf, static`),
		"addrconf with a network": inNetwork(func(c *network) { c.Ports[0].Addresses[2].Address.IPNet = "192.0.2.12/24" },
			"ports[0].addresses[2].address.ip_net: must be left out of an address of type addrconf"),
		"static without one": ipNet("", field+": is required: "+form),
		"no prefix length":   ipNet("192.0.2.12", field+": must be "+form),
		"prefix too long":    ipNet("192.0.2.12/33", field+": must be "+form),
		"no address":         ipNet("banana/24", field+": must be "+form),
		"mapped":             ipNet("::ffff:192.0.2.12/120", field+": must be written as IPv4, 192.0.2.12"),
		"unspecified":        ipNet("::/64", field+": must be the address of one host"),
		"on two ports": ipNet("192.0.2.11/25", field+": is the same address as ^ports[1].addresses[0].address.ip_net",
			"ports[1].addresses[0].address.ip_net: is the same address as ^"+field),
		"twice on a port": ipNet("2001:0DB8::10/128", field+": is the same address as ^ports[0].addresses[1].address.ip_net",
			"ports[0].addresses[1].address.ip_net: is the same address as ^"+field),
		"in the rack subnet":  overlaps("fd00:1122:3344:2ff::1/64"),
		"around it":           overlaps("fd00:1122:3344::1/48"),
		"around all networks": overlaps("2001:db8::11/0"),
		"two in the rack subnet": inNetwork(func(c *network) {
			c.Ports[0].Addresses[0].Address.IPNet, c.Ports[1].Addresses[0].Address.IPNet = "fd00:1122:3344:200::1/64", "fd00:1122:3344:200::2/64"
		}, "rack_subnet: overlaps the network of ^"+field, field+": is of a network that overlaps ^rack_subnet",
			"ports[1].addresses[0].address.ip_net: is of a network that overlaps ^rack_subnet"),
		"vlan 0":     vlan(0),
		"vlan 4095":  vlan(4095),
		"vlan 65535": vlan(65535),
	})
}

// A wrong rack_subnet says nothing of what overlaps it.
func TestCheckNetwork_NothingOverlapsAWrongRackSubnet(t *testing.T) {
	r := fullRequest(t)
	r.RackNetworkConfig.RackSubnet = "::/0"
	if p := checkRequest(r); len(p) != 1 || p[0].Field != "rack_network_config.rack_subnet" {
		t.Errorf("%+v", p)
	}
}

func TestCheckNetwork_Routes(t *testing.T) {
	route := func(change func(r *wire.Route), want ...string) wrongRequest {
		return inNetwork(func(c *network) { change(&c.Ports[0].Routes[0]) }, want...)
	}
	const at = "ports[0].routes[0]."
	checkWrong(t, map[string]wrongRequest{
		"no destination": route(func(r *wire.Route) { r.Destination = "" }, at+"destination: is required: a network, as in 192.0.2.0/24"),
		"an address": route(func(r *wire.Route) { r.Destination = "10.0.0.1" },
			at+`destination: must be a network, as in 192.0.2.0/24`),
		"host bits":     route(func(r *wire.Route) { r.Destination = "10.1.2.3/8" }, at+"destination: must have no host bits: the network is 10.0.0.0/8"),
		"mapped":        route(func(r *wire.Route) { r.Destination = "::ffff:0.0.0.0/96" }, at+"destination: must be written as IPv4"),
		"no nexthop":    route(func(r *wire.Route) { r.Nexthop = "" }, at+"nexthop: is required: an IPv4 or IPv6 address"),
		"wrong nexthop": route(func(r *wire.Route) { r.Nexthop = "192.0.2.256" }, at+`nexthop: must be an IPv4 or IPv6 address`),
		"two families": route(func(r *wire.Route) { r.Nexthop = "fe80::1" },
			at+"destination: must be of the same family as ^"+at+"nexthop", at+"nexthop: must be of the same family as ^"+at+"destination"),
		"vlan 0":    route(func(r *wire.Route) { r.VLANID = new(uint16(0)) }, at+"vlan_id: must be 1 to 4094"),
		"vlan 4095": route(func(r *wire.Route) { r.VLANID = new(uint16(4095)) }, at+"vlan_id: must be 1 to 4094"),
	})
}
