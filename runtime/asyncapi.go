package runtime

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/wire"
)

// schemaFormat is the JSON Schema that requests and replies are described in.
const schemaFormat = "application/schema+json;version=draft-2020-12"

// object is a JSON object of a document.
type object map[string]any

func ref(path ...string) object { return object{"$ref": "#/" + strings.Join(path, "/")} }

// AsyncAPI makes the AsyncAPI 3 document of functions: each op as a request, each that changes state as a trigger too, the
// events of their records, and where dead triggers go. It follows from the functions' values alone.
func AsyncAPI(fns []Function, version string) ([]byte, error) {
	d := &asyncDocument{channels: object{}, operations: object{}, messages: object{}, schemas: object{}}
	for i := range fns {
		d.function(&fns[i])
	}
	d.messages["error"] = object{
		"name": "error", "title": "A request that failed", "contentType": wire.ContentTypeJSON, "payload": ref("components", "schemas", "error"),
		"headers": object{"type": "object", "properties": object{
			wire.HeaderError:     object{"type": "string", "description": "the message"},
			wire.HeaderErrorCode: object{"type": "string", "description": "the status"},
		}},
	}
	d.schemas["error"] = object{
		"type":     "object",
		"required": []string{"error_code", "message", "request_id", "status", "retryable", "details"},
		"properties": object{
			"error_code": object{"type": "string"}, "message": object{"type": "string", "maxLength": 512}, "request_id": object{"type": "string"},
			"status": object{"type": "integer"}, "retryable": object{"type": "boolean"}, "details": object{"type": "object"},
		},
	}
	return json.Marshal(object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Muster", "version": version,
			"description": "Control plane of a fleet, on NATS. Subjects are addresses; what stands in braces is one token, a name that matches " + wire.NamePattern + ".",
		},
		"defaultContentType": wire.ContentTypeJSON,
		"channels":           d.channels,
		"operations":         d.operations,
		"components":         object{"messages": d.messages, "schemas": d.schemas},
	}, json.Deterministic(true), jsontext.WithIndent("  "))
}

type asyncDocument struct{ channels, operations, messages, schemas object }

func (d *asyncDocument) function(fn *Function) {
	schemas := SchemasOf(*fn).Ops
	for i := range fn.Ops {
		op := &fn.Ops[i]
		d.request(fn, op, schemas[op.Name])
		if op.Changes && len(fn.Instance) == 0 {
			d.trigger(fn, op)
		}
	}
	for _, use := range fn.Buckets {
		if use.eventful() {
			d.event(use.Bucket)
		}
	}
}

// channel adds a channel with one or more messages, by their names among the components.
func (d *asyncDocument) channel(name string, address any, ids []string, title string, messages ...string) {
	parameters, all := object{}, object{}
	for _, id := range ids {
		parameters[id] = object{"description": "name of the " + id}
	}
	for _, m := range messages {
		all[m] = ref("components", "messages", m)
	}
	d.channels[name] = object{"address": address, "title": title, "parameters": parameters, "messages": all}
}

// operation adds what is done on a channel with all of its messages.
func (d *asyncDocument) operation(name, action, channel, summary string, messages ...string) object {
	op := object{"action": action, "channel": ref("channels", channel), "summary": summary, "messages": inChannel(channel, messages)}
	d.operations[name] = op
	return op
}

func inChannel(channel string, messages []string) []object {
	var all []object
	for _, m := range messages {
		all = append(all, ref("channels", channel, "messages", m))
	}
	return all
}

