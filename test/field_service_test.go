package test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

// microReply is what is said on $SRV, as its readers see it: pointers, so that what is missing or null shows.
type microReply struct {
	Type      string             `json:"type"`
	Name      string             `json:"name"`
	ID        string             `json:"id"`
	Version   string             `json:"version"`
	Metadata  *map[string]string `json:"metadata"`
	Endpoints []microEndpoint    `json:"endpoints"`
}

type microEndpoint struct {
	Name       string             `json:"name"`
	Subject    string             `json:"subject"`
	QueueGroup string             `json:"queue_group"`
	Metadata   *map[string]string `json:"metadata"`
	Requests   *int               `json:"num_requests"`
	Errors     *int               `json:"num_errors"`
	Average    *int64             `json:"average_processing_time"`
	Data       *struct {
		Requests uint64            `json:"requests"`
		Errors   map[string]uint64 `json:"errors"`
		NoReply  *uint64           `json:"no_reply"`
		Panics   *uint64           `json:"panics"`
	} `json:"data"`
}

var (
	microName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`) // of services and endpoints, ADR-32
	semVer    = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
)

func TestField_B038_ServiceDescribesItself(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	ids := map[string]bool{}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		id := micro(t, nc, "$SRV."+verb).ID
		for _, subject := range []string{"$SRV." + verb, "$SRV." + verb + ".muster-declare", "$SRV." + verb + ".muster-declare." + id} {
			m := micro(t, nc, subject)
			ids[m.ID] = true
			if want := "io.nats.micro.v1." + strings.ToLower(verb) + "_response"; m.Type != want {
				t.Errorf("%s: type %q, want %q", subject, m.Type, want)
			}
			if m.Name != "muster-declare" || !microName.MatchString(m.Name) || m.ID == "" {
				t.Errorf("%s: name %q, id %q", subject, m.Name, m.ID)
			}
			if !semVer.MatchString(m.Version) {
				t.Errorf("%s: version %q is not SemVer", subject, m.Version)
			}
			if m.Metadata == nil || len(*m.Metadata) == 0 {
				t.Errorf("%s: metadata is %v, must be an object that says something", subject, m.Metadata)
			}
		}
	}
	if len(ids) != 1 {
		t.Errorf("one replica has the ids %v", slices.Collect(maps.Keys(ids)))
	}
	ops := endpoints(t, nc)
	if got, want := slices.Sorted(maps.Keys(ops)), []string{"apply", "create", "list", "schema", "set", "status", "view"}; !slices.Equal(got, want) {
		t.Errorf("endpoints %v, want %v", got, want)
	}
	changing := map[string]string{"set": "true", "create": "true", "apply": "true"}
	schemas := schemasOf(t, nc)
	for name, e := range ops {
		if !microName.MatchString(name) {
			t.Errorf("endpoint name %q", name)
		}
		if e.QueueGroup != "declare" {
			t.Errorf("%s: queue group %q", name, e.QueueGroup)
		}
		if e.Metadata == nil {
			t.Errorf("%s: no metadata", name)
			continue
		}
		meta := *e.Metadata
		if want := changing[name]; meta["triggerable"] != want && !(want == "" && meta["triggerable"] == "false") {
			t.Errorf("%s: triggerable %q", name, meta["triggerable"])
		}
		if meta["request_schema"] == "" || meta["reply_schema"] == "" {
			t.Errorf("%s: metadata %v lacks schemas", name, meta)
		}
		if op, ok := schemas[name]; name != "schema" && (!ok || op.Request.ID != meta["request_schema"] || op.Reply.ID != meta["reply_schema"]) {
			t.Errorf("%s: metadata %v, but the schemas call themselves %q and %q", name, meta, op.Request.ID, op.Reply.ID)
		}
		a := ask(t, nc, requestSubject(e.Subject, schemas[name].Subject), "")
		t.Logf("%s: %.80s", a.subject, a.raw)
	}
}

// micro asks on $SRV, which with one replica gets one reply.
func micro(t *testing.T, nc *nats.Conn, subject string) microReply {
	t.Helper()
	msg, err := nc.Request(subject, nil, 5*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	var m microReply
	if err := json.Unmarshal(msg.Data, &m); err != nil {
		t.Fatalf("%s: %v: %s", subject, err, msg.Data)
	}
	return m
}

// endpoints are those of $SRV.INFO by name.
func endpoints(t *testing.T, nc *nats.Conn) map[string]microEndpoint {
	t.Helper()
	return endpointsOf(t, nc, "declare")
}

func endpointsOf(t *testing.T, nc *nats.Conn, function string) map[string]microEndpoint {
	t.Helper()
	ops := map[string]microEndpoint{}
	for _, e := range micro(t, nc, "$SRV.INFO.muster-"+function).Endpoints {
		ops[e.Name] = e
	}
	return ops
}

// opSchema is an op in the reply of muster.declare.schema.
type opSchema struct {
	Subject string   `json:"subject"`
	Errors  []string `json:"errors"`
	Request struct {
		ID         string `json:"$id"`
		Properties map[string]struct {
			Type string `json:"type"`
		} `json:"properties"`
		Required []string `json:"required"`
	} `json:"request"`
	Reply struct {
		ID string `json:"$id"`
	} `json:"reply"`
}

func schemasOf(t *testing.T, nc *nats.Conn) map[string]opSchema {
	t.Helper()
	return schemasIn(t, nc, "declare")
}

func schemasIn(t *testing.T, nc *nats.Conn, function string) map[string]opSchema {
	t.Helper()
	var s struct {
		Ops map[string]opSchema `json:"ops"`
	}
	ask(t, nc, "muster."+function+".schema", "").into(t, &s)
	return s.Ops
}

var idToken = regexp.MustCompile(`<[a-z]+>`)

// requestSubject is a subject that the endpoint listens on, with names for ids.
func requestSubject(endpoint, schema string) string {
	if schema == "" {
		return endpoint
	}
	return idToken.ReplaceAllString(schema, "h1")
}

// What was asked shows in STATS, as `nats micro stats` reads them.
func TestField_B038_StatsCount(t *testing.T) {
	s := natstest.Start(t)
	startReplica(t, s.URL(), "declare", 1)
	nc := natstest.Connect(t, s.URL())
	for range 3 {
		ask(t, nc, "muster.declare.set.h1.a", state("up")).ok(t)
	}
	for range 2 {
		ask(t, nc, "muster.declare.set.h1.a", "{}").refused(t, "InvalidRequest")
	}
	for _, e := range micro(t, nc, "$SRV.STATS.muster-declare").Endpoints {
		if e.Requests == nil || e.Errors == nil || e.Average == nil || e.Data == nil || e.Data.NoReply == nil || e.Data.Panics == nil {
			t.Errorf("%s: a member is missing: %+v", e.Name, e)
			continue
		}
		asked, failed := 0, uint64(0)
		if e.Name == "set" {
			asked, failed = 5, 2
		}
		if *e.Requests != asked || e.Data.Requests != uint64(asked) || e.Data.Errors["InvalidRequest"] != failed {
			t.Errorf("%s: %d and %+v, want %d requests, %d failed", e.Name, *e.Requests, *e.Data, asked, failed)
		}
	}
}
