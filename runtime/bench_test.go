package runtime_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"muster/runtime/natstest"
	"muster/runtime/store"
)

// Rates of the store alone, without a service before it, on one server in this process: read them as ratios.
//
//	go test -run '^$' -bench . -cpu 2 ./runtime

const benchCallers = 64

func benchStore(b *testing.B) *store.Store[tally] {
	b.Helper()
	node := natstest.Start(b)
	s := newStore(bucketOf(b, connect(b, node.URL(), 1), testBucket))
	b.SetParallelism(benchCallers)
	b.ReportAllocs()
	return s
}

// Everybody changes one key: group commit.
func BenchmarkUpdateHot(b *testing.B) {
	s := benchStore(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Update(b.Context(), "hot", store.Origin{}, add("a")); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// Everybody changes a key of his own: a write each.
func BenchmarkUpdateOwn(b *testing.B) {
	s := benchStore(b)
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint("own", callers.Add(1))
		for pb.Next() {
			if _, err := s.Update(b.Context(), key, store.Origin{}, add("a")); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// Everybody changes a key of his own, with a request id: an atomic batch of record and memo.
func BenchmarkUpdateOwnWithID(b *testing.B) {
	s := benchStore(b)
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint("own", callers.Add(1))
		for i := 0; pb.Next(); i++ {
			if _, err := s.Update(b.Context(), key, request(key, fmt.Sprint("id", i), "body"), add("a")); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// Everybody reads one key.
func BenchmarkView(b *testing.B) {
	s := benchStore(b)
	update(b, s, "hot", store.Origin{}, add("a"))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.View(b.Context(), "hot"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// Everybody reads a key of his own.
func BenchmarkViewOwn(b *testing.B) {
	s := benchStore(b)
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint("own", callers.Add(1))
		if _, err := s.Update(b.Context(), key, store.Origin{}, add("a")); err != nil {
			b.Error(err)
			return
		}
		for pb.Next() {
			if _, err := s.View(b.Context(), key); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// Everybody reads a key of his own while one key is written: young, and when it has as many revisions as the bucket keeps.
func BenchmarkViewBesideAWriter(b *testing.B) {
	for _, revisions := range []int{1, 300} {
		b.Run(fmt.Sprint(revisions, " revisions"), func(b *testing.B) {
			s := benchStore(b)
			for range revisions {
				update(b, s, "written", store.Origin{}, add("a"))
			}
			ctx, cancel := context.WithCancel(b.Context())
			var writer sync.WaitGroup
			writes := 0
			writer.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.Update(b.Context(), "written", store.Origin{}, add("a")); err != nil {
						b.Error(err)
						return
					}
					writes++
				}
			})
			var callers atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				key := fmt.Sprint("own", callers.Add(1))
				if _, err := s.Update(b.Context(), key, store.Origin{}, add("a")); err != nil {
					b.Error(err)
					return
				}
				for pb.Next() {
					if _, err := s.View(b.Context(), key); err != nil {
						b.Error(err)
						return
					}
				}
			})
			cancel()
			writer.Wait()
			b.ReportMetric(float64(writes)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}
