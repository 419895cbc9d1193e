package runtime

import (
	"context"
	"reflect"
	"sync"

	"github.com/invopop/jsonschema"

	"muster/wire"
)

// Schemas is the reply of muster.<function>.schema.
type Schemas struct {
	Function string               `json:"function"`
	Version  string               `json:"version"`
	Ops      map[string]OpSchemas `json:"ops"`
}

// OpSchemas are the JSON Schemas of one op.
type OpSchemas struct {
	Subject     string             `json:"subject"` // with the ids' names in angle brackets
	Description string             `json:"description"`
	Triggerable bool               `json:"triggerable"`
	Errors      []wire.Code        `json:"errors"`
	Request     *jsonschema.Schema `json:"request"`
	Reply       *jsonschema.Schema `json:"reply"`
}

// SchemasOf makes the schemas of all ops of a function from its value.
func SchemasOf(fn Function) *Schemas {
	s := &Schemas{Function: fn.Name, Version: fn.Version, Ops: map[string]OpSchemas{}}
	for _, op := range fn.Ops {
		s.Ops[op.Name] = OpSchemas{
			Subject:     wire.Subject(fn.path(), op.Name, brackets(op.IDs)...),
			Description: op.Description,
			Triggerable: op.Changes,
			Errors:      op.codes(),
			Request:     schemaOf(op.request, wire.SchemaID(fn.Name, op.Name, "request"), false),
			Reply:       schemaOf(op.reply, wire.SchemaID(fn.Name, op.Name, "reply"), true),
		}
	}
	return s
}

// schemaOf reflects a type. Readers of replies must bear members that they do not know, so only requests are closed.
func schemaOf(t reflect.Type, id string, open bool) *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, DoNotReference: true, AllowAdditionalProperties: open}
	s := r.ReflectFromType(t)
	s.ID = jsonschema.ID(id)
	return s
}

// schemaOp is the op that every function has beside its own.
func schemaOp(fn Function) Op {
	schemas := sync.OnceValue(func() *Schemas { return SchemasOf(fn) })
	return NewOp[struct{}, any](Op{Name: "schema", Description: "the JSON Schemas of all ops"},
		func(context.Context, *Request[struct{}]) (any, error) { return schemas(), nil })
}
