package resolve

import (
	"context"
	"strings"
	"time"

	"muster/runtime"
	"muster/runtime/store"
	"muster/wire"
)

func (f *function) define(ctx context.Context, r *runtime.Request[wire.Source]) (any, error) {
	source := r.Body
	if err := checkSource(&source); err != nil {
		return nil, err
	}
	service, now := r.IDs[0], time.Now()
	doc, err := f.records.Update(ctx, service, r.Origin, func(doc *record, _ uint64) (bool, error) {
		return doc.define(&source, now), nil
	})
	if err != nil {
		return nil, err
	}
	return wire.ServiceDefined{Service: service, Revision: doc.Revision}, nil
}

// remove forgets a service: its record first, so that nobody who registers meanwhile is forgotten without being told,
// then its leases.
func (f *function) remove(ctx context.Context, r *runtime.Request[struct{}]) (any, error) {
	service := r.IDs[0]
	leased, err := f.leased(ctx, service)
	if err != nil {
		return nil, err
	}
	_, err = f.records.Update(ctx, service, r.Origin, func(doc *record, _ uint64) (bool, error) {
		if doc.Source == nil && len(leased) == 0 {
			return false, wire.Errorf(wire.ServiceNotFound, "service %s is not defined and nobody has registered for it", service)
		}
		changed := doc.Source != nil
		doc.remove()
		return changed, nil
	})
	if err != nil {
		return nil, err
	}
	if leased, err = f.leased(ctx, service); err != nil {
		return nil, err
	}
	for _, key := range leased {
		if err := store.Remove(ctx, f.log, key, true); err != nil {
			return nil, err
		}
	}
	return wire.ServiceRemoved{Service: service}, nil
}

// leased lists the keys of a service's leases, as the leader has them.
func (f *function) leased(ctx context.Context, service string) ([]string, error) {
	keys, err := f.log.Keys(ctx)
	if err != nil {
		return nil, err
	}
	var own []string
	for _, key := range keys {
		if !strings.HasPrefix(key, service+".") {
			continue
		}
		rev, err := store.Read(ctx, f.log, key)
		if err != nil {
			return nil, err
		}
		if !rev.Absent() { // what was removed is listed for a moment
			own = append(own, key)
		}
	}
	return own, nil
}

func (f *function) register(ctx context.Context, r *runtime.Request[wire.Register]) (any, error) {
	service, name := r.IDs[0], r.IDs[1]
	ttl, err := ttlOf(r.Body.TTL)
	if err != nil {
		return nil, err
	}
	if err := checkAddress("address", r.Body.Address); err != nil {
		return nil, err
	}
	if err := f.takesLeases(ctx, service); err != nil {
		return nil, err
	}
	fresh := f.NewID()
	reply, err := f.lease(ctx, service, name, r.Origin, func(l *lease, over bool) (bool, error) {
		if r.Body.Lease != "" && over || !l.register(r.Body.Lease, fresh, r.Body.Address, ttl, time.Now()) {
			return false, errExpired(service, name)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	// Again: a remove may have come in between, and seen either nothing to remove or this lease.
	if err := f.takesLeases(ctx, service); err != nil {
		return nil, err
	}
	return reply, nil
}

// takesLeases makes sure that there is a record which says that the service's backends register.
func (f *function) takesLeases(ctx context.Context, service string) error {
	_, err := f.records.Update(ctx, service, store.Origin{}, func(doc *record, _ uint64) (bool, error) {
		switch kind := doc.Source.Kind(); kind {
		case wire.SourceLeases:
			return false, nil
		case "":
			return doc.define(&wire.Source{Leases: &struct{}{}}, time.Now()), nil
		default:
			return false, wire.Invalid("", "service %s has its backends from %s; define it as leases before any registers", service, kind)
		}
	})
	return err
}

func (f *function) heartbeat(ctx context.Context, r *runtime.Request[wire.Heartbeat]) (any, error) {
	service, name := r.IDs[0], r.IDs[1]
	if r.Body.Lease == "" {
		return nil, wire.Invalid("lease", "lease is required")
	}
	return f.lease(ctx, service, name, r.Origin, func(l *lease, over bool) (bool, error) {
		if over || !l.renew(r.Body.Lease, time.Now()) {
			return false, errExpired(service, name)
		}
		return true, nil
	})
}

func (f *function) deregister(ctx context.Context, r *runtime.Request[wire.Heartbeat]) (any, error) {
	service, name := r.IDs[0], r.IDs[1]
	if r.Body.Lease == "" {
		return nil, wire.Invalid("lease", "lease is required")
	}
	_, err := f.lease(ctx, service, name, r.Origin, func(l *lease, over bool) (bool, error) {
		if over || !l.end(r.Body.Lease) {
			return false, errExpired(service, name)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return wire.Deregistered{Service: service, Backend: name}, nil
}

// lease changes a lease. over tells that its time is over although it is still stored.
func (f *function) lease(ctx context.Context, service, name string, from store.Origin, change func(l *lease, over bool) (bool, error)) (any, error) {
	key := service + "." + name
	doc, err := f.held.Update(ctx, key, from, func(l *lease, revision uint64) (bool, error) {
		return change(l, expired(f.backends.Group(service), key, revision, time.Now()))
	})
	if err != nil {
		return nil, err
	}
	return wire.Lease{Lease: doc.Doc.Lease, TTL: doc.Doc.TTL, ExpiresAt: doc.Doc.ExpiresAt, Revision: doc.Revision}, nil
}
