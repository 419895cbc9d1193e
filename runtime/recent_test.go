package runtime

import (
	"strconv"
	"sync"
	"testing"
)

func TestRecent_KeepsTheLastOfAKeyAndNoOthers(t *testing.T) {
	var r Recent[int]
	if v, ok := r.Get([]byte("a")); ok {
		t.Errorf("empty, and has %d", v)
	}
	r.Put([]byte("a"), 1)
	r.Put([]byte("a"), 2)
	if v, ok := r.Get([]byte("a")); !ok || v != 2 {
		t.Errorf("%d, %t, want 2", v, ok)
	}
	// Far more keys than slots: whatever is found is the key's own.
	for i := range 10_000 {
		r.Put([]byte(strconv.Itoa(i)), i)
	}
	found := 0
	for i := range 10_000 {
		v, ok := r.Get([]byte(strconv.Itoa(i)))
		if ok && v != i {
			t.Fatalf("%d is kept for %d", v, i)
		}
		if ok {
			found++
		}
	}
	if found == 0 || found > len(r.slots) {
		t.Errorf("%d found of %d slots", found, len(r.slots))
	}
}

func TestRecent_ManyAtOnce(t *testing.T) {
	var r Recent[string]
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 2000 {
				key := strconv.Itoa((i + w) % 200)
				if v, ok := r.Get([]byte(key)); ok && v != key {
					t.Errorf("%s is kept for %s", v, key)
				}
				r.Put([]byte(key), key)
			}
		})
	}
	all.Wait()
}
