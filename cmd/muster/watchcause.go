package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"muster/runtime"
	"muster/wire"
)

// causes is the flag that has a watch say what caused each revision it sees.
type causes struct {
	Causes bool `help:"Print a line for each revision of the record, too: what asked for it, by request id, id of the trigger and trace."`
}

// beside says what caused the revisions of a record while its watch runs. What it returns is where the watch writes.
func (c causes) beside(ctx context.Context, conn connection, std streams, bucket, key string) (out streams, stop func(), err error) {
	if !c.Causes {
		return std, func() {}, nil
	}
	std.out = &inTurn{w: std.out}
	bus, err := runtime.Connect(runtime.Options{Name: "muster watch", Dial: conn.dial, Log: newLogger(quiet{})})
	if err != nil {
		return std, nil, dialFailed(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bus.Follow(ctx, bucket, key, func(s runtime.Sight) {
			if line := causeLine(key, s); line != "" {
				fmt.Fprintln(std.out, line)
			}
		})
	}()
	return std, func() {
		cancel()
		<-ended
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		bus.Close(end) //nolint:errcheck // nothing was published
	}, nil
}

// causeLine tells of one revision; "" when there is none.
func causeLine(key string, s runtime.Sight) string {
	r := s.Revision
	if s.Blind != nil || r.Revision == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s revision %d at %s", key, r.Revision, r.Time.UTC().Format(time.RFC3339))
	if r.Marker {
		b.WriteString(" removed")
	}
	for _, h := range []struct{ name, header string }{
		{"requestid", wire.HeaderCERequestID}, {"causationid", wire.HeaderCECausationID},
		{"traceparent", wire.HeaderCETraceparent}, {"changes", wire.HeaderCEChanges},
	} {
		if v := r.Header[h.header]; len(v) > 0 {
			fmt.Fprintf(&b, " %s=%s", h.name, v[0]) // as it is encoded: one word
		}
	}
	return b.String()
}

// inTurn is a writer for several.
type inTurn struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *inTurn) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b)
}
