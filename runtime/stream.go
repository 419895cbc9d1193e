package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/wire"
)

// Stream is one of the product's own streams as this process sees it: made if it is absent, never changed if it differs.
// One that vanished is made again: a queue that is empty says nothing wrong, and the events fill up from the buckets.
type Stream struct {
	bus   *Bus
	spec  StreamSpec
	state atomic.Pointer[streamState]
	again chan struct{}

	mu     sync.Mutex // of looking how far the events are
	asking bool
	asked  time.Time     // when the last answer came
	urgent bool          // somebody waits for the next look
	wanted chan struct{} // closed when the next look is done; nil when nobody asked for one
}

type streamState struct {
	err     *wire.Error
	differs []string
	created time.Time // zero while none was seen
	sources map[string]jetstream.StreamSourceInfo
	seen    time.Time // when it was last looked at with success
	late    bool

	clustered bool // another server may lead it
}

// streamCalm is how often a stream is looked at while nothing is wrong.
const streamCalm = time.Second

// sourceSilence is how long a source may show no sign of life. It has a heartbeat a second.
const sourceSilence = 5 * time.Second

// lookPause is between two looks at how far the events are, lookUrgent when somebody's write waits for one. A key that is
// written as fast as it goes, three times a millisecond, must not be held up by the pause.
const (
	lookPause  = 20 * time.Millisecond
	lookUrgent = 2 * time.Millisecond
)

// Stream follows a stream and makes it if it is absent and may be made. The same one is returned every time.
func (b *Bus) Stream(spec StreamSpec) *Stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.streams[spec.Name]; s != nil {
		return s
	}
	s := &Stream{bus: b, spec: spec, again: make(chan struct{}, 1)}
	s.state.Store(&streamState{err: errNotConnected()})
	b.streams[spec.Name] = s
	b.work.Go(s.follow)
	return s
}

func (s *Stream) look() {
	select {
	case s.again <- struct{}{}:
	default:
	}
}

// follow keeps state true until the bus closes.
func (s *Stream) follow() {
	var still stall
	for {
		old := s.state.Load()
		now := s.inspect(s.bus.closing, old)
		s.state.Store(now)
		s.report(old, now)
		if still.due(now.err != nil || !now.clustered || s.running(now), time.Now()) {
			s.restart(now)
		}
		wait := streamCalm
		switch {
		case now.err != nil && now.err.Details["reason"] == wire.PermissionDenied:
			wait = 5 * time.Second
		case now.err != nil || !s.running(now):
			wait = lookTrouble
		}
		select {
		case <-s.bus.closing.Done():
			return
		case <-s.again:
		case <-time.After(wait):
		}
	}
}

func (s *Stream) report(old, now *streamState) {
	switch {
	case s.bus.closing.Err() != nil: // the look was cut short, which says nothing
		return
	case now.err != nil && (old.err == nil || old.err.Details["reason"] != now.err.Details["reason"]):
		s.bus.log.Warn("stream unusable", "stream", s.spec.Name, "reason", now.err.Details["reason"], "cause", now.err)
	case now.err == nil && old.err != nil:
		s.bus.log.Info("stream usable", "stream", s.spec.Name)
	}
	if a, b := strings.Join(old.differs, "; "), strings.Join(now.differs, "; "); b != "" && a != b {
		s.bus.log.Warn("stream has other settings than ours; left as it is", "stream", s.spec.Name, "differences", b)
	}
}

// inspect looks at the stream, and makes it if there is none.
func (s *Stream) inspect(ctx context.Context, old *streamState) *streamState {
	ctx, cancel := context.WithTimeout(ctx, 4*lookTimeout)
	defer cancel()
	state := &streamState{created: old.created, differs: old.differs, sources: old.sources, seen: old.seen}
	if !s.bus.nc.IsConnected() {
		state.err = errNotConnected()
		return state
	}
	began := time.Now()
	want := s.spec.stream(s.bus.replicas)
	got, err := s.bus.js.Stream(ctx, s.spec.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.taken(nil)
		if !old.created.IsZero() {
			s.bus.log.Warn("stream is gone; making it again", "stream", s.spec.Name)
		} else {
			s.makeSources(ctx)
		}
		got, err = s.bus.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // made by another replica at the same time
			got, err = s.bus.js.Stream(ctx, s.spec.Name)
		}
		if err != nil && s.bus.refused(wire.APIStreamCreate(s.spec.Name), began) {
			state.err = wire.Errorf(wire.Unavailable, "stream %s is missing, and this process may not make it", s.spec.Name).
				With("reason", wire.PermissionDenied).Because(err)
			return state
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && old.err == nil && !old.late:
		state.late = true
		return state
	case !s.bus.nc.IsConnected():
		state.err = errNotConnected().Because(err)
		return state
	case s.bus.refused(wire.APIStreamInfo(s.spec.Name), began):
		state.err = wire.Errorf(wire.Unavailable, "this process is not permitted to look at stream %s", s.spec.Name).
			With("reason", wire.PermissionDenied).Because(err)
		return state
	default:
		detail := "JetStream does not answer"
		if api := apiError(err); api != nil {
			detail = "JetStream refuses it: " + api.Description
		}
		state.err = wire.Errorf(wire.Unavailable, "%s", detail).With("reason", wire.JetStreamUnavailable).Because(err)
		return state
	}
	info := got.CachedInfo()
	state.differs = streamDifferences(want, info.Config)
	state.created, state.seen = info.Created, time.Now()
	state.clustered = info.Cluster != nil && len(info.Cluster.Replicas) > 0
	if s.spec.Name == wire.StreamEvents {
		s.bus.copied.Store(info.Config.Replicas > 1)
	}
	state.sources = map[string]jetstream.StreamSourceInfo{}
	p := &eventsPosition{Created: info.Created}
	for _, source := range info.Sources {
		state.sources[source.Name] = *source
		p.Sources = append(p.Sources, sourcePosition{source.Name, source.Seq})
	}
	for _, source := range info.Config.Sources {
		p.Config.Sources = append(p.Config.Sources, sourcePosition{Name: source.Name})
	}
	s.taken(p)
	return state
}

