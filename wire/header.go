package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// EncodeHeader percent-encodes the value of a CloudEvents attribute for a header, as the bindings for NATS and HTTP have
// it: a space, a double quote, a percent sign and everything outside printable ASCII, as the bytes of UTF-8.
func EncodeHeader(s string) string {
	plain := true
	for i := range len(s) {
		if mustEncode(s[i]) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; mustEncode(c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEncode(c byte) bool { return c <= ' ' || c == '"' || c == '%' || c > '~' }

// DecodeHeader undoes [EncodeHeader]. It fails on a broken escape and on what is not UTF-8.
func DecodeHeader(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && utf8.ValidString(s) {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
			return "", fmt.Errorf("a percent sign that is not followed by two hexadecimal digits")
		}
		b = append(b, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
		i += 2
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("not UTF-8")
	}
	return string(b), nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
