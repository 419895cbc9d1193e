package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"muster/runtime"
	"muster/wire"
)

// headers makes headers of names and values in turn.
func headers(pairs ...string) map[string][]string {
	h := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
	}
	return h
}

// an event with everything, as each form has it.
const (
	fullData = `{"state":"up"}`
	fullJSON = `{"specversion":"1.0","id":"a 1","source":"/rack/é","type":"t.v1","subject":"rack é 1","time":"2026-11-30T18:00:00.5Z",` +
		`"datacontenttype":"application/json","dataschema":"https://example.org/s","traceparent":"x","count":7,"flag":true,"nothing":null,"data":{"state":"up"}}`
)

func fullEvent() event.Event {
	e := event.New("1.0")
	e.SetID("a 1")
	e.SetSource("/rack/é")
	e.SetType("t.v1")
	e.SetSubject("rack é 1")
	e.SetDataSchema("https://example.org/s")
	e.SetDataContentType("application/json")
	e.SetExtension("traceparent", "x")
	e.SetExtension("count", "7")
	e.SetExtension("flag", "true")
	e.DataEncoded = []byte(fullData)
	return e
}

func TestDecodeEvent(t *testing.T) {
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
	}{
		"binary": {headers("ce-specversion", "1.0", "ce-id", "a%201", "ce-source", "/rack/%C3%A9", "ce-type", "t.v1", "ce-subject", "rack%20%C3%A9%201",
			"ce-time", "2026-11-30T18:00:00.5Z", "ce-datacontenttype", "application/json", "ce-dataschema", "https://example.org/s", "ce-traceparent", "x", "ce-count", "7", "ce-flag", "true"), fullData},
		"binary, other letter case, lower hexadecimal": {headers("CE-SpecVersion", "1.0", "Ce-Id", "a%201", "cE-source", "/rack/%c3%a9", "CE-TYPE", "t.v1", "Ce-Subject", "rack%20%c3%a9%201",
			"Ce-Time", "2026-11-30T19:00:00.5+01:00", "Ce-DataContentType", "application/json", "Ce-Dataschema", "https://example.org/s", "ce-TraceParent", "x", "ce-count", "7", "ce-flag", "true"), fullData},
		"as the Go SDK writes it": {headers("ce-specversion", "1.0", "ce-id", "a 1", "ce-source", "/rack/é", "ce-type", "t.v1", "ce-subject", "rack é 1",
			"ce-time", "2026-11-30T18:00:00.5Z", "content-type", "application/json", "ce-dataschema", "https://example.org/s", "ce-traceparent", "x", "ce-count", "7", "ce-flag", "true"), fullData},
		"structured":                {headers("Content-Type", "application/cloudevents+json"), fullJSON},
		"structured, with charset":  {headers("content-type", "Application/CloudEvents+JSON; charset=UTF-8"), " \n" + fullJSON},
		"a JSON object":             {nil, fullJSON},
		"a JSON object of any type": {headers("Content-Type", "application/json", "X-Other", "1"), fullJSON},
		"data in base64":            {nil, strings.Replace(fullJSON, `"data":{"state":"up"}`, `"data_base64":"eyJzdGF0ZSI6InVwIn0="`, 1)},
	} {
		e, err := runtime.DecodeEvent(c.header, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := fullEvent()
		if got := e.Time(); got.UTC().Format("15:04:05.0") != "18:00:00.5" {
			t.Errorf("%s: time %v", name, got)
		}
		want.SetTime(e.Time())
		if diff := cmp.Diff(want.String(), e.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecodeEvent_Refuses(t *testing.T) {
	required := []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t"}
	with := func(more ...string) map[string][]string {
		return headers(append(required[:len(required):len(required)], more...)...)
	}
	for name, c := range map[string]struct {
		header map[string][]string
		body   string
		field  string
	}{
		"a batch by its type":             {headers("Content-Type", "application/cloudevents-batch+json"), "[]", ""},
		"a batch":                         {nil, "[" + fullJSON + "]", ""},
		"a form that is not known":        {headers("Content-Type", "application/cloudevents+avro"), fullJSON, "Content-Type"},
		"nothing":                         {nil, "", ""},
		"no JSON":                         {nil, `{"specversion":`, ""},
		"a member twice":                  {nil, `{"specversion":"1.0","id":"1","id":"2","source":"/s","type":"t"}`, ""},
		"JSON without id":                 {nil, `{"specversion":"1.0","source":"/s","type":"t"}`, "id"},
		"JSON with an id of null":         {nil, `{"specversion":"1.0","id":null,"source":"/s","type":"t"}`, "id"},
		"JSON with an id of another type": {nil, `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`, "id"},
		"an extension that is an object":  {nil, `{"specversion":"1.0","id":"1","source":"/s","type":"t","ext":{}}`, "ext"},
		"an extension that is no integer": {nil, `{"specversion":"1.0","id":"1","source":"/s","type":"t","ext":1.5}`, "ext"},
		"data twice":                      {nil, `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{},"data_base64":""}`, "data_base64"},
		"data in no base64":               {nil, `{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"*"}`, "data_base64"},
		"an old version":                  {headers("ce-specversion", "0.3", "ce-id", "1", "ce-source", "/s", "ce-type", "t"), "{}", "specversion"},
		"binary without source":           {headers("ce-specversion", "1.0", "ce-id", "1", "ce-type", "t"), "{}", "source"},
		"an empty id":                     {headers("ce-specversion", "1.0", "ce-id", "", "ce-source", "/s", "ce-type", "t"), "{}", "id"},
		"a time that is none":             {with("ce-time", "yesterday"), "{}", "time"},
		"an attribute in two cases":       {with("Ce-Id", "2"), "{}", "ce-id"},
		"an attribute with two values":    {with("ce-id", "2"), "{}", "ce-id"},
		"control characters":              {with("ce-subject", "a%0Ab"), "{}", "subject"},
		"a name that is none":             {with("ce-my_ext", "x"), "{}", "extension:my_ext"},
		"an attribute too long":           {with("ce-subject", strings.Repeat("x", 2000)), "{}", "subject"},
	} {
		_, err := runtime.DecodeEvent(c.header, []byte(c.body))
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != wire.InvalidRequest {
			t.Errorf("%s: %v", name, err)
			continue
		}
		field, _ := e.Details["field"].(string)
		if strings.Trim(field, `"`) != c.field {
			t.Errorf("%s: field %q, want %q: %s", name, field, c.field, e.Message)
		}
	}
}

// What we write, by the binding, is what we read; and what the Go SDK reads.
func TestEncodeEvent(t *testing.T) {
	want := fullEvent()
	h, body, err := runtime.EncodeEvent(want)
	if err != nil {
		t.Fatal(err)
	}
	vector := headers("ce-specversion", "1.0", "ce-id", "a%201", "ce-source", "/rack/%25C3%25A9", "ce-type", "t.v1", "ce-subject", "rack%20%C3%A9%201",
		"ce-datacontenttype", "application/json", "ce-dataschema", "https://example.org/s", "ce-traceparent", "x", "ce-count", "7", "ce-flag", "true")
	if diff := cmp.Diff(vector, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	got, err := runtime.DecodeEvent(h, body)
	if err != nil || got.String() != want.String() {
		t.Errorf("%v: read again as\n%s", err, got)
	}
	if _, _, err := runtime.EncodeEvent(event.New("1.0")); err == nil {
		t.Error("an event without an id was written")
	}
	sdk, err := binding.ToEvent(t.Context(), sdkMessage{h, body})
	if err != nil {
		t.Fatalf("the SDK cannot read it: %v", err)
	}
	if sdk.Type() != "t.v1" || sdk.DataContentType() != "application/json" || string(sdk.Data()) != fullData || sdk.Extensions()["count"] != "7" {
		t.Errorf("the SDK reads\n%s", sdk)
	}
}

// sdkMessage reads headers as the SDK's protocols for NATS do: attributes by prefix, values as they are.
type sdkMessage struct {
	header map[string][]string
	body   []byte
}

var sdkSpecs = spec.WithPrefix("ce-")

func (m sdkMessage) ReadEncoding() binding.Encoding { return binding.EncodingBinary }
func (m sdkMessage) Finish(error) error             { return nil }
func (m sdkMessage) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m sdkMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	version := sdkSpecs.Version(m.header["ce-specversion"][0])
	for name, values := range m.header {
		var err error
		if attribute := version.Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, values[0])
		} else if extension, ok := strings.CutPrefix(name, "ce-"); ok {
			err = w.SetExtension(extension, values[0])
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(strings.NewReader(string(m.body)))
}

func (m sdkMessage) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := spec.V1.AttributeFromKind(kind)
	if v := m.header["ce-"+attribute.Name()]; len(v) > 0 {
		return attribute, v[0]
	}
	return attribute, nil
}

func (m sdkMessage) GetExtension(name string) any {
	if v := m.header["ce-"+name]; len(v) > 0 {
		return v[0]
	}
	return nil
}

// Whatever comes is an event that is valid and can be written and read again, or refused as InvalidRequest.
func FuzzDecodeEvent(f *testing.F) {
	f.Add("ce-id", "1", "application/json", []byte(fullJSON))
	f.Add("Ce-Source", "%zz", "application/cloudevents+json", []byte(fullJSON))
	f.Add("ce-subject", "rack%20%C3%A9%201", "", []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"e30="}`))
	f.Add("ce-x", "\xff", "application/cloudevents-batch+json", []byte("[]"))
	f.Fuzz(func(t *testing.T, name, value, contentType string, body []byte) {
		for _, h := range []map[string][]string{
			headers("ce-specversion", "1.0", "ce-type", "t", "ce-source", "/s", name, value, "Content-Type", contentType),
			headers(name, value, "Content-Type", contentType),
		} {
			e, err := runtime.DecodeEvent(h, body)
			if err != nil {
				if wire.AsError(err).Code != wire.InvalidRequest {
					t.Errorf("%v", err)
				}
				continue
			}
			header, data, err := runtime.EncodeEvent(e)
			if err != nil {
				t.Fatalf("read, and not written: %v\n%s", err, e)
			}
			again, err := runtime.DecodeEvent(header, data)
			if err != nil || again.ID() != e.ID() || again.Source() != e.Source() || again.Subject() != e.Subject() || string(again.Data()) != string(e.Data()) {
				t.Errorf("%v: written and read again as\n%s\nwas\n%s", err, again, e)
			}
		}
	})
}
