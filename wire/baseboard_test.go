package wire_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"muster/wire"
)

func TestBaseboardPrintsAndParsesBack(t *testing.T) {
	b := wire.Baseboard{PartNumber: "913-0000019", SerialNumber: "2FAKE003"}
	if got := b.String(); got != "913-0000019:2FAKE003" {
		t.Errorf("String() = %q", got)
	}
	back, err := wire.ParseBaseboard(b.String())
	if err != nil || back != b {
		t.Errorf("ParseBaseboard = %v, %v", back, err)
	}
}

func TestBaseboardJSONIsTheContracts(t *testing.T) {
	got, err := json.Marshal(wire.Baseboard{PartNumber: "913-0000019", SerialNumber: "2FAKE003"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"part_number":"913-0000019","serial_number":"2FAKE003"}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParseBaseboardNamesTheFieldAtFault(t *testing.T) {
	long := strings.Repeat("a", 65)
	for text, field := range map[string]string{
		"":            "part_number",
		":s":          "part_number",
		"-p:s":        "part_number",
		"a b:s":       "part_number",
		"p\n:s":       "part_number",
		"é:s":         "part_number",
		long + ":s":   "part_number",
		"p":           "serial_number",
		"p:":          "serial_number",
		"p:s:t":       "serial_number",
		"p:s.t":       "serial_number",
		"p:s\n":       "serial_number",
		"p:\u0430":    "serial_number",
		"p:*":         "serial_number",
		"p:" + long:   "serial_number",
		"p:" + "_abc": "serial_number",
	} {
		_, err := wire.ParseBaseboard(text)
		var name *wire.NameError
		if !errors.As(err, &name) || name.Field != field {
			t.Errorf("ParseBaseboard(%q): %v, want a NameError for %s", text, err, field)
			continue
		}
		if want := field + `: must match ^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`; err.Error() != want {
			t.Errorf("ParseBaseboard(%q) says %q, want %q", text, err, want)
		}
	}
}

func TestBaseboardOrderIsPartThenSerial(t *testing.T) {
	want := []wire.Baseboard{{"A", "z"}, {"B", "1"}, {"B", "10"}, {"B", "2"}, {"a", "0"}}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, wire.Baseboard.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("sorted %v, want %v", got, want)
	}
}
