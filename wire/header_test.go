package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"muster/wire"
)

// Vectors of the bindings of CloudEvents 1.0: https://github.com/cloudevents/spec, "HTTP Header Values", and field report
// B104.
var headerVectors = map[string]string{
	"":                     "",
	"h1":                   "h1",
	"rack é 1":             "rack%20%C3%A9%201",
	"Euro € 😀":             "Euro%20%E2%82%AC%20%F0%9F%98%80",
	`say "hi"`:             "say%20%22hi%22",
	"100%":                 "100%25",
	"%20":                  "%2520",
	"a\tb\r\nc":            "a%09b%0D%0Ac",
	"\x00\x1f\x7f":         "%00%1F%7F",
	"!#$&'()*+,-./:;<=>?@": "!#$&'()*+,-./:;<=>?@",
	"[\\]^_`{|}~":          "[\\]^_`{|}~",
	"a%2":                  "a%252",
}

func TestHeader_Vectors(t *testing.T) {
	for plain, encoded := range headerVectors {
		if got := wire.EncodeHeader(plain); got != encoded {
			t.Errorf("EncodeHeader(%q) = %q, want %q", plain, got, encoded)
		}
		if got, err := wire.DecodeHeader(encoded); err != nil || got != plain {
			t.Errorf("DecodeHeader(%q) = %q, %v, want %q", encoded, got, err, plain)
		}
	}
}

func TestDecodeHeader_AcceptsWhatOthersWrite(t *testing.T) {
	for in, want := range map[string]string{
		"rack%20%c3%a9%201": "rack é 1", // hexadecimal in small letters
		"rack é 1":          "rack é 1", // nothing encoded at all, as the Go SDK writes it
		"%41%42":            "AB",       // more encoded than needed
		"é%20é":             "é é",
	} {
		if got, err := wire.DecodeHeader(in); err != nil || got != want {
			t.Errorf("DecodeHeader(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestDecodeHeader_RefusesWhatIsBroken(t *testing.T) {
	for _, in := range []string{"%", "a%", "a%4", "%4g", "%g4", "% 4", "%%20", "%C3", "%C3%28", "%ED%A0%80", "\xff", "a\xc3", "%41\xff"} {
		if got, err := wire.DecodeHeader(in); err == nil {
			t.Errorf("DecodeHeader(%q) = %q, want an error", in, got)
		}
	}
}

func TestHeader_EveryCharacterComesBackAndIsSafeOnTheWay(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= utf8.MaxRune; r += 1 + r/512 { // every one at first, then ever fewer
		if utf8.ValidRune(r) {
			all.WriteRune(r)
		}
	}
	encoded := wire.EncodeHeader(all.String())
	for i := range len(encoded) {
		if c := encoded[i]; c <= ' ' || c > '~' || c == '"' {
			t.Fatalf("byte %#x at %d of an encoded header", c, i)
		}
	}
	if got, err := wire.DecodeHeader(encoded); err != nil || got != all.String() {
		t.Fatalf("what was encoded does not come back: %v", err)
	}
}
