package declare

import (
	"slices"
	"strconv"
)

// declaration is the reply of set, create, apply and view; on the wire a [wire.Declaration].
type declaration struct {
	hive     string
	revision uint64
	changed  bool
	agents   []byte // encoded; nil for a brief reply
}

// AppendJSON implements [runtime.Appender]. A hive is a name, which needs no escapes.
func (d declaration) AppendJSON(b []byte) []byte {
	b = slices.Grow(b, envelope+len(d.agents))
	b = append(b, `{"hive":"`...)
	b = append(b, d.hive...)
	b = append(b, `","revision":`...)
	b = strconv.AppendUint(b, d.revision, 10)
	b = append(b, `,"changed":`...)
	b = strconv.AppendBool(b, d.changed)
	if d.agents != nil {
		b = append(b, `,"agents":`...)
		b = append(b, d.agents...)
	}
	return append(b, '}')
}
