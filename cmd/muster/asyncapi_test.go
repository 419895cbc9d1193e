package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asyncValid holds a document to the rules of AsyncAPI 3.0.0 for what it uses of them; written from the specification.
func asyncValid(doc map[string]any) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	only := func(where string, o map[string]any, required, optional string) {
		for _, name := range strings.Fields(required) {
			if _, ok := o[name]; !ok {
				say("%s lacks %s", where, name)
			}
		}
		for name := range o {
			if !slices.Contains(strings.Fields(required+" "+optional), name) && !strings.HasPrefix(name, "x-") {
				say("%s has %s, which is no member of it", where, name)
			}
		}
	}
	of := func(where string, v any) map[string]any {
		o, ok := v.(map[string]any)
		if !ok {
			say("%s is no object", where)
		}
		return o
	}
	resolve := func(where string, v any) (string, map[string]any) {
		o := of(where, v)
		only(where, o, "$ref", "")
		path, _ := o["$ref"].(string)
		at := any(doc)
		for token := range strings.SplitSeq(strings.TrimPrefix(path, "#/"), "/") {
			at = of(path, at)[token]
		}
		return path, of(where+" → "+path, at)
	}
	payload := func(where string, v any) {
		o := of(where, v)
		if _, isRef := o["$ref"]; isRef {
			_, o = resolve(where, v)
		}
		if _, other := o["schemaFormat"]; other {
			only(where, o, "schemaFormat schema", "")
			o = of(where, o["schema"])
		}
		if len(o) == 0 {
			say("%s says nothing", where)
		}
	}
	message := func(where string, m map[string]any) {
		only(where, m, "payload", "name title summary description contentType headers correlationId tags externalDocs bindings examples traits")
		payload(where+".payload", m["payload"])
		if h, ok := m["headers"]; ok && of(where, h)["type"] != "object" {
			say("%s.headers must be of type object", where)
		}
	}
	key := regexp.MustCompile(`^[\w\d.\-_]+$`)
	keys := func(where string, o map[string]any) {
		for k := range o {
			if !key.MatchString(k) {
				say("%s: the name %q is not allowed", where, k)
			}
		}
	}

	only("the document", doc, "asyncapi info", "id servers defaultContentType channels operations components")
	if doc["asyncapi"] != "3.0.0" {
		say("asyncapi is %v", doc["asyncapi"])
	}
	only("info", of("info", doc["info"]), "title version", "description termsOfService contact license tags externalDocs")
	components := of("components", doc["components"])
	only("components", components, "", "schemas servers channels operations messages securitySchemes serverVariables parameters correlationIds replies replyAddresses externalDocs tags operationTraits messageTraits")
	for _, kind := range []string{"messages", "schemas"} {
		keys(kind, of(kind, components[kind]))
	}
	for name, m := range of("messages", components["messages"]) {
		message("message "+name, of(name, m))
	}
	for name, v := range of("channels", doc["channels"]) {
		where, c := "channel "+name, of(name, v)
		only(where, c, "", "address messages title summary description servers parameters tags externalDocs bindings")
		address, _ := c["address"].(string)
		var named []string
		for _, m := range regexp.MustCompile(`\{([^}]*)\}`).FindAllStringSubmatch(address, -1) {
			named = append(named, m[1])
		}
		parameters := of(where, c["parameters"])
		if len(named) != len(parameters) {
			say("%s: parameters of the address are %v, described %v", where, named, parameters)
		}
		for _, p := range named {
			only(where+" "+p, of(where+" "+p, parameters[p]), "", "enum default description examples location")
		}
		keys(where, of(where, c["messages"]))
		for m, v := range of(where, c["messages"]) {
			_, target := resolve(where+" "+m, v)
			message(where+" "+m, target)
		}
	}
	for name, v := range of("operations", doc["operations"]) {
		where, o := "operation "+name, of(name, v)
		only(where, o, "action channel", "title summary description security tags externalDocs bindings traits messages reply")
		if o["action"] != "send" && o["action"] != "receive" {
			say("%s: action %v", where, o["action"])
		}
		within := func(where string, o map[string]any) {
			channel, _ := resolve(where, o["channel"])
			if !strings.HasPrefix(channel, "#/channels/") {
				say("%s: its channel is %s", where, channel)
			}
			messages, _ := o["messages"].([]any)
			for _, m := range messages {
				if path, _ := resolve(where, m); !strings.HasPrefix(path, channel+"/messages/") {
					say("%s: its message %s is not of its channel", where, path)
				}
			}
		}
		within(where, o)
		if r, ok := o["reply"]; ok {
			only(where+" reply", of(where, r), "", "address channel messages")
			within(where+" reply", of(where, r))
		}
	}
	return wrong
}

func TestAsyncAPI(t *testing.T) {
	printed := muster("asyncapi")
	if printed.code != exitOK {
		t.Fatalf("%+v", printed)
	}
	read := func() map[string]any {
		var doc map[string]any
		if err := json.Unmarshal([]byte(printed.out), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	doc := read()
	if wrong := asyncValid(doc); len(wrong) > 0 {
		t.Errorf("not AsyncAPI 3.0.0:\n%s", strings.Join(wrong, "\n"))
	}
	addresses := map[string]any{}
	for name, c := range doc["channels"].(map[string]any) {
		addresses[name] = c.(map[string]any)["address"]
	}
	for name, want := range map[string]string{
		"declare.set": "muster.declare.set.{hive}.{agent}", "trigger.declare.set": "muster.trigger.declare.set.{hive}.{agent}",
		"dead.declare.set": "muster.dead.declare.set.{hive}.{agent}", "event.hive": "muster.event.hive.{hive}", "declare.view": "muster.declare.view.{hive}",
		"event.rack": "muster.event.rack.{rack}", "event.service": "muster.event.service.{service}", "join.status": "muster.join.status.{rack}",
	} {
		if addresses[name] != want {
			t.Errorf("channel %s is at %v, want %s", name, addresses[name], want)
		}
	}
	if _, ok := addresses["trigger.declare.view"]; ok {
		t.Error("what changes nothing has a trigger")
	}
	for what, spoil := range map[string]func(map[string]any){ // the check can fail
		"version": func(d map[string]any) { d["asyncapi"] = "2.6.0" },
		"a reference into nothing": func(d map[string]any) {
			d["operations"].(map[string]any)["declare.set"].(map[string]any)["channel"] = map[string]any{"$ref": "#/channels/none"}
		},
		"an unknown member": func(d map[string]any) { d["topics"] = 1 },
		"a parameter too few": func(d map[string]any) {
			d["channels"].(map[string]any)["declare.set"].(map[string]any)["parameters"] = map[string]any{}
		},
		"an unknown direction": func(d map[string]any) {
			d["operations"].(map[string]any)["declare.set"].(map[string]any)["action"] = "publish"
		},
	} {
		d := read()
		spoil(d)
		if len(asyncValid(d)) == 0 {
			t.Errorf("%s: not seen", what)
		}
	}
}
