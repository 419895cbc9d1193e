package runtime

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/wire"
)

// maxBody is the size of the largest request body, in bytes.
const maxBody = 256 << 10

// strict is one value, so that it is not made for every request.
var strict = json.JoinOptions(json.RejectUnknownMembers(true))

var byteOrderMark = []byte("\xEF\xBB\xBF")

// decode reads a request body strictly: no unknown or duplicate members, no member in another letter case, no wrong
// types, nothing behind the object, valid UTF-8 only. An empty body is {}. A null is a missing member. The error is an
// InvalidRequest with the member's dotted path in details.field, as in agents.a.state or ports[0].port.
func decode(body []byte, into any) error {
	if bytes.HasPrefix(body, byteOrderMark) {
		return wire.Invalid("", "the body begins with a UTF-8 byte order mark; send it without")
	}
	whole := len(body)
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) == 0 {
		return nil
	}
	if body[0] != '{' {
		return wire.Invalid("", "the body must be a JSON object")
	}
	err := json.Unmarshal(body, into, strict)
	if err == nil {
		return nil
	}
	return explain(err, whole-len(body), reflect.TypeOf(into).Elem())
}

// explain says what is wrong with a body without repeating more of it than member names that are names. before is how many
// bytes were left out in front of what was read.
func explain(err error, before int, in reflect.Type) *wire.Error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		field := dotted(e.JSONPointer, in)
		if errors.Is(e, jsontext.ErrDuplicateName) {
			return wire.Invalid(field, "member %s is there twice", printable(field))
		}
		return wire.Invalid(field, "the body is not valid JSON, at byte %d", int64(before)+e.ByteOffset)
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return wire.Invalid("", "the body cannot be read")
	}
	field := dotted(e.JSONPointer, in)
	if errors.Is(e, json.ErrUnknownName) {
		return wire.Invalid(field, "unknown member %s; known are: %s", printable(field), known(e.JSONPointer.Parent(), in))
	}
	return wire.Invalid(field, "member %s must be %s", printable(field), kind(e.GoType))
}

// known lists the members that the object at p may have.
func known(p jsontext.Pointer, in reflect.Type) string {
	t := at(p, in)
	if t == nil || t.Kind() != reflect.Struct {
		return "none"
	}
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// at is the type of the value at p within a value of type t; nil when there is none.
func at(p jsontext.Pointer, t reflect.Type) reflect.Type {
	for token := range p.Tokens() {
		if t = step(t, token); t == nil {
			return nil
		}
	}
	return deref(t)
}

func step(t reflect.Type, token string) reflect.Type {
	t = deref(t)
	if t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return t.Elem()
	case reflect.Struct:
		for i := range t.NumField() {
			if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == token {
				return t.Field(i).Type
			}
		}
	}
	return nil
}

func deref(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// dotted writes a JSON pointer into a value of type t as people write it: agents.a.state, ports[0].port.
func dotted(p jsontext.Pointer, t reflect.Type) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if k := deref(t); k != nil && k.Kind() == reflect.Slice {
			b.WriteString("[" + token + "]")
		} else {
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(token)
		}
		t = step(t, token)
		if b.Len() > maxField {
			return strings.ToValidUTF8(b.String()[:maxField], "") + "…"
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// maxField bounds a path in an error; deeper than our own bodies go, it is the sender's fantasy.
const maxField = 200

// printable is a path for a message: quoted unless it looks like a path of names.
func printable(field string) string {
	if field == "" {
		return `""`
	}
	for _, c := range field {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_-.[]", c) {
			return strconv.QuoteToASCII(field)
		}
	}
	return field
}

// kind names a type as JSON knows it.
func kind(t reflect.Type) string {
	t = deref(t)
	if t == nil {
		return "of another type"
	}
	if own, ok := reflect.Zero(t).Interface().(interface{ JSONKind() string }); ok {
		return own.JSONKind()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an unsigned integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "of another type"
}

// digest identifies a body by its content, not by its spaces or the order of its members.
func digest(body any) (string, error) {
	b, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode request for its digest: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}
