package runtime

import (
	"slices"
	"testing"
)

// What passes between the accounts follows from what both sides may do: nothing else does, and nothing twice.
func TestBorderOf(t *testing.T) {
	functions := Permissions{
		Publish:   []string{"$KV.muster_racks.>", "muster.sled.*.*.prepare", "muster.sled.*.*.start"},
		Subscribe: []string{"muster.declare.view.* declare", "$SRV.PING", "_INBOX.function.*.>"},
		Answers:   true,
	}
	hive := Permissions{
		Publish:   []string{"$JS.API.CONSUMER.CREATE.KV_muster_wanted.*.$KV.muster_wanted.*", "$KV.muster_reported.*", "$SYS.REQ.USER.INFO"},
		Subscribe: []string{"_INBOX.hive.*.>"},
	}
	operator := Permissions{Publish: []string{"muster.declare.>", "muster.declare.view.*"}, Subscribe: []string{"_INBOX.operator.*.>"}}
	reader := Permissions{Publish: []string{"muster.declare.view.*"}, Subscribe: []string{"_INBOX.reader.*.>", "muster.event.>"}}
	sled := Permissions{
		Publish:   []string{"$KV.muster_sleds.*.*", "muster.sled.*.*.prepare", "_INBOX.function.>", "_INBOX.sled.>"},
		Subscribe: []string{"muster.sled.*.*.prepare sled", "muster.sled.*.*.start sled", "$SRV.PING", "_INBOX.sled.*.*.>"},
	}
	b := BorderOf([]Permissions{functions}, []Permissions{hive, operator, reader, sled})
	if want := []string{ // sleds ask each other in their own account
		"$JS.API.CONSUMER.CREATE.KV_muster_wanted.*.$KV.muster_wanted.*", "$JS.API.INFO", "$KV.muster_reported.*", "$KV.muster_sleds.*.*",
		"_INBOX.function.>", "muster.declare.>",
	}; !slices.Equal(b.Asked, want) {
		t.Errorf("asked %q, want %q", b.Asked, want)
	}
	if want := []string{"_INBOX.hive.*.>", "muster.event.>", "muster.sled.*.*.prepare", "muster.sled.*.*.start"}; !slices.Equal(b.Heard, want) {
		t.Errorf("heard %q, want %q", b.Heard, want)
	}
}
