package wire

// RackNetworkConfig is a rack's network, with the members of the join API that it speaks. Addresses and networks are
// strings here: whoever takes a config checks them all and names every problem at once. Members that may be left out are
// pointers or slices.
type RackNetworkConfig struct {
	RackSubnet   string    `json:"rack_subnet"` // IPv6 /56
	InfraIPFirst string    `json:"infra_ip_first"`
	InfraIPLast  string    `json:"infra_ip_last"`
	Ports        []Port    `json:"ports"`
	BGP          []BGP     `json:"bgp"`
	BFD          []BFDPeer `json:"bfd,omitempty"`
}

// Port is an uplink port.
type Port struct {
	Port            string          `json:"port"`
	Switch          string          `json:"switch"` // switch0, switch1
	Addresses       []UplinkAddress `json:"addresses"`
	Routes          []Route         `json:"routes"`
	BGPPeers        []BGPPeer       `json:"bgp_peers"`
	UplinkPortSpeed string          `json:"uplink_port_speed"` // speed0_g, speed1_g, … speed400_g
	UplinkPortFEC   *string         `json:"uplink_port_fec,omitempty"`
	Autoneg         bool            `json:"autoneg,omitempty"`
	AllowDDMTraffic bool            `json:"allow_ddm_traffic,omitempty"`
	LLDP            *LLDP           `json:"lldp,omitempty"`
	TxEq            *TxEq           `json:"tx_eq,omitempty"`
}

// UplinkAddress is an address of a port.
type UplinkAddress struct {
	Address AddressSource `json:"address"`
	VLANID  *uint16       `json:"vlan_id,omitempty"`
}

// AddressSource is where an uplink's address comes from.
type AddressSource struct {
	Type  string `json:"type"`             // addrconf, static
	IPNet string `json:"ip_net,omitempty"` // of a static one
}

// Route is a static route of a port.
type Route struct {
	Destination string  `json:"destination"`
	Nexthop     string  `json:"nexthop"`
	RIBPriority *uint8  `json:"rib_priority,omitempty"`
	VLANID      *uint16 `json:"vlan_id,omitempty"`
}

// BGP is a BGP router.
type BGP struct {
	ASN       uint32   `json:"asn"`
	Originate []string `json:"originate"`
	Checker   *string  `json:"checker,omitempty"`
	Shaper    *string  `json:"shaper,omitempty"`
	MaxPaths  *uint8   `json:"max_paths,omitempty"` // 1 to 32, default 1
}

// BGPPeer is a peer of a port. MD5AuthKey is a secret.
type BGPPeer struct {
	ASN                    uint32       `json:"asn"`
	Port                   string       `json:"port"`
	Addr                   BGPPeerAddr  `json:"addr"`
	AllowedExport          *RoutePolicy `json:"allowed_export,omitempty"`
	AllowedImport          *RoutePolicy `json:"allowed_import,omitempty"`
	Communities            []uint32     `json:"communities,omitempty"`
	ConnectRetry           *uint64      `json:"connect_retry,omitempty"`
	DelayOpen              *uint64      `json:"delay_open,omitempty"`
	EnforceFirstAS         bool         `json:"enforce_first_as,omitempty"`
	HoldTime               *uint64      `json:"hold_time,omitempty"`
	IdleHoldTime           *uint64      `json:"idle_hold_time,omitempty"`
	Keepalive              *uint64      `json:"keepalive,omitempty"`
	LocalPref              *uint32      `json:"local_pref,omitempty"`
	MD5AuthKey             *string      `json:"md5_auth_key,omitempty"`
	MinTTL                 *uint8       `json:"min_ttl,omitempty"`
	MultiExitDiscriminator *uint32      `json:"multi_exit_discriminator,omitempty"`
	RemoteASN              *uint32      `json:"remote_asn,omitempty"`
	VLANID                 *uint16      `json:"vlan_id,omitempty"`
}

// BGPPeerAddr is how a peer is reached.
type BGPPeerAddr struct {
	Type           string  `json:"type"`                      // unnumbered, numbered
	RouterLifetime *uint16 `json:"router_lifetime,omitempty"` // of an unnumbered one, 0 to 9000 s
	TargetAddr     string  `json:"target_addr,omitempty"`     // of a numbered one
	SrcAddr        *string `json:"src_addr,omitempty"`
}

// RoutePolicy is what is imported from or exported to a peer.
type RoutePolicy struct {
	Type  string   `json:"type"`           // no_filtering, allow
	Value []string `json:"value,omitzero"` // networks, of allow
}

// BFDPeer is a BFD session.
type BFDPeer struct {
	Remote             string  `json:"remote"`
	Local              *string `json:"local,omitempty"`
	Switch             string  `json:"switch"`
	Mode               string  `json:"mode"` // single_hop, multi_hop
	DetectionThreshold uint8   `json:"detection_threshold"`
	RequiredRx         uint64  `json:"required_rx"`
}

// LLDP is a port's part in LLDP.
type LLDP struct {
	Status            string   `json:"status"` // enabled, disabled, rx_only, tx_only
	ChassisID         *string  `json:"chassis_id,omitempty"`
	ManagementAddrs   []string `json:"management_addrs,omitempty"`
	PortDescription   *string  `json:"port_description,omitempty"`
	PortID            *string  `json:"port_id,omitempty"`
	SystemDescription *string  `json:"system_description,omitempty"`
	SystemName        *string  `json:"system_name,omitempty"`
}

// TxEq overrides a transceiver's equalization.
type TxEq struct {
	Main  *int32 `json:"main,omitempty"`
	Post1 *int32 `json:"post1,omitempty"`
	Post2 *int32 `json:"post2,omitempty"`
	Pre1  *int32 `json:"pre1,omitempty"`
	Pre2  *int32 `json:"pre2,omitempty"`
}

// Problem is one thing wrong with a request, in details.problems.
type Problem struct {
	Field   string `json:"field"` // dotted path, as in rack_network_config.ports[0].port
	Problem string `json:"problem"`
}
