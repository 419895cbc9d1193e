package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/resolve"
	"muster/wire"
)

// watchService is the command `muster watch service`.
type watchService struct {
	connection
	causes
	Name string `arg:"" help:"Name of the service."`
}

func (c watchService) Run(ctx context.Context, std streams) error {
	if !wire.ValidName(c.Name) {
		return &exit{exitUsage, errors.New("the service's name must match " + wire.NamePattern)}
	}
	std, stop, err := c.beside(ctx, c.connection, std, wire.BucketServices, c.Name)
	if err != nil {
		return err
	}
	defer stop()
	nc, err := c.dial(nats.Name("muster watch"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return dialFailed(err)
	}
	defer nc.Close()
	w, err := resolve.Watch(ctx, nc, c.Name)
	if err != nil {
		return err
	}
	defer w.Close()
	last := ""
	say := func() {
		if line := serviceLine(c.Name, w); line != last {
			last = line
			fmt.Fprintf(std.out, "%s %s\n", time.Now().UTC().Format(time.RFC3339), line)
		}
	}
	select { // most often the first answer is there at once, and "not resolved yet" would only confuse
	case <-w.Changes():
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil
	}
	for {
		say()
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-w.Changes():
			if !open {
				return nil
			}
		}
	}
}

// serviceLine says in a line what is known of a service: "mgs ok mgs0=[fd00::1]:80" or "mgs stale since …: why, last mgs0=…".
func serviceLine(name string, w *resolve.Watcher) string {
	backends, err := w.Backends()
	var all []string
	for _, b := range backends {
		all = append(all, b.Name+"="+b.Address)
	}
	list := strings.Join(all, " ")
	switch {
	case err == nil && list == "":
		return name + " ok, no backends"
	case err == nil:
		return name + " ok " + list
	case list == "":
		return fmt.Sprintf("%s %v", name, err)
	}
	return fmt.Sprintf("%s %v, last %s", name, err, list)
}
