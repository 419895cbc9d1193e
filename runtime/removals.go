package runtime

// removals explains why a stream lost messages. A key that has as many revisions as the bucket keeps loses its oldest with
// each new one: everyday, and no reason to read anything again. Everything else that is lost went without a message that a
// feed could hear, and may have been the last of its key: by a purge of the stream, by expiry, by hand.
//
// Which keys are full is learnt: when messages are lost, explain names keys that got revisions for the leader to be asked
// about. A key that is not full any more has lost revisions first, so no loss can hide behind it.
type removals struct {
	last    uint64              // what was lost up to this sequence is accounted for
	removed uint64              // messages lost by then
	full    map[string]uint64   // keys whose history is full, and since which sequence
	pushed  []uint64            // sequences behind last of messages that pushed out another, in order
	fresh   map[string]struct{} // keys heard since
}

// unsureKeys is how many keys are asked about for one loss.
const unsureKeys = 4

func newRemovals(messages, last uint64) *removals {
	return &removals{
		last: last, removed: lost(messages, last), full: map[string]uint64{}, fresh: map[string]struct{}{},
	}
}

// lost is how many messages a stream has ever lost.
func lost(messages, last uint64) uint64 { return last - min(messages, last) }

// hear takes a revision; alone says that the server removes all others of its key with it.
func (r *removals) hear(key string, seq uint64, alone bool) {
	if alone {
		delete(r.full, key)
		return
	}
	if since, ok := r.full[key]; ok && seq > since {
		r.pushed = append(r.pushed, seq)
	}
	r.fresh[key] = struct{}{}
}

// isFull notes that a key's history was full when the stream was at last, and begins to account there. It tells whether
// it did: what went before is not explained then.
func (r *removals) isFull(key string, messages, last uint64) bool {
	if last < r.last {
		return false
	}
	r.full[key] = last
	r.begin(messages, last)
	return true
}

func (r *removals) begin(messages, last uint64) {
	n := 0
	for n < len(r.pushed) && r.pushed[n] <= last {
		n++
	}
	r.last, r.removed, r.pushed = last, lost(messages, last), append(r.pushed[:0], r.pushed[n:]...)
}

// explain tells whether what a stream has lost at its sequence last is what its full keys pushed out. All revisions up
// to last were heard before. When it is not, unsure are keys that may be full.
func (r *removals) explain(messages, last uint64) (ok bool, unsure []string) {
	gone := lost(messages, last)
	if last < r.last { // an answer that was overtaken
		return gone <= r.removed, nil
	}
	due := 0
	for due < len(r.pushed) && r.pushed[due] <= last {
		due++
	}
	if ok = gone == r.removed+uint64(due); !ok {
		clear(r.full) // any of them may have been purged
		for key := range r.fresh {
			if unsure = append(unsure, key); len(unsure) == unsureKeys {
				break
			}
		}
	}
	r.begin(messages, last)
	clear(r.fresh)
	return ok, unsure
}
