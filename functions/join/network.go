package join

import (
	"net/netip"
	"strings"

	"muster/wire"
)

const (
	maxPortName = 64
	maxLLDPText = 255 // what LLDP can carry of a description
	maxVLAN     = 4094
)

// checkNetwork lists what is wrong with a rack's network config.
func checkNetwork(l *problems, path string, c *wire.RackNetworkConfig) {
	n := networkCheck{
		problems: l, asns: map[uint32]bool{}, addresses: firsts[netip.Addr]{}, ports: firsts[portOfSwitch]{},
	}
	for _, b := range c.BGP {
		n.asns[b.ASN] = true
	}
	n.subnets(path, c)
	if len(c.Ports) == 0 {
		l.add(path+".ports", "must be a list of at least one port")
	}
	for i := range c.Ports {
		n.port(element(path+".ports", i), &c.Ports[i])
	}
	n.routers(path+".bgp", c.BGP)
	n.sessions(path+".bfd", c.BFD)
}

// networkCheck is a config being checked: what one part of it has to know of the others.
type networkCheck struct {
	*problems
	rack      netip.Prefix // the zero value while rack_subnet is wrong
	rackField string
	rackTold  bool // that an uplink address overlaps it
	asns      map[uint32]bool
	addresses firsts[netip.Addr]
	ports     firsts[portOfSwitch]
}

type portOfSwitch struct{ switchSlot, port string }

// host adds what is wrong with an address. It returns false when the address is not to be used further.
func (n *networkCheck) host(field, s string) (netip.Addr, bool) {
	a, err := parseHost(s)
	if err != nil {
		n.add(field, "%v", err)
	}
	return a, err == nil
}

// net does so with a network.
func (n *networkCheck) net(field, s string) (netip.Prefix, bool) {
	p, err := parseNet(s)
	if err != nil {
		n.add(field, "%v", err)
	}
	return p, err == nil
}

// nets does so with each of a list.
func (n *networkCheck) nets(path string, list []string) {
	for i, s := range list {
		n.net(element(path, i), s)
	}
}

// sameFamily wants two addresses of one family.
func (n *networkCheck) sameFamily(a string, x netip.Addr, b string, y netip.Addr) bool {
	same := x.Is4() == y.Is4()
	if !same {
		n.pair(a, b, "must be of the same family as")
	}
	return same
}

func (n *networkCheck) vlan(path string, id *uint16) {
	within(n.problems, path+".vlan_id", id, 1, maxVLAN)
}

func (n *networkCheck) switchSlot(path, s string) bool {
	return n.oneOf(path+".switch", s, "switch0", "switch1")
}

func (n *networkCheck) portName(field, s string) bool {
	ok := printable(s, maxPortName) && !strings.Contains(s, " ")
	if !ok {
		n.add(field, "must be 1 to %d printable ASCII characters without spaces", maxPortName)
	}
	return ok
}

// subnets checks the rack's subnet and the range of addresses for its infrastructure.
func (n *networkCheck) subnets(path string, c *wire.RackNetworkConfig) {
	n.rackField = path + ".rack_subnet"
	rack, err := parseRackSubnet(c.RackSubnet)
	if err != nil {
		n.add(n.rackField, "%v", err)
	} else {
		n.rack = rack
	}
	from, to := path+".infra_ip_first", path+".infra_ip_last"
	a, ok1 := n.host(from, c.InfraIPFirst)
	b, ok2 := n.host(to, c.InfraIPLast)
	if !ok1 || !ok2 || !n.sameFamily(from, a, to, b) {
		return
	}
	if b.Less(a) {
		n.add(from, "must not be after %s", to)
		n.add(to, "must not be before %s", from)
		return
	}
	if n.rack.IsValid() && a.Is6() && !lastAddr(n.rack).Less(a) && !b.Less(n.rack.Addr()) {
		n.add(n.rackField, "overlaps the range of %s and %s", from, to)
		n.add(from, "begins a range that overlaps %s", n.rackField)
		n.add(to, "ends a range that overlaps %s", n.rackField)
	}
}

func (n *networkCheck) port(path string, p *wire.Port) {
	named := n.portName(path+".port", p.Port)
	if n.switchSlot(path, p.Switch) && named {
		n.ports.see(n.problems, portOfSwitch{p.Switch, p.Port}, path+".port", "is the same port of the same switch as")
	}
	n.link(path, p)
	given(n.problems, path+".addresses", p.Addresses)
	for i := range p.Addresses {
		n.address(element(path+".addresses", i), &p.Addresses[i])
	}
	given(n.problems, path+".routes", p.Routes)
	for i := range p.Routes {
		n.route(element(path+".routes", i), &p.Routes[i])
	}
	n.peers(path+".bgp_peers", p.BGPPeers)
}

// link checks how a port speaks to the other end of its cable.
func (n *networkCheck) link(path string, p *wire.Port) {
	n.oneOf(path+".uplink_port_speed", p.UplinkPortSpeed, "speed0_g", "speed1_g", "speed10_g", "speed25_g", "speed40_g",
		"speed50_g", "speed100_g", "speed200_g", "speed400_g")
	if p.UplinkPortFEC != nil {
		n.oneOf(path+".uplink_port_fec", *p.UplinkPortFEC, "firecode", "none", "rs")
	}
	if p.LLDP == nil {
		return
	}
	path += ".lldp"
	n.oneOf(path+".status", p.LLDP.Status, "enabled", "disabled", "rx_only", "tx_only")
	for i, s := range p.LLDP.ManagementAddrs {
		n.host(element(path+".management_addrs", i), s)
	}
	for _, t := range []struct {
		member string
		value  *string
	}{
		{"chassis_id", p.LLDP.ChassisID},
		{"port_id", p.LLDP.PortID},
		{"port_description", p.LLDP.PortDescription},
		{"system_name", p.LLDP.SystemName},
		{"system_description", p.LLDP.SystemDescription},
	} {
		if t.value != nil && len(*t.value) > maxLLDPText {
			n.add(path+"."+t.member, "must be at most %d bytes; got %d", maxLLDPText, len(*t.value))
		}
	}
}

// address checks an uplink address. An IP may be on one port once; two VLANs do not make two of it.
func (n *networkCheck) address(path string, a *wire.UplinkAddress) {
	n.vlan(path, a.VLANID)
	field := path + ".address.ip_net"
	if !n.oneOf(path+".address.type", a.Address.Type, "addrconf", "static") {
		return
	}
	if a.Address.Type == "addrconf" {
		if a.Address.IPNet != "" {
			n.add(field, "must be left out of an address of type addrconf")
		}
		return
	}
	p, err := parseHostNet(a.Address.IPNet)
	if err != nil {
		n.add(field, "%v", err)
		return
	}
	n.addresses.see(n.problems, p.Addr(), field, "is the same address as")
	if n.rack.IsValid() && n.rack.Overlaps(p) {
		if !n.rackTold {
			n.rackTold = true
			n.add(n.rackField, "overlaps the network of %s", field)
		}
		n.add(field, "is of a network that overlaps %s", n.rackField)
	}
}

func (n *networkCheck) route(path string, r *wire.Route) {
	n.vlan(path, r.VLANID)
	dest, ok1 := n.net(path+".destination", r.Destination)
	hop, ok2 := n.host(path+".nexthop", r.Nexthop)
	if ok1 && ok2 {
		n.sameFamily(path+".destination", dest.Addr(), path+".nexthop", hop)
	}
}
