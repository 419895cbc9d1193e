package wire

// JoinRequest asks to bring a rack into the cluster: with these sleds, whose order means nothing, and this network. It is
// the body of start and of initialize.
type JoinRequest struct {
	TrustQuorumPeers  []Baseboard        `json:"trust_quorum_peers"`
	RackNetworkConfig *RackNetworkConfig `json:"rack_network_config"`
}
