package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"muster/wire"
)

// Check is one line of /readyz.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what is wrong, for an operator; "" when nothing is
}

// Checks tells whether this process can serve the functions, and what stands against it.
func (b *Bus) Checks(ctx context.Context, fns []Function) []Check {
	checks := []Check{{Name: "nats", OK: b.nc.IsConnected()}}
	if !checks[0].OK {
		checks[0].Detail = "not connected"
		if err := b.nc.LastError(); err != nil {
			checks[0].Detail += ": " + err.Error()
		}
	}
	if checks[0].OK && len(fns) > 0 {
		checks = append(checks, b.permitted(ctx, fns))
	}
	seen := map[string]bool{}
	add := func(c Check) {
		if !seen[c.Name] {
			seen[c.Name] = true
			checks = append(checks, c)
		}
	}
	for _, fn := range fns {
		for _, use := range fn.Buckets {
			add(b.Bucket(use.Bucket).check())
		}
		for _, spec := range fn.streams() {
			add(b.Stream(spec).check())
		}
		for _, use := range fn.Buckets {
			if use.eventful() {
				add(b.Stream(Events).followed(use.Bucket))
			}
		}
		if fn.triggerable() {
			add(b.triggersOf(fn.Name))
		}
		if fn.Ready != nil {
			checks = append(checks, fn.Ready()...)
		}
		if fn.checksCapture() {
			checks = append(checks, b.captured(ctx, fn))
		}
	}
	return checks
}

// checksCapture tells whether a function looks for streams that take its requests. What there is one of each does not: it
// would have to be let see the names of all streams; the function that asks it looks instead.
func (f *Function) checksCapture() bool { return len(f.Ops) > 0 && len(f.Instance) == 0 }

func (k *Bucket) check() Check {
	state := k.state.Load()
	return ours("bucket "+k.spec.Name, state.err, state.differs)
}

// ours is the check of something that is made here if it is absent: why it cannot be used, or how it differs.
func ours(name string, err *wire.Error, differs []string) Check {
	switch {
	case err != nil:
		return Check{Name: name, Detail: fmt.Sprintf("%s: %s", err.Details["reason"], err.Message)}
	case len(differs) > 0:
		return Check{Name: name, Detail: "exists with other settings, left as they are: " + strings.Join(differs, "; ")}
	}
	return Check{Name: name, OK: true}
}

// captured checks that no stream takes the requests of a function: it would answer them with its own acknowledgements.
func (b *Bus) captured(ctx context.Context, fn Function) Check {
	c := Check{Name: "requests " + fn.Name, OK: true}
	if !b.nc.IsConnected() {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	subjects := []string{wire.FunctionSubjects(fn.path())}
	for _, ask := range fn.Asks {
		if s := wire.FunctionSubjects(ask.Function); !slices.Contains(subjects, s) {
			subjects = append(subjects, s)
		}
	}
	for _, subject := range subjects {
		names := b.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
		var taken []string
		for name := range names.Name() {
			taken = append(taken, name)
		}
		if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			c.Detail = "cannot ask JetStream which streams take them: " + err.Error()
			return c
		}
		if len(taken) > 0 {
			c.OK = false
			c.Detail = fmt.Sprintf("stream %s captures %s; remove that from its subjects", strings.Join(taken, ", "), subject)
			return c
		}
	}
	return c
}

// HTTP serves /livez, /readyz and /metrics.
type HTTP struct {
	Addr   string // as it was bound
	server *http.Server
}

// ListenHTTP binds addr and serves in the background until Close.
func ListenHTTP(addr string, reg *prometheus.Registry, ready func(context.Context) []Check) (*HTTP, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { writeChecks(w, ready(r.Context())) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	h := &HTTP{Addr: l.Addr().String(), server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	go h.server.Serve(l) //nolint:errcheck // returns http.ErrServerClosed when closed, and nothing else can be done
	return h, nil
}

// Close ends it at once: nobody's change hangs on a scrape.
func (h *HTTP) Close() error { return h.server.Close() }

// writeChecks writes the checks as one JSON object, a line per check.
func writeChecks(w http.ResponseWriter, checks []Check) {
	ready := true
	var lines bytes.Buffer
	for i, c := range checks {
		ready = ready && c.OK
		line, err := json.Marshal(c)
		if err != nil {
			http.Error(w, "encode checks", http.StatusInternalServerError)
			return
		}
		if i > 0 {
			lines.WriteByte(',')
		}
		lines.WriteString("\n  ")
		lines.Write(line)
	}
	w.Header().Set("Content-Type", "application/json")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, "{\"ready\":%t,\"checks\":[%s\n]}\n", ready, lines.Bytes())
}