func (d *asyncDocument) request(fn *Function, op *Op, s OpSchemas) {
	name := fn.Name + "." + op.Name
	request, reply, replies := name+".request", name+".reply", name+".replies"
	d.schemas[request] = object{"schemaFormat": schemaFormat, "schema": s.Request}
	d.schemas[reply] = object{"schemaFormat": schemaFormat, "schema": s.Reply}
	d.messages[request] = object{
		"name": request, "title": op.Description, "payload": ref("components", "schemas", request),
		"headers": object{"type": "object", "properties": object{
			wire.HeaderRequestID:   object{"type": "string", "description": "the request is done once under it for 10 minutes"},
			wire.HeaderTimeout:     object{"type": "string", "description": "a Go duration, 4s by default, 60s at most"},
			wire.HeaderAPIVersion:  object{"type": "string", "enum": []string{"1", "2"}},
			wire.HeaderTraceparent: object{"type": "string"},
		}},
	}
	d.messages[reply] = object{"name": reply, "title": "The reply to " + name, "payload": ref("components", "schemas", reply)}
	d.channel(name, wire.Subject(fn.path(), op.Name, braces(op.IDs)...), op.IDs, op.Description, request)
	d.channel(replies, nil, nil, "Where the caller takes answers: the request's reply subject", reply, "error")
	d.operation(name, "receive", name, op.Description, request)["reply"] = object{
		"channel": ref("channels", replies), "messages": inChannel(replies, []string{reply, "error"}),
	}
}

func (d *asyncDocument) trigger(fn *Function, op *Op) {
	name := fn.Name + "." + op.Name
	trigger, dead := "trigger."+name, "dead."+name
	subject := wire.TriggerSubject(fn.Name, op.Name, braces(op.IDs)...)
	required := []string{wire.HeaderCEID, wire.HeaderCESource, wire.HeaderCESpecVersion, wire.HeaderCEType}
	attributes := object{}
	for _, h := range required {
		attributes[h] = object{"type": "string"}
	}
	d.messages[trigger] = object{
		"name": trigger, "title": "A CloudEvent whose data is the request " + name, "payload": ref("components", "schemas", name+".request"),
		"headers": object{"type": "object", "required": required, "properties": attributes},
	}
	d.messages[dead] = object{
		"name": dead, "title": "A trigger of " + name + " that failed for good, as it came", "payload": object{"type": "object"},
		"headers": object{"type": "object", "required": []string{wire.HeaderDeadCode, wire.HeaderDeadError, wire.HeaderDeliveries, wire.HeaderStreamSequence}},
	}
	d.channel(trigger, subject, op.IDs, "Stream "+wire.StreamTriggers, trigger)
	d.channel(dead, wire.DeadSubject(subject), op.IDs, "Stream "+wire.StreamDead, dead)
	d.operation(trigger, "receive", trigger, "the request "+name+" without a caller", trigger)
	d.operation(dead, "send", dead, "a trigger that failed for good", dead)
}

func (d *asyncDocument) event(b BucketSpec) {
	kind := wire.EventKind(b.EventType)
	name := "event." + kind
	attributes := object{}
	required := []string{
		wire.HeaderCEID, wire.HeaderCESource, wire.HeaderCESpecVersion, wire.HeaderCEType, wire.HeaderCESubject, wire.HeaderCETime, wire.HeaderCEPrevious,
	}
	for _, h := range append(required, wire.HeaderCEChanges, wire.HeaderCERequestID, wire.HeaderCECausationID, wire.HeaderCETraceparent) {
		attributes[h] = object{"type": "string"}
	}
	attributes[wire.HeaderCEType] = object{"const": b.EventType}
	attributes[wire.HeaderCESource] = object{"const": wire.EventSource(b.Name)}
	d.messages[name] = object{
		"name": name, "title": "A CloudEvent whose data is the record", "payload": object{"type": "object", "description": b.Description},
		"headers": object{"type": "object", "required": required, "properties": attributes},
	}
	d.channel(name, wire.EventSubject(kind, "{"+kind+"}"), []string{kind}, "Stream "+wire.StreamEvents, name)
	d.operation(name, "send", name, fmt.Sprintf("every revision of bucket %s, in order for each %s", b.Name, kind), name)
}

// braces are parameters as AsyncAPI has them in addresses.
func braces(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "{" + n + "}"
	}
	return out
}
