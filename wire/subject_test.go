package wire_test

import (
	"slices"
	"strings"
	"testing"

	"muster/wire"
)

func TestSubjects_AreThoseOfTheContract(t *testing.T) {
	for got, want := range map[string]string{
		wire.Subject(wire.Declare, "set", "h1", "atlas"):   "muster.declare.set.h1.atlas",
		wire.Subject(wire.Declare, "list"):                 "muster.declare.list",
		wire.Subject(wire.Join, "start", "r2"):             "muster.join.start.r2",
		wire.Subject(wire.Resolve, "lookup", "mgs"):        "muster.resolve.lookup.mgs",
		wire.RequestSubjects(wire.Declare, "set", 2):       "muster.declare.set.>",
		wire.RequestSubjects(wire.Declare, "list", 0):      "muster.declare.list",
		wire.FunctionSubjects(wire.Declare):                "muster.declare.>",
		wire.Service(wire.Declare):                         "muster-declare",
		wire.QueueGroup(wire.Declare):                      "declare",
		wire.SchemaID(wire.Declare, "set", "request"):      "muster.declare.set.request.v1",
		wire.CallSubject("declare.view.h1"):                "muster.declare.view.h1",
		wire.CallSubject("muster.declare.view.h1"):         "muster.declare.view.h1",
		wire.KeySubject(wire.BucketWanted, "h1"):           "$KV.muster_wanted.h1",
		wire.BucketSubjects(wire.BucketWanted):             "$KV.muster_wanted.>",
		wire.RecordSubjects(wire.BucketReported, 1):        "$KV.muster_reported.*",
		wire.BucketStream(wire.BucketWanted):               "KV_muster_wanted",
		wire.EventSource(wire.BucketWanted):                "/muster/muster_wanted",
		wire.MemoKey("set", []string{"h1", "atlas"}, "r1"): "_req.set.h1.atlas.r1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHeaderNames_AreThoseOfTheContract(t *testing.T) {
	for got, want := range map[string]string{
		wire.HeaderRequestID: "Muster-Request-Id", wire.HeaderTimeout: "Muster-Timeout",
		wire.HeaderAPIVersion: "Muster-Api-Version", wire.HeaderTraceparent: "traceparent",
		wire.HeaderError: "Nats-Service-Error", wire.HeaderErrorCode: "Nats-Service-Error-Code",
		wire.HeaderCEID: "ce-id", wire.HeaderCEType: "ce-type", wire.HeaderCESource: "ce-source",
		wire.HeaderCESubject: "ce-subject", wire.HeaderCESpecVersion: "ce-specversion", wire.HeaderCETime: "ce-time",
		wire.HeaderCEDataContentType: "ce-datacontenttype", wire.HeaderCEPrevious: "ce-previous",
		wire.HeaderCEChanges: "ce-changes", wire.HeaderCERequestID: "ce-requestid",
		wire.HeaderCECausationID: "ce-causationid", wire.HeaderCETraceparent: "ce-traceparent",
		wire.EventHiveDeclared: "muster.hive.declared.v1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSubject_IDsComeBack(t *testing.T) {
	for _, ids := range [][]string{{"h1"}, {"h1", "atlas"}, {"913-0000019", "2FAKE003"}, {"set", "set", "declare"}} {
		subject := wire.Subject(wire.Declare, "set", ids...)
		if got := wire.SubjectIDs(nil, subject, wire.Declare, "set"); !slices.Equal(got, ids) {
			t.Errorf("SubjectIDs(%q) = %q, want %q", subject, got, ids)
		}
	}
	for subject, want := range map[string][]string{
		"muster.declare.list":        nil, // no tokens behind the op
		"muster.declare.set..a":      {"", "a"},
		"muster.declare.set.h1.a.b":  {"h1", "a", "b"},
		"muster.declare.settle.h1.a": nil, // another op that begins alike
	} {
		op := "set"
		if strings.HasSuffix(subject, "list") {
			op = "list"
		}
		if got := wire.SubjectIDs(nil, subject, wire.Declare, op); !slices.Equal(got, want) {
			t.Errorf("SubjectIDs(%q) = %q, want %q", subject, got, want)
		}
	}
}

func TestSubject_KeysComeBack(t *testing.T) {
	for _, key := range []string{"h1", "913-0000019.2FAKE003", wire.MemoKey("set", []string{"h1", "a"}, "r1")} {
		if got := wire.SubjectKey(wire.BucketWanted, wire.KeySubject(wire.BucketWanted, key)); got != key {
			t.Errorf("key %q comes back as %q", key, got)
		}
	}
}

// A memo belongs to its subject, and can neither be a record nor be listed as one.
func TestMemoKey_IsOnlyItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, op := range []string{"set", "create", "apply"} {
		for _, ids := range [][]string{{"h1"}, {"h1", "a"}, {"a", "h1"}, {"h1", "r1"}} {
			for _, id := range []string{"r1", "r2", "_", "h1"} {
				key := wire.MemoKey(op, ids, id)
				what := strings.Join(append(append([]string{op}, ids...), id), " ")
				if other, taken := seen[key]; taken {
					t.Errorf("%q is the memo of %s and of %s", key, what, other)
				}
				seen[key] = what
				if wire.ValidName(key) || !strings.Contains(key, ".") {
					t.Errorf("memo key %q looks like a record's", key)
				}
			}
		}
	}
}

func TestIsInbox(t *testing.T) {
	for reply, want := range map[string]bool{
		"": false, "_INBOX.x": true, "_INBOX.hive.h1.x": true, "_R_.x": true, "answers": true, "mustered": true,
		"$KV.muster_wanted.h1": false, "$JS.ACK.KV_muster_wanted.c.1": false, "muster.declare.set.h1.a": false, "muster.trigger.x": false,
	} {
		if got := wire.IsInbox(reply); got != want {
			t.Errorf("IsInbox(%q) is %t", reply, got)
		}
	}
}
