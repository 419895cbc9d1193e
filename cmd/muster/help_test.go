package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	top := muster("--help")
	if top.code != exitOK || top.err != "" {
		t.Errorf("muster --help: %+v", top)
	}
	if bare := muster(); bare != top {
		t.Errorf("muster alone prints something else than muster --help: %+v", bare)
	}
	says(t, top, "muster up", "Exit codes: 0 success, 2 usage, 3 refused, 4 conflict, 5 unavailable")
	says(t, top, "sled Run on a sled", "sled unlock Prove")
	fields := reflect.VisibleFields(reflect.TypeFor[cli]())
	for _, f := range fields {
		name := strings.ToLower(f.Name)
		says(t, top, "\n  "+name)
		page := muster(name, "--help")
		if page.code != exitOK || page.err != "" || !strings.HasPrefix(page.out, "Usage: muster "+name) {
			t.Errorf("muster %s --help: %+v", name, page)
		}
		for line := range strings.Lines(page.out) {
			if len([]rune(line)) > 81 {
				t.Errorf("muster %s --help: a line of %d characters: %s", name, len(line), line)
			}
		}
		if _, ok := f.Type.FieldByName("connection"); ok {
			says(t, page, "--nats=URL", "$NATS_URL", "--creds=FILE", "$NATS_CREDS", "--context=NAME", "$NATS_CONTEXT")
		}
	}
	says(t, muster("call", "--help"), "Exit codes: 0 success, 2 usage, 3 refused, 4 conflict, 5 unavailable", "Muster-Request-Id")
	says(t, muster("up", "--help"), "127.0.0.1:4222", ".muster", httpDefault)
	says(t, muster("serve", "--help"), httpDefault, "SIGTERM")
	says(t, muster("hive", "--help"), "MUSTER_HIVE, MUSTER_AGENT and MUSTER_STATE")
	says(t, muster("sled", "--help"), "--part=P", "--serial=S", "--store=DIR", "--on-start=CMD", "--on-network=CMD", "--http=ADDR", "sled unlock", "MUSTER_SUBNET")
	says(t, muster("sled", "unlock", "--help"), "--part=P", "--timeout=10s", "never the secret")
	says(t, muster("bench", "--help"), benchBucket, "(default 3s)")
}

// says checks a help page for texts, however its lines are broken.
func says(t *testing.T, page result, texts ...string) {
	t.Helper()
	flat := strings.Join(strings.Fields(page.out), " ")
	for _, text := range texts {
		if !strings.Contains(page.out, text) && !strings.Contains(flat, text) {
			t.Errorf("%q is not in:\n%s", text, page.out)
		}
	}
}
