package sled

import (
	"fmt"
	"net/netip"
	"slices"

	"muster/functions/join/quorum"
	"muster/wire"
)

// What is wrong with a request whatever the sled knows. Every check reports all problems at once.

type problems []wire.Problem

func (l *problems) add(field, format string, args ...any) {
	*l = append(*l, wire.Problem{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// addRules adds the rules that err says are broken, by name.
func (l *problems) addRules(prefix string, err error) {
	for _, b := range quorum.Broken(err) {
		l.add(prefix+b.Field, "%s (rule %s)", b.Problem, b.Rule)
	}
}

// addName adds a field that is no name.
func (l *problems) addName(field, value string) {
	if !wire.ValidName(value) {
		l.add(field, "must match %s", wire.NamePattern)
	}
}

// err is an InvalidRequest that lists them; nil when there is none.
func (l problems) err() error {
	if len(l) == 0 {
		return nil
	}
	more := ""
	if len(l) > 1 {
		more = fmt.Sprintf("; and %d more", len(l)-1)
	}
	return wire.Invalid(l[0].Field, "%s: %s%s", l[0].Field, l[0].Problem, more).With("problems", []wire.Problem(l))
}

func checkReconfigure(r quorum.Reconfigure) error {
	var l problems
	l.addRules("", quorum.CheckRackID("rack_id", r.RackID))
	l.addRules("", quorum.CheckEpoch("epoch", r.Epoch))
	if last := r.LastCommittedEpoch; last != nil && (*last < 1 || *last >= r.Epoch) {
		l.add("last_committed_epoch", "must be an epoch before the new one, or null")
	}
	l.addRules("", quorum.CheckMembers("members", r.Members))
	l.addRules("", quorum.CheckThreshold("threshold", r.Threshold, len(r.Members)))
	return l.err()
}

func checkPrepare(r quorum.Prepare) error {
	var l problems
	l.addRules("config.", r.Config.Validate())
	if r.Share == "" {
		l.add("share", "is required")
	}
	if quorum.CheckPublicKey(r.SenderKey) != nil {
		l.add("sender_key", "must be a NATS curve key, X…")
	}
	members, seen := r.Config.Baseboards(), map[wire.Baseboard]bool{}
	for i, k := range r.Keys {
		field := fmt.Sprintf("keys[%d]", i)
		switch {
		case !slices.Contains(members, k.Member):
			l.add(field, "is not of a member")
		case seen[k.Member]:
			l.add(field, "is of a member that was there before")
		case quorum.CheckPublicKey(k.Key) != nil:
			l.add(field, "must be a NATS curve key, X…")
		}
		seen[k.Member] = true
	}
	return l.err()
}

// checkEpochOf checks what names an epoch of a rack.
func checkEpochOf(rack string, epoch uint64) error {
	var l problems
	l.addRules("", quorum.CheckRackID("rack_id", rack))
	l.addRules("", quorum.CheckEpoch("epoch", epoch))
	return l.err()
}

func checkShare(r quorum.ShareRequest) error {
	var l problems
	l.addRules("", quorum.CheckRackID("rack_id", r.RackID))
	l.addRules("", quorum.CheckEpoch("epoch", r.Epoch))
	l.addName("requester.part_number", r.Requester.PartNumber)
	l.addName("requester.serial_number", r.Requester.SerialNumber)
	return l.err()
}

// startSchema is the one form of start requests that is known.
const startSchema = 1

func checkStart(r wire.StartSled) error {
	var l problems
	if r.SchemaVersion != startSchema {
		l.add("schema_version", "must be %d", startSchema)
	}
	l.addName("body.id", r.Body.ID)
	l.addName("body.rack_id", r.Body.RackID)
	if p, err := netip.ParsePrefix(r.Body.Subnet.Net); err != nil || !p.Addr().Is6() || p.Bits() != 64 || p != p.Masked() {
		l.add("body.subnet.net", "must be an IPv6 /64 without host bits")
	}
	return l.err()
}

func checkNetwork(r wire.SledNetworkConfig) error {
	var l problems
	if r.Generation == 0 {
		l.add("generation", "must be 1 or more")
	}
	if r.Config == nil {
		l.add("config", "is required")
	}
	return l.err()
}

func checkForget(r wire.SledForget) error {
	var l problems
	l.addName("rack_id", r.RackID)
	return l.err()
}
