package runtime

import (
	"maps"
	"slices"
	"time"

	"muster/wire"
)

// Permissions are what a NATS user must be let do to be somebody, and no more.
type Permissions struct {
	Publish   []string
	Subscribe []string // a subject, or a subject and a queue group with a space between them
	Answers   bool     // answer what it is asked, wherever that is to go, once and within [AnswerWithin]
}

// AnswerWithin is how long after a request its answer may be sent: the longest timeout a caller may ask for, and a little.
const AnswerWithin = timeoutMax + 5*time.Second

// PermissionsOf are those of a process that serves functions and has its answers sent to inboxes with a prefix. They
// follow from the functions' values alone.
func PermissionsOf(fns []Function, inbox string) Permissions {
	p := newGrants()
	p.subscribe(inbox + ".>")
	p.publish(wire.APIUserInfo)
	for i := range fns {
		p.function(&fns[i])
	}
	return p.permissions()
}

// CallerPermissions are those of one who has answers sent to inboxes with a prefix. With changes it asks for all ops of
// functions and touches no bucket; without it asks for those that change nothing, follows what is shown to callers, and
// hears events.
func CallerPermissions(fns []Function, changes bool, inbox string) Permissions {
	p := newGrants()
	p.subscribe(inbox + ".>")
	if !changes {
		p.subscribe(wire.EventSubjects())
	}
	for _, fn := range fns {
		for _, op := range append(slices.Clone(fn.Ops), schemaOp(fn)) {
			if changes || !op.Changes {
				p.publish(wire.RequestSubjects(fn.path(), op.Name, len(op.IDs)))
			}
		}
		for _, use := range fn.Buckets {
			if b := use.Bucket; use.Shown && !changes {
				p.publish(wire.APIConsumerCreate(wire.BucketStream(b.Name), "*", wire.RecordSubjects(b.Name, b.names())))
			}
		}
	}
	return p.permissions()
}

// TriggerPermissions are those of one who publishes triggers for functions, and has JetStream's acknowledgements sent to
// inboxes with a prefix.
func TriggerPermissions(fns []Function, inbox string) Permissions {
	p := newGrants()
	p.subscribe(inbox + ".>")
	for _, fn := range fns {
		for _, op := range fn.Ops {
			if op.Changes {
				p.publish(wire.TriggerSubjects(fn.Name, op.Name, len(op.IDs)))
			}
		}
	}
	return p.permissions()
}

// DeadPermissions are those of one who looks at dead triggers, publishes them once more and removes them.
func DeadPermissions(fns []Function, inbox string) Permissions {
	p := newGrants()
	p.subscribe(inbox + ".>")
	const stream = wire.StreamDead
	p.publish(wire.APIStreamInfo(stream), wire.APIMessageGet(stream), wire.APIDirectGet(stream), wire.APIMessageDelete(stream))
	for _, fn := range fns {
		p.publish(wire.TriggersOf(fn.Name))
	}
	return p.permissions()
}

// grants collects permissions.
type grants struct {
	pub, sub map[string]bool
	answers  bool
}

func newGrants() *grants { return &grants{pub: map[string]bool{}, sub: map[string]bool{}} }

func (g *grants) publish(subjects ...string) {
	for _, s := range subjects {
		g.pub[s] = true
	}
}

func (g *grants) subscribe(subjects ...string) {
	for _, s := range subjects {
		g.sub[s] = true
	}
}

func (g *grants) permissions() Permissions {
	return Permissions{
		Publish: slices.Sorted(maps.Keys(g.pub)), Subscribe: slices.Sorted(maps.Keys(g.sub)), Answers: g.answers,
	}
}

