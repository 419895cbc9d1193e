package join

import (
	"reflect"
	"slices"

	"muster/wire"
)

// redactedKey stands in place of every key that is shown.
const redactedKey = "[redacted]"

// normalConfig is c in the one form that all configs equal to it have, as a copy. Addresses and networks are spelled one
// way. What may be left out is left out when it says nothing: empty lists, empty texts, max_paths of 1, a policy that
// filters nothing. Lists that must be there are never nil. The order of a list is the operator's and stays.
func normalConfig(c *wire.RackNetworkConfig) *wire.RackNetworkConfig {
	c = cloneConfig(c)
	if c == nil {
		return nil
	}
	c.RackSubnet, c.InfraIPFirst, c.InfraIPLast = respelled(c.RackSubnet), respelled(c.InfraIPFirst), respelled(c.InfraIPLast)
	c.Ports, c.BGP, c.BFD = required(c.Ports), optional(c.BGP), optional(c.BFD)
	for i := range c.Ports {
		normalPort(&c.Ports[i])
	}
	for i := range c.BGP {
		b := &c.BGP[i]
		b.Originate, b.Checker, b.Shaper = respelledAll(required(b.Originate)), said(b.Checker), said(b.Shaper)
		if b.MaxPaths != nil && *b.MaxPaths == 1 {
			b.MaxPaths = nil
		}
	}
	for i := range c.BFD {
		b := &c.BFD[i]
		b.Remote = respelled(b.Remote)
		respell(b.Local)
	}
	return c
}

func normalPort(p *wire.Port) {
	p.Addresses, p.Routes, p.BGPPeers = required(p.Addresses), required(p.Routes), required(p.BGPPeers)
	for i := range p.Addresses {
		a := &p.Addresses[i].Address
		a.IPNet = respelled(a.IPNet)
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		r.Destination, r.Nexthop = respelled(r.Destination), respelled(r.Nexthop)
	}
	for i := range p.BGPPeers {
		b := &p.BGPPeers[i]
		b.Addr.TargetAddr = respelled(b.Addr.TargetAddr)
		respell(b.Addr.SrcAddr)
		b.AllowedExport, b.AllowedImport = normalPolicy(b.AllowedExport), normalPolicy(b.AllowedImport)
		b.Communities = optional(b.Communities)
	}
	if t := p.LLDP; t != nil {
		t.ManagementAddrs = respelledAll(optional(t.ManagementAddrs))
		t.ChassisID, t.PortID, t.PortDescription = said(t.ChassisID), said(t.PortID), said(t.PortDescription)
		t.SystemName, t.SystemDescription = said(t.SystemName), said(t.SystemDescription)
	}
	if p.TxEq != nil && *p.TxEq == (wire.TxEq{}) {
		p.TxEq = nil
	}
}

func normalPolicy(p *wire.RoutePolicy) *wire.RoutePolicy {
	switch {
	case p == nil:
	case p.Type == "no_filtering" && len(p.Value) == 0:
		return nil
	case p.Type == "allow":
		p.Value = respelledAll(required(p.Value))
	default:
		p.Value = respelledAll(optional(p.Value))
	}
	return p
}

func required[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func optional[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// said is nil for an empty text too.
func said(s *string) *string {
	if s != nil && *s == "" {
		return nil
	}
	return s
}

func respell(s *string) {
	if s != nil {
		*s = respelled(*s)
	}
}

func respelledAll(list []string) []string {
	for i := range list {
		list[i] = respelled(list[i])
	}
	return list
}

// sameConfig tells whether two configs say the same. They differ if only a key differs.
func sameConfig(a, b *wire.RackNetworkConfig) bool {
	return reflect.DeepEqual(normalConfig(a), normalConfig(b))
}

// redacted is a copy of c as replies may show it, with every key replaced. A key that is not there stays so.
func redacted(c *wire.RackNetworkConfig) *wire.RackNetworkConfig {
	c = cloneConfig(c)
	if c == nil {
		return nil
	}
	for i := range c.Ports {
		for j := range c.Ports[i].BGPPeers {
			if p := &c.Ports[i].BGPPeers[j]; p.MD5AuthKey != nil {
				*p.MD5AuthKey = redactedKey
			}
		}
	}
	return c
}

// cloneConfig is a copy that shares nothing with c.
func cloneConfig(c *wire.RackNetworkConfig) *wire.RackNetworkConfig {
	c = clone(c)
	if c == nil {
		return nil
	}
	c.Ports, c.BGP, c.BFD = slices.Clone(c.Ports), slices.Clone(c.BGP), slices.Clone(c.BFD)
	for i := range c.Ports {
		clonePort(&c.Ports[i])
	}
	for i := range c.BGP {
		b := &c.BGP[i]
		b.Originate, b.Checker, b.Shaper, b.MaxPaths = slices.Clone(b.Originate), clone(b.Checker), clone(b.Shaper), clone(b.MaxPaths)
	}
	for i := range c.BFD {
		c.BFD[i].Local = clone(c.BFD[i].Local)
	}
	return c
}

// clonePort parts p from the port that it was copied from.
func clonePort(p *wire.Port) {
	p.Addresses, p.Routes, p.BGPPeers = slices.Clone(p.Addresses), slices.Clone(p.Routes), slices.Clone(p.BGPPeers)
	for i := range p.Addresses {
		p.Addresses[i].VLANID = clone(p.Addresses[i].VLANID)
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		r.RIBPriority, r.VLANID = clone(r.RIBPriority), clone(r.VLANID)
	}
	for i := range p.BGPPeers {
		clonePeer(&p.BGPPeers[i])
	}
	p.UplinkPortFEC, p.LLDP, p.TxEq = clone(p.UplinkPortFEC), clone(p.LLDP), clone(p.TxEq)
	if t := p.LLDP; t != nil {
		t.ChassisID, t.PortID, t.PortDescription = clone(t.ChassisID), clone(t.PortID), clone(t.PortDescription)
		t.SystemName, t.SystemDescription = clone(t.SystemName), clone(t.SystemDescription)
		t.ManagementAddrs = slices.Clone(t.ManagementAddrs)
	}
	if t := p.TxEq; t != nil {
		t.Main, t.Post1, t.Post2, t.Pre1, t.Pre2 = clone(t.Main), clone(t.Post1), clone(t.Post2), clone(t.Pre1), clone(t.Pre2)
	}
}

func clonePeer(p *wire.BGPPeer) {
	p.Addr.RouterLifetime, p.Addr.SrcAddr = clone(p.Addr.RouterLifetime), clone(p.Addr.SrcAddr)
	for _, policy := range []**wire.RoutePolicy{&p.AllowedExport, &p.AllowedImport} {
		if *policy = clone(*policy); *policy != nil {
			(*policy).Value = slices.Clone((*policy).Value)
		}
	}
	p.Communities = slices.Clone(p.Communities)
	p.ConnectRetry, p.DelayOpen, p.IdleHoldTime = clone(p.ConnectRetry), clone(p.DelayOpen), clone(p.IdleHoldTime)
	p.HoldTime, p.Keepalive, p.MinTTL = clone(p.HoldTime), clone(p.Keepalive), clone(p.MinTTL)
	p.LocalPref, p.MultiExitDiscriminator = clone(p.LocalPref), clone(p.MultiExitDiscriminator)
	p.RemoteASN, p.VLANID, p.MD5AuthKey = clone(p.RemoteASN), clone(p.VLANID), clone(p.MD5AuthKey)
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
