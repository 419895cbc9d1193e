package wire_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"muster/wire"
)

// The names of field report B124, and their kin.
var noNames = map[string]string{
	"empty": "", "space": "a b", "two dots": "a..b", "leading dot": ".a", "trailing dot": "a.", "star": "*", "greater": ">",
	"colon": "a:b", "letter with accent": "é", "dollar": "$KV", "underscore alone": "_", "leading underscore": "_req",
	"leading hyphen": "-a", "slash": "a/b", "tab": "a\tb", "CR LF": "a\r\n", "trailing line feed": "a\n",
	"Cyrillic a": "\u0430", "NUL": "a\x00", "DEL": "a\x7f", "broken UTF-8": "a\xff", "full-width digit": "\uff11",
	"65 bytes": strings.Repeat("a", 65), "4 KB": strings.Repeat("a", 4096), "zero-width joiner": "a\u200db",
}

func TestField_B124_Names(t *testing.T) {
	for what, name := range noNames {
		err := wire.CheckName("hive", name)
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != wire.InvalidRequest {
			t.Errorf("%s: %q is taken for a name: %v", what, name, err)
			continue
		}
		if e.Details["field"] != "hive" || e.Message != "hive is not a name: it must match ^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" {
			t.Errorf("%s: field %v, message %q; want the field and the pattern, and nothing of the name", what, e.Details["field"], e.Message)
		}
	}
	for _, name := range []string{"a", "Z", "0", "h1", "913-0000019", "2FAKE003", "a_b-c", "a-", "a_", strings.Repeat("a", 64)} {
		if err := wire.CheckName("hive", name); err != nil {
			t.Errorf("%q is a name: %v", name, err)
		}
	}
}

// ValidName is written by hand for speed; the pattern is what we promise.
func TestValidName_IsThePattern(t *testing.T) {
	pattern := regexp.MustCompile(wire.NamePattern)
	check := func(s string) {
		if got, want := wire.ValidName(s), pattern.MatchString(s); got != want {
			t.Fatalf("ValidName(%q) = %v, the pattern says %v", s, got, want)
		}
	}
	for a := range 256 {
		check(string([]byte{byte(a)}))
		check(strings.Repeat("x", 63) + string([]byte{byte(a)}))
		for _, b := range []byte("a0_-. *>$/\n\xc3") {
			check(string([]byte{byte(a), b}))
			check(string([]byte{b, byte(a)}))
			check(string([]byte{b, byte(a), b}))
		}
	}
	for n := range 130 {
		check(strings.Repeat("b", n))
	}
}

func TestValidRequestID_Is1To64OfTheNameAlphabet(t *testing.T) {
	for _, id := range []string{"a", "_", "-", "-_-", strings.Repeat("_", 64)} {
		if !wire.ValidRequestID(id) {
			t.Errorf("%q is a request id", id)
		}
	}
	for _, id := range []string{"", strings.Repeat("a", 65), "a.b", "a b", "a*", ">", "é", "a\n", "a\x00"} {
		if wire.ValidRequestID(id) {
			t.Errorf("%q is no request id", id)
		}
	}
}

func TestState_OnlyTheFourOfTheContractAreValid(t *testing.T) {
	want := []wire.State{"up", "offline", "paused", "destroyed"}
	have := wire.States()
	if len(have) != len(want) {
		t.Fatalf("States() = %v, want %v", have, want)
	}
	for i, s := range want {
		if have[i] != s || !s.Valid() {
			t.Errorf("%s is missing or not valid", s)
		}
	}
	for _, s := range []wire.State{"", "UP", "Up", " up", "unknown", wire.StateUnknown, "down", "up\n"} {
		if s.Valid() {
			t.Errorf("%q is no state that can be declared", s)
		}
	}
}
