package wire

import "strings"

// Every subject, bucket, stream and header of the product is spelled here and nowhere else.

// Functions is the kind of user that functions are, as in their inboxes, see [Inbox].
const Functions = "function"

// Functions.
const (
	Declare = "declare"
	Join    = "join"
	Resolve = "resolve"
	Hive    = "hive" // answers no requests; sleds see [Sled]
)

// Buckets. The key of each is named beside it.
const (
	BucketWanted   = "muster_wanted"   // <hive>: what the hive should run, see [Declaration]
	BucketReported = "muster_reported" // <hive>: what the hive runs, see [Report]
	BucketRacks    = "muster_racks"    // <rack>: the rack's record
	BucketNetworks = "muster_networks" // <rack>.<generation>: a network config, which may hold secrets
	BucketSleds    = "muster_sleds"    // <part>.<serial>: an [Identity], gone when the sled is silent
	BucketServices = "muster_services" // <service>: its source and last answer
	BucketBackends = "muster_backends" // <service>.<backend>: a lease, gone when it expires
	BucketResolved = "muster_resolved" // <service>: its answer, gone when nobody resolves; and KeyResolver
)

// Streams. The subjects of each are named beside it.
const (
	StreamEvents   = "MUSTER_EVENTS"   // muster.event.<kind>.<key>: every revision of every record
	StreamTriggers = "MUSTER_TRIGGERS" // muster.trigger.<function>.<op>[.<id>…]: requests without a caller
	StreamDead     = "MUSTER_DEAD"     // muster.dead.<function>.<op>[.<id>…]: triggers that failed for good
)

// Headers that a caller may send.
const (
	HeaderRequestID   = "Muster-Request-Id"  // makes the request exactly-once for MemoTTL
	HeaderTimeout     = "Muster-Timeout"     // Go duration, default 4s, at most 60s
	HeaderAPIVersion  = "Muster-Api-Version" // "1" or "2", default 2
	HeaderTraceparent = "traceparent"
	HeaderCommitments = "Muster-Commitments" // of a sled's prepare: what its share is checked against, beside the digest
)

// Headers of a failed reply, as NATS services spell them.
const (
	HeaderError     = "Nats-Service-Error"      // the message
	HeaderErrorCode = "Nats-Service-Error-Code" // the status, e.g. "404"
)

// Headers of a stored revision. A revision is an event in CloudEvents' binary mode as it lies in its bucket.
const (
	HeaderCESpecVersion     = "ce-specversion"
	HeaderCEID              = "ce-id" // one write, however often it was sent
	HeaderCESource          = "ce-source"
	HeaderCEType            = "ce-type"
	HeaderCESubject         = "ce-subject"
	HeaderCETime            = "ce-time"
	HeaderCEDataContentType = "ce-datacontenttype"
	HeaderCEPrevious        = "ce-previous"  // the revision this one follows
	HeaderCEChanges         = "ce-changes"   // how many requests this revision carries, when more than one
	HeaderCERequestID       = "ce-requestid" // of the first of them
	HeaderCECausationID     = "ce-causationid"
	HeaderCETraceparent     = "ce-traceparent"
)

// Event types of the revisions of each bucket of record.
const (
	EventHiveDeclared = "muster.hive.declared.v1"
	EventRackChanged  = "muster.rack.changed.v1"
	EventResolved     = "muster.service.resolved.v1"
)

// KeyResolver is the key in the resolved bucket that the replica which resolves holds. No service is called like that.
const KeyResolver = "_resolver"

// Durable consumers.
const (
	DurableJoin = "muster-join" // on the racks: the driver's work queue
)

// Headers of a dead trigger, beside those that it came with.
const (
	HeaderDeadCode       = "Muster-Error-Code" // a [Code]
	HeaderDeadError      = "Muster-Error"      // the message
	HeaderDeliveries     = "Muster-Deliveries" // how often it was tried
	HeaderStreamSequence = "Muster-Stream-Sequence"
)

// HeaderContentType tells, in any letter case, the form of a CloudEvent.
const HeaderContentType = "Content-Type"

// Content types of CloudEvents.
const (
	ContentTypeEvents     = "application/cloudevents" // what all others begin with
	ContentTypeEvent      = "application/cloudevents+json"
	ContentTypeEventBatch = "application/cloudevents-batch"
)

// Headers by which NATS marks a key of a bucket as removed.
const (
	HeaderKVOperation = "KV-Operation"       // DEL or PURGE
	HeaderMarker      = "Nats-Marker-Reason" // of a marker that the server set: the key has expired, or was purged
	HeaderHandedOver  = "Muster-Handed-Over" // beside it: by its holder, who has stopped
	HeaderRollup      = "Nats-Rollup"        // sub: what was there before goes too
	KVDelete          = "DEL"
	KVPurge           = "PURGE"
	RollupSubject     = "sub"
)

