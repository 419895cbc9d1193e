package runtime

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/wire"
)

// This file is the NATS binding of CloudEvents 1.0: how an event lies in a message. The event itself and what makes it valid
// are those of the Go SDK; its own NATS protocol is not used, since it encodes no values and prefixes not every attribute.

// cePrefix is what the headers of attributes begin with, in any letter case.
const cePrefix = "ce-"

// maxAttribute is the size of the longest attribute that is taken, in bytes: it goes into headers of what is stored.
const maxAttribute = 1024

// EncodeEvent writes an event in binary mode: the headers and the body of a message.
func EncodeEvent(e event.Event) (header map[string][]string, body []byte, err error) {
	if err := e.Validate(); err != nil {
		return nil, nil, err
	}
	header = map[string][]string{
		wire.HeaderCESpecVersion: {e.SpecVersion()}, wire.HeaderCEID: {wire.EncodeHeader(e.ID())},
		wire.HeaderCESource: {wire.EncodeHeader(e.Source())}, wire.HeaderCEType: {wire.EncodeHeader(e.Type())},
	}
	for name, value := range map[string]string{
		"subject": e.Subject(), "dataschema": e.DataSchema(), "datacontenttype": e.DataContentType(),
	} {
		if value != "" {
			header[cePrefix+name] = []string{wire.EncodeHeader(value)}
		}
	}
	if !e.Time().IsZero() {
		header[wire.HeaderCETime] = []string{e.Time().UTC().Format(time.RFC3339Nano)}
	}
	for name, value := range e.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			return nil, nil, err
		}
		header[cePrefix+name] = []string{wire.EncodeHeader(text)}
	}
	return header, e.Data(), nil
}

// DecodeEvent reads an event from a message, in whatever form it came: structured, if the content type says so; binary, if
// an attribute is among the headers; else a JSON object with the required attributes. The error is an InvalidRequest.
func DecodeEvent(header map[string][]string, body []byte) (event.Event, error) {
	attributes, contentType, err := eventHeaders(header)
	if err != nil {
		return event.Event{}, err
	}
	media := mediaType(contentType)
	switch {
	case strings.HasPrefix(media, wire.ContentTypeEventBatch):
		return event.Event{}, wire.Invalid("", "batches of events are not taken; send each by itself")
	case media == wire.ContentTypeEvent:
		return structured(body)
	case strings.HasPrefix(media, wire.ContentTypeEvents):
		return event.Event{}, wire.Invalid(wire.HeaderContentType, "events are taken as %s, or in binary mode", wire.ContentTypeEvent)
	case len(attributes) > 0:
		return binary(attributes, contentType, body)
	}
	return structured(body)
}

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// eventHeaders picks the attributes and the content type out of headers.
func eventHeaders(header map[string][]string) (attributes map[string]string, contentType string, err error) {
	attributes = map[string]string{}
	for name, values := range header {
		lower := strings.ToLower(name)
		attribute, isAttribute := strings.CutPrefix(lower, cePrefix)
		isType := lower == strings.ToLower(wire.HeaderContentType)
		if !isAttribute && !isType {
			continue
		}
		if _, twice := attributes[attribute]; len(values) != 1 || isAttribute && twice || isType && contentType != "" {
			return nil, "", wire.Invalid(printable(lower), "header %s is there more than once", printable(clipped(lower)))
		}
		if isType {
			contentType = values[0]
			continue
		}
		// Who does not encode, like the Go SDK, may send a bare percent sign.
		value, err := wire.DecodeHeader(values[0])
		if err != nil {
			value = values[0]
		}
		attributes[attribute] = value
	}
	return attributes, contentType, nil
}

func binary(attributes map[string]string, contentType string, body []byte) (event.Event, error) {
	if attributes["datacontenttype"] == "" && contentType != "" {
		attributes["datacontenttype"] = contentType
	}
	e := event.New(attributes["specversion"])
	if attributes["specversion"] != event.CloudEventsVersionV1 {
		return e, errVersion()
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := setAttribute(&e, name, attributes[name]); err != nil {
			return e, err
		}
	}
	e.DataEncoded = body
	return e, checkEvent(e)
}

func errVersion() *wire.Error {
	return wire.Invalid("specversion", "specversion must be %s", event.CloudEventsVersionV1)
}

