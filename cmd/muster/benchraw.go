package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/wire"
)

// follow makes a stream that takes what is written to benchFollowed as MUSTER_EVENTS takes the records' revisions, so that
// the functions can be compared with what NATS itself does when every change is an event as well.
func (b *benchRun) follow(ctx context.Context, js jetstream.JetStream) error {
	s, err := js.Stream(ctx, wire.StreamEvents)
	if err != nil {
		return &exit{exitUnavailable, fmt.Errorf("look at stream %s (is muster serving here?): %w", wire.StreamEvents, err)}
	}
	cfg := s.CachedInfo().Config
	cfg.Name, cfg.Description = benchStream, "muster bench; may be deleted"
	cfg.Sources = []*jetstream.StreamSource{{
		Name: wire.BucketStream(benchFollowed),
		SubjectTransforms: []jetstream.SubjectTransformConfig{{
			Source: wire.BucketSubjects(benchFollowed), Destination: benchEventSubjects,
		}},
	}}
	if cfg.RePublish != nil {
		cfg.RePublish = &jetstream.RePublish{Source: benchEventSubjects, Destination: benchEventSubjects}
	}
	if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("make stream %s: %w", benchStream, err)
	}
	return nil
}

// rawUpdates makes a bucket with the settings of a bucket of record, and writes each caller's own key over its last
// revision, as fast as a client can.
func (b *benchRun) rawUpdates(ctx context.Context, js jetstream.JetStream, bucket string) (func(i, n int) (*nats.Msg, error), error) {
	s, err := js.Stream(ctx, wire.BucketStream(wire.BucketWanted))
	if err != nil {
		return nil, &exit{exitUnavailable, fmt.Errorf("look at bucket %s (is muster serving here?): %w", wire.BucketWanted, err)}
	}
	cfg := s.CachedInfo().Config
	cfg.Name, cfg.Subjects, cfg.Description = wire.BucketStream(bucket), []string{wire.BucketSubjects(bucket)}, "muster bench; may be deleted"
	if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return nil, fmt.Errorf("make bucket %s: %w", bucket, err)
	}
	kvs := make([]jetstream.KeyValue, benchClients)
	for i, nc := range b.conns {
		own, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		if kvs[i], err = own.KeyValue(ctx, bucket); err != nil {
			return nil, err
		}
	}
	revisions := make([]uint64, b.Callers)
	value := []byte(`{"agents":{"one":{"state":"paused"}}}`)
	return func(i, _ int) (*nats.Msg, error) {
		kv, key := kvs[i%benchClients], b.name+"-"+strconv.Itoa(i)
		rev, err := kv.Update(ctx, key, value, revisions[i])
		for range rawTries { // on several servers the last update may still count as under way
			if err == nil {
				break
			}
			if e, readErr := kv.Get(ctx, key); readErr == nil {
				rev, err = kv.Update(ctx, key, value, e.Revision())
			}
		}
		if err == nil {
			revisions[i] = rev
		}
		return nil, err
	}, nil
}

// rawTries is how often an update that was refused is tried again with what is stored.
const rawTries = 3