// In a consumer's heartbeat: the number of the last message it delivered, and how far it has looked through its stream.
const (
	HeaderLastConsumer = "Nats-Last-Consumer"
	HeaderLastStream   = "Nats-Last-Stream"
)

// ContentTypeJSON is the content type of every record.
const ContentTypeJSON = "application/json"

const (
	root        = "muster"
	servicePart = "muster-"
	kvSubjects  = "$KV."
	kvStreams   = "KV_"
	memoKeys    = "_req."
	jsAPI       = "$JS.API."
	discovery   = "$SRV."
	eventPart   = "event"
	triggerPart = "trigger"
	deadPart    = "dead"
)

// Subject is the subject of a request: muster.<function>.<op>[.<id>…].
func Subject(function, op string, ids ...string) string {
	return strings.Join(append([]string{root, function, op}, ids...), ".")
}

// RequestSubjects is the pattern of the subjects on which an op with ids listens. It takes any number of tokens, so that
// a name with a dot in it gets an answer that says so, and not the "no responders" of a service that is not there.
func RequestSubjects(function, op string, ids int) string {
	if ids == 0 {
		return Subject(function, op)
	}
	return Subject(function, op, ">")
}

// FunctionSubjects is the pattern of all request subjects of a function.
func FunctionSubjects(function string) string { return root + "." + function + ".>" }

// SubjectIDs appends to ids the tokens behind the op in a request subject; none when there are none.
func SubjectIDs(ids []string, subject, function, op string) []string {
	head := len(root) + len(function) + len(op) + 2
	if len(subject) <= head || subject[head] != '.' {
		return ids
	}
	rest, more := subject[head+1:], true
	for more {
		var id string
		id, rest, more = strings.Cut(rest, ".")
		ids = append(ids, id)
	}
	return ids
}

// CallSubject is the subject that `muster call` means by what its user wrote: with or without the leading "muster.".
func CallSubject(s string) string {
	if strings.HasPrefix(s, root+".") {
		return s
	}
	return root + "." + s
}

// Service is the name of the NATS micro service of a function.
func Service(function string) string { return servicePart + function }

// QueueGroup is the queue group of a function's replicas.
func QueueGroup(function string) string { return function }

// SchemaID names the JSON Schema of an op's request or reply, e.g. "muster.declare.set.request.v1".
func SchemaID(function, op, part string) string { return Subject(function, op, part, "v1") }

// KeySubject is the subject under which a bucket's stream keeps a key.
func KeySubject(bucket, key string) string { return kvSubjects + bucket + "." + key }

// BucketSubjects is the pattern of all keys of a bucket, its memos included.
func BucketSubjects(bucket string) string { return kvSubjects + bucket + ".>" }

// RecordSubjects is the pattern of the keys of a bucket that are so many names: its records, not its memos.
func RecordSubjects(bucket string, names int) string {
	return kvSubjects + bucket + strings.Repeat(".*", names)
}

// SubjectKey is the key within a bucket that a subject of its stream stands for.
func SubjectKey(bucket, subject string) string {
	return strings.TrimPrefix(subject, kvSubjects+bucket+".")
}

// BucketStream is the name of the stream behind a bucket.
func BucketStream(bucket string) string { return kvStreams + bucket }

// EventSource is the CloudEvents source of the revisions of a bucket.
func EventSource(bucket string) string { return "/muster/" + bucket }

// EventKind is what stands in the subjects of events of a type: "hive" for "muster.hive.declared.v1".
func EventKind(eventType string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(eventType, root+"."), ".")
	return kind
}

// EventSubject is the subject of the events of a key; with key * the pattern of those of a kind.
func EventSubject(kind, key string) string { return Subject(eventPart, kind, key) }

// EventTransform is how the subject of a revision of a bucket becomes the event's, as the server takes it. Only keys that
// are one name have events: a memo's have more tokens.
func EventTransform(bucket, kind string) (from, to string) {
	return RecordSubjects(bucket, 1), EventSubject(kind, "{{wildcard(1)}}")
}

// Patterns of all subjects of the streams.
func EventSubjects() string { return FunctionSubjects(eventPart) }
func AllTriggers() string   { return FunctionSubjects(triggerPart) }
func DeadSubjects() string  { return FunctionSubjects(deadPart) }

// TriggerSubject is the subject of a trigger: muster.trigger.<function>.<op>[.<id>…].
func TriggerSubject(function, op string, ids ...string) string {
	return Subject(triggerPart, function, append([]string{op}, ids...)...)
}

// TriggersOf is the pattern of all triggers of a function.
func TriggersOf(function string) string { return Subject(triggerPart, function, ">") }

// DeadOf is the pattern of all dead triggers of a function.
func DeadOf(function string) string { return Subject(deadPart, function, ">") }

// DurableTriggers is the consumer that hands out the triggers of a function.
func DurableTriggers(function string) string { return servicePart + function }

