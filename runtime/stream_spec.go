package runtime

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/wire"
)

// StreamSpec is what one of the product's own streams is made with.
type StreamSpec struct {
	Name    string
	config  func(*jetstream.StreamConfig)
	sources []BucketSpec // whose revisions it takes
}

// How long things are kept. An operator may change it, no difference is seen in that.
const (
	keepEvents   = 30 * 24 * time.Hour
	keepTriggers = 30 * 24 * time.Hour // those that nobody serves
	keepDead     = 90 * 24 * time.Hour
)

// dedupe is how long a dead letter, or the replay of one, is known again: longer than what was handed out and not
// settled takes to come back.
const dedupe = 24 * time.Hour

// eventsDuplicates is how long the events stream knows a revision again. Its new leader may take again what the last one
// took in its last moments; that must come within this time, and does: it takes up the buckets within half a minute.
const eventsDuplicates = 2 * time.Minute

// Events, Triggers and Dead are the streams.
var (
	Events = StreamSpec{Name: wire.StreamEvents, sources: eventful, config: func(c *jetstream.StreamConfig) {
		c.Description = "every revision of every record, an event each"
		c.MaxAge = keepEvents
		c.Duplicates = eventsDuplicates
		for _, b := range eventful {
			from, to := wire.EventTransform(b.Name, wire.EventKind(b.EventType))
			c.Sources = append(c.Sources, &jetstream.StreamSource{
				Name:              wire.BucketStream(b.Name),
				SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: from, Destination: to}},
			})
		}
		c.RePublish = &jetstream.RePublish{Source: wire.EventSubjects(), Destination: wire.EventSubjects()} // for nats sub
	}}
	Triggers = StreamSpec{Name: wire.StreamTriggers, config: func(c *jetstream.StreamConfig) {
		c.Description = "requests without a caller, until they are done"
		c.Subjects = []string{wire.AllTriggers()}
		c.Retention = jetstream.WorkQueuePolicy // what is done is gone: a consumer that is made anew repeats nothing
		c.Discard = jetstream.DiscardNew
		c.MaxAge = keepTriggers
		c.Duplicates = 10 * time.Minute
	}}
	Dead = StreamSpec{Name: wire.StreamDead, config: func(c *jetstream.StreamConfig) {
		c.Description = "triggers that failed for good; see muster dead --help"
		c.Subjects = []string{wire.DeadSubjects()}
		c.MaxAge = keepDead
		c.Duplicates = dedupe
	}}
)

// stream is the configuration to make it with.
func (s StreamSpec) stream(replicas int) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:              s.Name,
		MaxMsgsPerSubject: -1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Replicas:          max(replicas, 1),
		Duplicates:        2 * time.Minute,
		AllowDirect:       true,
	}
	s.config(&c)
	return c
}

// streamDifferences tells where a stream is not as the product would have made it. How long and how much it keeps is the
// operator's to choose, as in [differences].
func streamDifferences(want, have jetstream.StreamConfig) []string {
	have.MaxAge, have.AllowDirect, have.MaxMsgsPerSubject = want.MaxAge, want.AllowDirect, want.MaxMsgsPerSubject
	have.AllowMsgTTL, have.AllowAtomicPublish, have.AllowRollup = want.AllowMsgTTL, want.AllowAtomicPublish, want.AllowRollup
	d := differences(want, have)
	if len(want.Sources) > 0 && have.Duplicates < want.Duplicates {
		d = append(d, fmt.Sprintf("duplicate_window is %v, not %v: events may come twice", have.Duplicates, want.Duplicates))
	}
	for _, w := range want.Sources {
		if !takes(have.Sources, w) {
			d = append(d, fmt.Sprintf("it does not take %s as %s", w.SubjectTransforms[0].Source, w.SubjectTransforms[0].Destination))
		}
	}
	if len(have.Sources) > len(want.Sources) {
		d = append(d, fmt.Sprintf("it has %d sources, not %d", len(have.Sources), len(want.Sources)))
	}
	return d
}

// takes tells whether one of the sources is as wanted.
func takes(have []*jetstream.StreamSource, want *jetstream.StreamSource) bool {
	for _, h := range have {
		if h.Name == want.Name && len(h.SubjectTransforms) == 1 && h.SubjectTransforms[0] == want.SubjectTransforms[0] {
			return true
		}
	}
	return false
}
