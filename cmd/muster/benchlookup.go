package main

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"muster/wire"
)

// lookups is the line of a service with three backends, which all callers look up.
func (b *benchRun) lookups(compare func(line string) func() string) benchLine {
	const name = "resolve.lookup"
	subject := wire.Subject(wire.Resolve, "lookup", b.name)
	return benchLine{
		name: name, callers: b.Callers, compare: compare(name),
		prepare: func() error {
			for i := range 3 {
				body := fmt.Appendf(nil, `{"address":"[fd00::%d]:80","ttl":"1h"}`, i+1)
				if _, err := b.request(0, wire.Subject(wire.Resolve, "register", b.name, fmt.Sprintf("b%d", i)), body); err != nil {
					return fmt.Errorf("register with %s: %w", b.name, err)
				}
			}
			return nil
		},
		do: func(i, _ int) (*nats.Msg, error) { return b.request(i, subject, nil) },
	}
}

// removeService forgets the service that was looked up, if it was.
func (b *benchRun) removeService() error {
	if b.samples["resolve.lookup"] == nil {
		return nil
	}
	if _, err := b.request(0, wire.Subject(wire.Resolve, "remove", b.name), nil); err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("remove service %s: %w", b.name, err)
	}
	return nil
}
