package resolve

import (
	"context"
	"slices"
	"strings"
	"time"

	"muster/runtime"
	"muster/wire"
)

// lineSize is the most that a line of a list takes in a reply, in bytes.
const lineSize = 256

func (f *function) list(_ context.Context, r *runtime.Request[wire.Page]) (any, error) {
	limit, err := runtime.CheckPage(r.Body, 1)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if !f.services.Synced() || !f.backends.Synced() {
		why := f.doubt("", now).why
		return nil, wire.Errorf(wire.Unavailable, "services cannot be seen yet").With("reason", reasonOf(why)).Because(why)
	}
	names := append(f.services.Groups(), f.backends.Groups()...)
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		s := f.see(name)
		return s.kind() == "" && (s.record == nil || s.record.Err == nil) || strings.HasPrefix(name, "_")
	})
	names, next := runtime.CutPage(names, r.Body.After, min(limit, f.records.MaxValue()/lineSize))
	lines := make([]wire.ServiceLine, len(names))
	for i, name := range names {
		s := f.see(name)
		line := wire.ServiceLine{Service: name, Source: s.kind(), Status: wire.StatusUnresolved}
		a, err := judge(s, f.doubt(s.kind(), now), now)
		switch {
		case err == nil:
			line.Status, line.Backends = a.status, len(a.backends)
		case wire.AsError(err).Code == wire.CorruptRecord:
			line.Error = wire.CorruptRecord
		}
		lines[i] = line
	}
	return wire.Services{Services: lines, Next: next}, nil
}
