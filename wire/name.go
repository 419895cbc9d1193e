package wire

// NamePattern is the one pattern of every name: rack, hive, agent, service, backend, part number, serial number.
// Names are case-sensitive. They become tokens of subjects and keys, which is why a dot, a wildcard or a space is none
// of them, and why they are checked before any NATS call: a key of about 4 KB closes a NATS connection for good.
const NamePattern = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`

// maxName is the length of the longest name, in bytes.
const maxName = 64

// ValidName tells whether s matches [NamePattern].
func ValidName(s string) bool {
	return s != "" && s[0] != '_' && s[0] != '-' && validToken(s)
}

// ValidRequestID tells whether s can be a Muster-Request-Id: 1 to 64 bytes of the alphabet of names.
func ValidRequestID(s string) bool { return s != "" && validToken(s) }

func validToken(s string) bool {
	if len(s) > maxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// CheckName returns an InvalidRequest naming field and pattern when s is no name, and nil otherwise.
// It never repeats s: what a stranger sent does not go into errors and logs.
func CheckName(field, s string) error {
	if ValidName(s) {
		return nil
	}
	return Invalid(field, "%s is not a name: it must match %s", field, NamePattern)
}