func (g *grants) function(fn *Function) {
	if len(fn.Ops) > 0 {
		// To be let answer is to be let publish wherever an asker says, and one can ask oneself. So that is for functions; what
		// there is one of each answers them, and its like.
		if len(fn.Instance) == 0 {
			g.answers = true
		} else {
			g.publish(wire.Inbox(wire.Functions)+".>", wire.Inbox(fn.Name)+".>")
		}
		g.subscribe(wire.DiscoverySubjects(fn.Name)...)
		for _, op := range append(slices.Clone(fn.Ops), schemaOp(*fn)) {
			g.subscribe(wire.RequestSubjects(fn.path(), op.Name, len(op.IDs)) + " " + wire.QueueGroup(fn.Name))
		}
	}
	if fn.checksCapture() {
		g.publish(wire.APIStreamNames)
	}
	for _, use := range fn.Buckets {
		g.bucket(use)
	}
	for _, spec := range fn.streams() {
		g.stream(spec)
	}
	if fn.triggerable() {
		g.queue(wire.DurableTriggers(fn.Name), wire.TriggersOf(fn.Name))
		g.publish(wire.DeadOf(fn.Name))
	}
	for _, key := range fn.Keys {
		if key.Writes {
			g.publish(wire.KeySubject(key.Bucket, key.Key))
		} else {
			g.publish(wire.APIConsumerCreate(wire.BucketStream(key.Bucket), "*", wire.KeySubject(key.Bucket, key.Key)))
		}
	}
	for _, ask := range fn.Asks {
		g.publish(ask.Subject)
	}
	for _, w := range fn.Workers {
		g.worker(w)
	}
}

// stream is what [Stream] does: it looks at it and makes it, and before it the buckets that it takes its messages from. One
// that stands still gets another leader.
func (g *grants) stream(spec StreamSpec) {
	g.publish(wire.APIStreamInfo(spec.Name), wire.APIStreamCreate(spec.Name))
	if len(spec.sources) > 0 {
		g.publish(wire.APILeaderStepDown(spec.Name))
	}
	for _, b := range spec.sources {
		stream := wire.BucketStream(b.Name)
		g.publish(wire.APIStreamInfo(stream), wire.APIStreamCreate(stream))
	}
}

// queue is what is done with the durable consumer that hands out triggers.
func (g *grants) queue(durable, filter string) {
	const stream = wire.StreamTriggers
	g.publish(
		wire.APIConsumerCreate(stream, durable, filter), wire.APIConsumerInfo(stream, durable),
		wire.APIConsumerNext(stream, durable), wire.AckSubjects(stream, durable),
	)
}

// bucket is what [Bucket] does: it looks at its stream, makes it, reads from its leader, and writes.
func (g *grants) bucket(use Use) {
	b := use.Bucket
	stream := wire.BucketStream(b.Name)
	g.publish(wire.APIStreamInfo(stream), wire.APIStreamCreate(stream), wire.APIMessageGet(stream))
	if use.Views {
		g.publish(wire.APIConsumerCreate(stream, "*", "")) // a feed
	}
	if use.Mirror {
		g.publish(wire.APIConsumerCreate(stream, "*", wire.RecordSubjects(b.Name, b.names())), wire.APIConsumerDelete(stream, "*"))
		g.subscribe(wire.StreamDeleted(stream))
	}
	if use.Writes {
		g.publish(wire.RecordSubjects(b.Name, b.names()))
		if (b.Record || b.Leases) && !use.Log {
			g.publish(wire.MemoSubjects(b.Name))
		}
	}
}

// worker is what [Bus.Work] does.
func (g *grants) worker(w Worker) {
	stream := wire.BucketStream(w.Bucket.Name)
	g.publish(
		wire.APIConsumerCreate(stream, w.Durable, wire.RecordSubjects(w.Bucket.Name, w.Bucket.names())),
		wire.APIConsumerInfo(stream, w.Durable),
		wire.APIConsumerNext(stream, w.Durable),
		wire.AckSubjects(stream, w.Durable),
	)
	if w.Wake.Name != "" {
		g.publish(wire.APIConsumerCreate(wire.BucketStream(w.Wake.Name), "*", wire.BucketSubjects(w.Wake.Name)))
	}
}
