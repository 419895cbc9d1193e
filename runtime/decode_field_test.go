package runtime

import (
	"strings"
	"testing"
)

// A path that is too long is cut between characters: half of one would make an error that cannot be encoded, and so the
// refusal of a bad request a fault of ours.
func TestDecode_LongFieldIsCutBetweenCharacters(t *testing.T) {
	for shift := range 4 {
		for _, char := range []string{"é", "€", "😀"} {
			name := strings.Repeat("a", 190+shift) + strings.Repeat(char, 50)
			e := refusedBody(t, name, `{"`+name+`":1}`)
			if e == nil {
				return
			}
			field, _ := e.Details["field"].(string)
			if kept := strings.TrimSuffix(field, "…"); kept == field || !strings.HasPrefix(name, kept) || len(kept) < 190 {
				t.Errorf("details.field is %q", field)
			}
		}
	}
}
