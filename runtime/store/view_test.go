package store

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// losing is a log whose first question is lost: it ends as the requester ends it.
type losing struct {
	*Memory
	asked atomic.Int64
}

func (l *losing) Confirm(then func(func(string, uint64) bool)) {
	if l.asked.Add(1) == 1 {
		time.AfterFunc(600*time.Millisecond, func() { then(nil) })
		return
	}
	l.Memory.Confirm(then)
}

// Those who ask while a question is lost wait for another one, however they come.
func TestView_ALostQuestionHoldsUpOnlyItsOwn(t *testing.T) {
	for name, later := range map[string]time.Duration{"while it looks well": time.Millisecond, "when it is slow": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &losing{Memory: NewMemory("b")}
				s := New(l, Codec[*string]{
					New: func() *string { return new(string) }, Clone: func(d *string) *string { c := *d; return &c },
					Decode: func(b []byte) (*string, error) { d := string(b); return &d, nil }, Encode: func(d *string) []byte { return []byte(*d) },
				}, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if _, err := s.Update(ctx, "k", Origin{}, func(d *string, _ uint64) (bool, error) { *d = "v"; return true, nil }); err != nil {
					t.Fatal(err)
				}
				first := make(chan time.Duration, 1)
				began := time.Now()
				go func() {
					if r, err := s.View(ctx, "k"); err != nil || *r.Doc != "v" {
						t.Errorf("the first: %v, %v", r, err)
					}
					first <- time.Since(began)
				}()
				time.Sleep(later)
				for range 3 {
					asked := time.Now()
					if r, err := s.View(ctx, "k"); err != nil || *r.Doc != "v" {
						t.Errorf("%v, %v", r, err)
					}
					if took := time.Since(asked); took > slowRound {
						t.Errorf("it took %v", took)
					}
				}
				if took := <-first; took < 600*time.Millisecond {
					t.Errorf("the first took %v, its question was not lost", took)
				}
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.rounds) > 0 || len(s.unsure) > 0 {
					t.Errorf("%d rounds go on, %d wait", len(s.rounds), len(s.unsure))
				}
				close(s.crew.jobs) // its goroutines would wait for more
			})
		})
	}
}
