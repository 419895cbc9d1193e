package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"muster/runtime/store"
	"muster/wire"
)

// record is what is stored of a service: where its backends come from and the last answer that this gave. A record
// without a source is a service that was removed.
type record struct {
	Source *wire.Source   `json:"source,omitzero"`
	Answer *found         `json:"answer,omitzero"`
	Rest   jsontext.Value `json:",embed"` // members that we do not know

	of string // what tells this source from others
}

// found is a set of backends as a source gave it.
type found struct {
	Backends   []backend `json:"backends"`
	Complete   bool      `json:"complete"`
	ObservedAt time.Time `json:"observed_at"` // when it first was so
}

// backend is a backend with what it is known by at its source.
type backend struct {
	wire.Backend
	Target string `json:"target,omitempty"` // of a DNS source: host and port of the SRV target
}

// codec stores records.
var codec = store.Codec[*record]{
	New:    func() *record { return &record{} },
	Decode: decodeRecord,
	Encode: func(r *record) []byte { return encode(r) },
	Clone:  func(r *record) *record { c := *r; return &c },
}

func decodeRecord(value []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("decode service record: %w", err)
	}
	if r.Source != nil && r.Source.Kind() == "" {
		return nil, fmt.Errorf("decode service record: its source is of no kind that is known")
	}
	r.of = sourceOf(r.Source)
	return r, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(fmt.Sprintf("encode: %v", err)) // only types that can be encoded, and members that were decoded
	}
	return b
}

// sourceOf identifies a source by its content.
func sourceOf(s *wire.Source) string {
	if s.Kind() == "" {
		return ""
	}
	sum := sha256.Sum256(encode(s))
	return hex.EncodeToString(sum[:8])
}

// define sets the source; an answer of another source is none of this one.
func (r *record) define(s *wire.Source, now time.Time) (changed bool) {
	of := sourceOf(s)
	if r.Source != nil && r.of == of {
		return false
	}
	r.Source, r.of, r.Answer = s, of, nil
	if s.Static != nil {
		r.Answer = &found{Backends: static(s.Static), Complete: true, ObservedAt: now.UTC()}
	}
	return true
}

// remove takes the source away.
func (r *record) remove() { r.Source, r.of, r.Answer = nil, "", nil }

// answered notes what the source of says now; nothing when it is no longer the source, or says what it said.
func (r *record) answered(of string, f found) (changed bool) {
	if r.of != of || r.Source == nil || r.Answer != nil && r.Answer.same(f) {
		return false
	}
	for i := range f.Backends {
		f.Backends[i].ExpiresAt = nil // it moves with each refresh
	}
	r.Answer = &f
	return true
}

func (f *found) same(g found) bool {
	return f.Complete == g.Complete && slices.EqualFunc(f.Backends, g.Backends, func(a, b backend) bool {
		a.ExpiresAt, b.ExpiresAt = nil, nil
		return a == b
	})
}

// static are the backends of a static source, in the order of their names.
func static(addresses map[string]string) []backend {
	all := make([]backend, 0, len(addresses))
	for name, address := range addresses {
		all = append(all, backend{Backend: wire.Backend{Name: name, Address: address}})
	}
	slices.SortFunc(all, compareNames)
	return all
}

func compareNames(a, b backend) int { return strings.Compare(a.Name, b.Name) }
