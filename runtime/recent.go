package runtime

import (
	"hash/maphash"
	"sync/atomic"
)

// Recent keeps what was made last for a few keys, so that what many ask for at once is made once. Nothing stays for long: a
// key pushes out any other of its slot. The zero value is empty. It is safe for any number of goroutines.
type Recent[V any] struct {
	slots [64]atomic.Pointer[recentValue[V]]
}

type recentValue[V any] struct {
	key   string
	value V
}

var recentSeed = maphash.MakeSeed()

// Get returns the value of a key, if it is still there. The value is shared.
func (r *Recent[V]) Get(key []byte) (value V, ok bool) {
	v := r.slots[maphash.Bytes(recentSeed, key)%uint64(len(r.slots))].Load()
	if v == nil || v.key != string(key) {
		return value, false
	}
	return v.value, true
}

// Put keeps the value of a key.
func (r *Recent[V]) Put(key []byte, value V) {
	r.slots[maphash.Bytes(recentSeed, key)%uint64(len(r.slots))].Store(&recentValue[V]{string(key), value})
}
