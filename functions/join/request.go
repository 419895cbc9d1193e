package join

import (
	"slices"

	"muster/wire"
)

// maxPeers bounds what a record has to hold. How many sleds make a quorum is not judged here: that is a state of the rack,
// not a fault of the request.
const maxPeers = 256

// checkRequest lists everything that is wrong with r, at most maxProblems and one entry that counts the rest; nil when
// nothing is. Of two fields that do not go together each gets an entry naming the other. Keys are never repeated.
func checkRequest(r *wire.JoinRequest) []wire.Problem {
	var l problems
	checkPeers(&l, "trust_quorum_peers", r.TrustQuorumPeers)
	if r.RackNetworkConfig == nil {
		l.add("rack_network_config", "is required")
	} else {
		checkNetwork(&l, "rack_network_config", r.RackNetworkConfig)
	}
	return l.all()
}

func checkPeers(l *problems, path string, peers []wire.Baseboard) {
	given(l, path, peers)
	if len(peers) > maxPeers {
		l.add(path, "must be at most %d sleds; got %d", maxPeers, len(peers))
		return
	}
	seen := firsts[wire.Baseboard]{}
	for i, b := range peers {
		at := element(path, i)
		part, serial := wire.ValidName(b.PartNumber), wire.ValidName(b.SerialNumber)
		if !part {
			l.add(at+".part_number", "must match %s", wire.NamePattern)
		}
		if !serial {
			l.add(at+".serial_number", "must match %s", wire.NamePattern)
		}
		if part && serial {
			seen.see(l, b, at, "is the same sled as")
		}
	}
}

// normal is r in the one form that all requests equal to it have, as a copy: peers in baseboard order, the config as
// normalConfig has it.
func normal(r *wire.JoinRequest) *wire.JoinRequest {
	peers := append([]wire.Baseboard{}, r.TrustQuorumPeers...)
	slices.SortFunc(peers, wire.Baseboard.Compare)
	return &wire.JoinRequest{TrustQuorumPeers: peers, RackNetworkConfig: normalConfig(r.RackNetworkConfig)}
}