// makeSources makes the buckets that the stream takes its messages from, those of functions that run elsewhere or not yet
// too: a source of a stream that is not there is tried again at growing intervals of up to two minutes.
func (s *Stream) makeSources(ctx context.Context) {
	for _, spec := range s.spec.sources {
		s.makeSource(ctx, spec)
	}
}

func (s *Stream) makeSource(ctx context.Context, spec BucketSpec) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout/2) // one that may not be asked for gets no answer
	defer cancel()
	if _, err := s.bus.js.Stream(ctx, wire.BucketStream(spec.Name)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return
	}
	if _, err := s.bus.js.CreateStream(ctx, spec.stream(s.bus.replicas)); err != nil {
		s.bus.log.Debug("bucket for the events not made", "bucket", spec.Name, "cause", err)
	}
}

// running tells whether every source of the stream runs.
func (s *Stream) running(state *streamState) bool {
	for _, spec := range s.spec.sources {
		if sourceProblem(state, spec) != "" {
			return false
		}
	}
	return true
}

// sourceProblem tells why the stream does not take the revisions of a bucket; "" when it does.
func sourceProblem(state *streamState, spec BucketSpec) string {
	source, ok := state.sources[wire.BucketStream(spec.Name)]
	switch {
	case state.seen.IsZero():
		return "not seen yet"
	case !ok:
		return "it is none of its sources"
	case source.Error != nil:
		return "its source is not running: " + source.Error.Description
	case source.Active < 0:
		return "its source is not running yet"
	case source.Active > sourceSilence:
		return fmt.Sprintf("its source has been silent for %v", source.Active.Round(time.Second))
	}
	return ""
}

func (s *Stream) check() Check {
	state := s.state.Load()
	return ours("stream "+s.spec.Name, state.err, state.differs)
}

// followed checks that the events follow a bucket.
func (s *Stream) followed(spec BucketSpec) Check {
	c := Check{Name: "events of " + spec.Name, Detail: sourceProblem(s.state.Load(), spec)}
	c.OK = c.Detail == ""
	return c
}

// eventsPosition is how far the events stream is with each bucket.
type eventsPosition struct {
	Created time.Time        `json:"created"`
	Sources []sourcePosition `json:"sources"`
	Config  struct {
		Sources []sourcePosition `json:"sources"`
	} `json:"config"`
	Error *jetstream.APIError `json:"error"`
}

type sourcePosition struct {
	Name string `json:"name"`
	Seq  uint64 `json:"seq"` // the last one that is stored
}

// taken tells the buckets how far the events are. While there is no events stream nobody is overtaken; one that is made
// begins at the beginning.
func (s *Stream) taken(p *eventsPosition) {
	for _, spec := range s.spec.sources {
		k := s.bus.known(spec.Name)
		if k == nil {
			continue
		}
		if p == nil {
			k.taken.Store(allTaken)
			continue
		}
		if i := slices.IndexFunc(p.Sources, func(s sourcePosition) bool { return s.Name == k.stream }); i >= 0 {
			k.taken.Store(p.Sources[i].Seq)
		} else if !slices.ContainsFunc(p.Config.Sources, func(s sourcePosition) bool { return s.Name == k.stream }) {
			k.taken.Store(allTaken)
		} else { // a new leader does not tell yet
			k.taken.CompareAndSwap(allTaken, 0)
		}
		k.era.Store(uint64(p.Created.UnixNano()))
	}
}

// lookTaken brings up to date how far the events are, by a look that begins behind the call. One is under way at a time.
func (s *Stream) lookTaken(urgent bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted == nil {
		s.wanted = make(chan struct{})
	}
	done := s.wanted
	s.urgent = s.urgent || urgent
	s.askSoon()
	return done
}

// askSoon asks how far the events are when it is time, if anybody wants to know. s.mu is held.
func (s *Stream) askSoon() {
	if s.asking || s.wanted == nil {
		return
	}
	pause := lookPause
	if s.urgent {
		pause = lookUrgent
	}
	if wait := time.Until(s.asked.Add(pause)); wait > 0 {
		time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.askSoon()
		})
		return
	}
	done := s.wanted
	s.asking, s.urgent, s.wanted = true, false, nil
	go s.bus.requests.send(&nats.Msg{Subject: wire.APIStreamInfo(s.spec.Name)}, func(reply *nats.Msg, err error) {
		var p eventsPosition
		if err == nil && json.Unmarshal(reply.Data, &p) == nil {
			switch {
			case p.Error == nil:
				s.taken(&p)
			case p.Error.ErrorCode == codeStreamNotFound:
				s.taken(nil)
				s.look()
			}
		}
		close(done)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking, s.asked = false, time.Now()
		s.askSoon()
	})
}