// TriggerRequest is the subject of the request that a trigger stands for, and its op.
func TriggerRequest(function, subject string) (request, op string) {
	rest := strings.TrimPrefix(subject, Subject(triggerPart, function, ""))
	op, _, _ = strings.Cut(rest, ".")
	return Subject(function, rest), op
}

// DeadSubject is where a trigger on that subject goes when it failed for good; LiveSubject is the way back.
func DeadSubject(trigger string) string {
	return root + "." + deadPart + strings.TrimPrefix(trigger, root+"."+triggerPart)
}

// LiveSubject undoes [DeadSubject].
func LiveSubject(dead string) string {
	return root + "." + triggerPart + strings.TrimPrefix(dead, root+"."+deadPart)
}

// Subjects of the JetStream API that the product asks itself or is permitted to.
func APIStreamInfo(stream string) string   { return jsAPI + "STREAM.INFO." + stream }
func APIStreamCreate(stream string) string { return jsAPI + "STREAM.CREATE." + stream }
func APILeaderStepDown(stream string) string {
	return jsAPI + "STREAM.LEADER.STEPDOWN." + stream
}
func APIMessageGet(stream string) string    { return jsAPI + "STREAM.MSG.GET." + stream }
func APIMessageDelete(stream string) string { return jsAPI + "STREAM.MSG.DELETE." + stream }
func APIDirectGet(stream string) string     { return jsAPI + "DIRECT.GET." + stream }

// StreamDeleted is the subject of the advisory that a stream was deleted.
func StreamDeleted(stream string) string { return "$JS.EVENT.ADVISORY.STREAM.DELETED." + stream }

// MemoKey is the key under which a bucket remembers the outcome of the request with that id on that subject:
// _req.<op>[.<id>…].<request id>. No record's key begins with an underscore.
func MemoKey(op string, ids []string, requestID string) string {
	return memoKeys + strings.Join(append(append([]string{op}, ids...), requestID), ".")
}

// APIStreamNames asks which streams take a subject.
const APIStreamNames = jsAPI + "STREAM.NAMES"

// APIInfo asks what of JetStream the asker's account has, and uses.
const APIInfo = jsAPI + "INFO"

// APIUserInfo asks a server who the asker is and what it is permitted. Every account has it.
const APIUserInfo = "$SYS.REQ.USER.INFO"

// APIConsumerCreate is where a consumer with a name is asked for. A filter is part of the subject, and the server refuses
// one that the body says otherwise, so that permission for one key is permission for that key only.
func APIConsumerCreate(stream, name, filter string) string {
	s := jsAPI + "CONSUMER.CREATE." + stream + "." + name
	if filter != "" {
		s += "." + filter
	}
	return s
}

// IsAPIConsumerCreate tells whether a consumer is asked for there.
func IsAPIConsumerCreate(subject string) bool {
	return strings.HasPrefix(subject, jsAPI+"CONSUMER.CREATE.")
}

// Subjects with which a durable consumer is used.
func APIConsumerInfo(stream, name string) string {
	return jsAPI + "CONSUMER.INFO." + stream + "." + name
}
func APIConsumerDelete(stream, name string) string {
	return jsAPI + "CONSUMER.DELETE." + stream + "." + name
}
func APIConsumerNext(stream, name string) string {
	return jsAPI + "CONSUMER.MSG.NEXT." + stream + "." + name
}
func AckSubjects(stream, name string) string { return "$JS.ACK." + stream + "." + name + ".>" }

// MemoSubjects is the pattern of all memos of a bucket.
func MemoSubjects(bucket string) string { return kvSubjects + bucket + "." + memoKeys + ">" }

// TriggerSubjects is the pattern of the subjects of the triggers for an op with ids.
func TriggerSubjects(function, op string, ids int) string {
	return TriggerSubject(function, op) + strings.Repeat(".*", ids)
}

// SledSubjects is the pattern of the subjects of one op of every sled.
func SledSubjects(op string) string { return root + "." + Sled + ".*.*." + op }

// DiscoverySubjects are those on which a micro service tells that it is there, what it is and how it does.
func DiscoverySubjects(function string) []string {
	var all []string
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		s := discovery + verb
		all = append(all, s, s+"."+Service(function), s+"."+Service(function)+".*")
	}
	return all
}

// IsDiscovery tells whether a subject is one of those.
func IsDiscovery(subject string) bool { return strings.HasPrefix(subject, discovery) }

// InboxDefault is the prefix of inboxes when none is chosen.
const InboxDefault = "_INBOX"

// Inbox is the prefix of the private inboxes of a user: _INBOX.<kind>.<name>. Who may use _INBOX.> may use it, too.
func Inbox(user string) string { return InboxDefault + "." + user }

// IsInbox tells whether answers may go to a subject that a caller gave: not to a stream, a service or the server itself. A
// caller's permissions say nothing about the subject that it wants its answer on, and the answer goes out under ours.
func IsInbox(reply string) bool {
	return reply != "" && reply[0] != '$' && !strings.HasPrefix(reply, root+".")
}
