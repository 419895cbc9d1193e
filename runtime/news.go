package runtime

import "sync"

// News is a set of names about which there is something new, for one who takes them when it has time.
type News struct {
	C chan struct{} // has a signal while there is something to take

	mu    sync.Mutex
	names map[string]struct{}
}

// NewNews makes one without names.
func NewNews() *News { return &News{C: make(chan struct{}, 1), names: map[string]struct{}{}} }

// Add adds a name. It does not wait.
func (n *News) Add(name string) {
	n.mu.Lock()
	n.names[name] = struct{}{}
	n.mu.Unlock()
	select {
	case n.C <- struct{}{}:
	default:
	}
}

// Take returns the names and forgets them.
func (n *News) Take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	clear(n.names)
	return names
}
