package dns

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
)

// Lengths of a DNS name as it is written, without the last dot: 255 bytes with the length bytes and the root (RFC 1035).
const (
	maxDomain = 253
	maxLabel  = 63
)

var errName = errors.New("not a DNS name: labels of 1 to 63 letters, digits, _ or -, joined by dots, 253 characters at most")

// CheckName tells whether an SRV name can be asked for, with or without the last dot. Names that are not ASCII letters,
// digits, underscores and hyphens are refused although DNS could carry them. The error does not repeat the name.
func CheckName(name string) error {
	name = strings.TrimSuffix(name, ".")
	if len(name) > maxDomain {
		return errName
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || strings.ContainsFunc(label, notNameRune) {
			return errName
		}
	}
	return nil
}

var errServer = errors.New("not the address of a DNS server: an IP address and a port, IPv6 in brackets, as in [::1]:53")

// CheckServer tells whether addr can be asked: an IP literal with a port, IPv6 in brackets. A host name is refused, for
// it would need another DNS to be found. The error does not repeat the address.
func CheckServer(addr string) error {
	a, err := netip.ParseAddrPort(addr)
	if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() ||
		strings.ContainsFunc(a.Addr().Zone(), notZoneRune) {
		return errServer
	}
	return nil
}

func notNameRune(r rune) bool { return !alphanumeric(r) && r != '_' && r != '-' }
func notZoneRune(r rune) bool { return notNameRune(r) && r != '.' }

func alphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// maxName is the length of the longest backend name.
const maxName = 64

// giveNames names targets that differ in host or address. A name is the first label of the host, as short as it can be:
// where several would get the same, all of them get a longer one. So it depends on the set of targets alone.
func giveNames(targets []Target) {
	level := make([]int, len(targets))
	for {
		holders := map[string][]int{}
		for i := range targets {
			targets[i].Name = candidate(targets[i], level[i])
			holders[targets[i].Name] = append(holders[targets[i].Name], i)
		}
		again := false
		for _, same := range holders {
			if len(same) == 1 {
				continue
			}
			for _, i := range same {
				if level[i] < lastLevel {
					level[i]++
					again = true
				}
			}
		}
		if !again {
			return
		}
	}
}

// lastLevel is unique but for a collision of 128 bits of SHA-256.
const lastLevel = 5

// candidate is the name of a target by its level: mgs0, mgs0-v6, mgs0-80, mgs0-80-v6, mgs0-1f2e3d4c, and with more digits.
func candidate(t Target, level int) string {
	host, port := t.Host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host, port = host[:i], host[i+1:]
	}
	version := "-v4"
	if family(t.Address) == "AAAA" {
		version = "-v6"
	}
	sum := sha256.Sum256([]byte(t.Host + " " + t.Address))
	suffix := [...]string{
		"", version, "-" + port, "-" + port + version, "-" + hex.EncodeToString(sum[:4]), "-" + hex.EncodeToString(sum[:16]),
	}[level]
	label := nameLabel(host)
	return label[:min(len(label), maxName-len(suffix))] + suffix
}

// nameLabel is the first label of a host made to fit the pattern of names.
func nameLabel(host string) string {
	label, _, _ := strings.Cut(host, ".")
	label = strings.Map(func(r rune) rune {
		if notNameRune(r) {
			return '-'
		}
		return r
	}, label)
	label = strings.TrimLeft(label, "_-")
	if label == "" {
		return "backend"
	}
	return label
}
