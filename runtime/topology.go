package runtime

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/wire"
)

// history is how many revisions of a key a bucket of record keeps: enough that the events stream, which reads them from
// the bucket, is not overtaken by a hot key while it starts or changes its leader. More would not bind as a KV bucket.
const history = 256

// bucketDuplicates is how long a bucket remembers the message ids of what becomes an event, which are for the events stream:
// the shortest that the server takes, since an id remembered costs it some 200 bytes. A write that is sent again is told
// by the revision that it follows.
const bucketDuplicates = 100 * time.Millisecond

// BucketSpec is what a bucket is made with.
type BucketSpec struct {
	Name        string
	Description string
	Names       int    // how many names a key is made of, with dots between them; 0 means 1
	Record      bool   // of record: every revision counts. Read from the leader, written in atomic batches
	Leases      bool   // keys expire and are gone when nobody renews them. Read and written likewise
	EventType   string // CloudEvents type of a revision of a bucket of record
}

// Wanted and Reported are declare's buckets.
var (
	Wanted = BucketSpec{
		Name: wire.BucketWanted, Record: true, EventType: wire.EventHiveDeclared,
		Description: "what each hive should run; key: hive",
	}
	Reported = BucketSpec{Name: wire.BucketReported, Description: "what each hive runs; key: hive"}
)

// Racks, Networks and Sleds are join's buckets.
var (
	Racks = BucketSpec{
		Name: wire.BucketRacks, Record: true, EventType: wire.EventRackChanged,
		Description: "how far each rack has joined; key: rack",
	}
	Networks = BucketSpec{
		Name: wire.BucketNetworks, Names: 2, Record: true,
		Description: "accepted network configs, never changed, may hold secrets; key: rack.generation",
	}
	Sleds = BucketSpec{Name: wire.BucketSleds, Names: 2, Description: "sleds that answer, gone after 30 s of silence; key: part.serial"}
)

// Services, Backends and Resolved are resolve's buckets.
var (
	Services = BucketSpec{
		Name: wire.BucketServices, Record: true, EventType: wire.EventResolved,
		Description: "source and last answer of each service; key: service",
	}
	Backends = BucketSpec{
		Name: wire.BucketBackends, Names: 2, Leases: true,
		Description: "leases of the backends that registered; key: service.backend",
	}
	Resolved = BucketSpec{
		Name: wire.BucketResolved, Leases: true,
		Description: "answer of each service while a replica resolves it; key: service",
	}
)

// eventful are the buckets whose revisions are events.
var eventful = []BucketSpec{Wanted, Racks, Services}

func (b BucketSpec) names() int { return max(b.Names, 1) }

// stream is the configuration of the stream behind the bucket.
func (b BucketSpec) stream(replicas int) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:              wire.BucketStream(b.Name),
		Description:       b.Description,
		Subjects:          []string{wire.BucketSubjects(b.Name)},
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage,
		Replicas:          max(replicas, 1),
		Duplicates:        2 * time.Minute,
		DenyDelete:        true,
		AllowRollup:       b.Record || b.Leases, // what hives and sleds write: one that may write its key could have all keys go
		AllowMsgTTL:       true,
		AllowDirect:       !b.Record && !b.Leases,
	}
	if b.Record {
		c.MaxMsgsPerSubject = history
		c.AllowAtomicPublish = true
	}
	if b.EventType != "" {
		c.Duplicates = bucketDuplicates
	}
	if b.Leases { // history 1: an older revision would come back when the last one expires
		c.AllowAtomicPublish = true
		c.SubjectDeleteMarkerTTL = time.Second // tells watchers; more would lengthen shorter leases
	}
	return c
}

// Topology lists the streams that functions keep what they know in, as they make them, by name.
func Topology(fns []Function, replicas int) []jetstream.StreamConfig {
	all := map[string]jetstream.StreamConfig{}
	for _, fn := range fns {
		for _, use := range fn.Buckets {
			c := use.Bucket.stream(replicas)
			all[c.Name] = c
		}
		for _, spec := range fn.streams() {
			all[spec.Name] = spec.stream(replicas)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b jetstream.StreamConfig) int { return strings.Compare(a.Name, b.Name) })
}

// differences tells where a stream is not as the product would have made it, in words for an operator. More replicas
// than asked for, placement, limits of size and compression are the operator's to choose.
func differences(want, have jetstream.StreamConfig) []string {
	var d []string
	say := func(name string, want, have any) {
		if want != have {
			d = append(d, fmt.Sprintf("%s is %v, not %v", name, have, want))
		}
	}
	if !slices.Equal(want.Subjects, have.Subjects) {
		say("subjects", fmt.Sprint(want.Subjects), fmt.Sprint(have.Subjects))
	}
	if have.Replicas < want.Replicas {
		say("replicas", want.Replicas, have.Replicas)
	}
	say("history (max_msgs_per_subject)", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	say("retention", want.Retention, have.Retention)
	say("storage", want.Storage, have.Storage)
	say("discard", want.Discard, have.Discard)
	say("max_age", want.MaxAge, have.MaxAge)
	say("allow_direct", want.AllowDirect, have.AllowDirect)
	say("allow_msg_ttl", want.AllowMsgTTL, have.AllowMsgTTL)
	say("subject_delete_marker_ttl", want.SubjectDeleteMarkerTTL, have.SubjectDeleteMarkerTTL)
	say("allow_atomic", want.AllowAtomicPublish, have.AllowAtomicPublish)
	say("allow_rollup_hdrs", want.AllowRollup, have.AllowRollup)
	say("deny_delete", want.DenyDelete, have.DenyDelete)
	return d
}
