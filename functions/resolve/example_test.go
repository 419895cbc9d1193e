package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"muster/functions/resolve"
)

// A caller keeps the backends of a service at hand over its own connection, and never takes "cannot tell" for "none".
func ExampleWatch() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	w, err := resolve.Watch(context.Background(), nc, "mgs")
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for range w.Changes() {
		backends, err := w.Backends()
		var stale *resolve.StaleError
		switch {
		case err == nil:
			fmt.Println("now:", backends)
		case errors.As(err, &stale):
			fmt.Printf("last known, %v old: %v\n", time.Since(stale.Since), backends)
		default: // resolve.ErrNobody, resolve.ErrNotYet, resolve.ErrClosed
			fmt.Println("not known:", err)
		}
	}
}