// structured reads an event in the JSON format.
func structured(body []byte) (event.Event, error) {
	var e event.Event
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case bytes.HasPrefix(trimmed, []byte("[")):
		return e, wire.Invalid("", "batches of events are not taken; send each by itself")
	case !bytes.HasPrefix(trimmed, []byte("{")):
		return e, wire.Invalid("", "this is no CloudEvent: neither are its attributes in headers, nor is it a JSON object")
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil {
		return e, wire.Invalid("", "this is no CloudEvent: it is not valid JSON, or a member is there twice")
	}
	for name, value := range members {
		if value.Kind() == 'n' {
			delete(members, name)
		}
	}
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if _, ok := members[name]; !ok {
			return e, wire.Invalid(name, "this is no CloudEvent: attribute %s is required", name)
		}
	}
	var version string
	if json.Unmarshal(members["specversion"], &version) != nil || version != event.CloudEventsVersionV1 {
		return e, errVersion()
	}
	e = event.New(version)
	data, plain := members["data"]
	encoded, coded := members["data_base64"]
	if plain && coded {
		return e, wire.Invalid("data_base64", "an event has data or data_base64, not both")
	}
	delete(members, "data")
	delete(members, "data_base64")
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value, err := attributeValue(name, members[name])
		if err == nil {
			err = setAttribute(&e, name, value)
		}
		if err != nil {
			return e, err
		}
	}
	e.DataEncoded = data
	if coded {
		var text string
		err := json.Unmarshal(encoded, &text)
		if err == nil {
			e.DataEncoded, err = base64.StdEncoding.DecodeString(text)
		}
		if err != nil {
			return e, wire.Invalid("data_base64", "data_base64 must be a string in base64")
		}
	}
	return e, checkEvent(e)
}

// attributeValue reads an attribute in JSON. Those that CloudEvents names are strings; extensions may be booleans and integers.
func attributeValue(name string, value jsontext.Value) (string, error) {
	switch value.Kind() {
	case '"':
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return "", wire.Invalid(printable(clipped(name)), "attribute %s cannot be read", printable(clipped(name)))
		}
		return text, nil
	case 't', 'f', '0':
		_, err := strconv.ParseInt(string(value), 10, 32)
		if known := isContext(name); !known && (err == nil || value.Kind() != '0') {
			return string(value), nil
		}
	}
	return "", wire.Invalid(printable(clipped(name)), "attribute %s must be a string", printable(clipped(name)))
}

func isContext(name string) bool {
	return slices.Contains([]string{"id", "source", "type", "subject", "time", "dataschema", "datacontenttype", "specversion"}, name)
}

// setAttribute sets an attribute. What the SDK finds wrong with it shows in checkEvent.
func setAttribute(e *event.Event, name, value string) error {
	if len(value) > maxAttribute || strings.ContainsFunc(value, forbidden) {
		shown := printable(clipped(name))
		return wire.Invalid(shown, "attribute %s must be at most %d bytes without control characters", shown, maxAttribute)
	}
	switch name {
	case "specversion":
	case "id":
		e.SetID(value)
	case "source":
		e.SetSource(value)
	case "type":
		e.SetType(value)
	case "subject":
		e.SetSubject(value)
	case "dataschema":
		e.SetDataSchema(value)
	case "datacontenttype":
		e.SetDataContentType(value)
	case "time":
		at, err := types.ParseTime(value)
		if err != nil {
			return wire.Invalid(name, "time must be as in RFC 3339")
		}
		e.SetTime(at)
	default:
		e.SetExtension(name, value)
	}
	return nil
}

// forbidden are the characters that CloudEvents takes in no string.
func forbidden(r rune) bool { return r < ' ' || r >= 0x7F && r <= 0x9F || r == '\uFFFD' }

// checkEvent says what is wrong with an event in the order of its attributes' names.
func checkEvent(e event.Event) error {
	err := e.Validate()
	if err == nil {
		return nil
	}
	wrong, ok := errors.AsType[event.ValidationError](err)
	if !ok || len(wrong) == 0 {
		return wire.Invalid("", "this is no valid CloudEvent").Because(err)
	}
	name := printable(clipped(slices.Sorted(maps.Keys(wrong))[0]))
	return wire.Invalid(name, "this is no valid CloudEvent: attribute %s is not valid", name).Because(err)
}

// clipped is as much of a stranger's name as an error repeats.
func clipped(name string) string {
	if len(name) <= maxField {
		return name
	}
	return strings.ToValidUTF8(name[:maxField], "") + "…"
}

// eventBody is the request that an event carries.
func eventBody(e event.Event) ([]byte, error) {
	media := mediaType(e.DataContentType())
	if media != "" && media != wire.ContentTypeJSON && !strings.HasSuffix(media, "+json") {
		return nil, wire.Invalid("datacontenttype", "datacontenttype must be %s", wire.ContentTypeJSON)
	}
	return e.Data(), nil
}
