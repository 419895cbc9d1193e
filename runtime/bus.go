package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/wire"
)

// Options are what a process on the bus chooses.
type Options struct {
	Name     string // of the connection, as operators see it in `nats server report connections`
	Dial     func(...nats.Option) (*nats.Conn, error)
	Replicas int // of buckets that are made here
	Log      *slog.Logger
}

// URL dials a NATS URL, which may list several servers with commas between them.
func URL(url string) func(...nats.Option) (*nats.Conn, error) {
	return func(o ...nats.Option) (*nats.Conn, error) { return nats.Connect(url, o...) }
}

// Bus is one process's connection to NATS, with the buckets it uses. It is made before there is a server, and follows
// servers, buckets and permissions as they come and go.
type Bus struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	log      *slog.Logger
	replicas int
	requests *requester
	links    atomic.Uint64 // counts connections, for [store.Log]'s epochs
	copied   atomic.Bool   // the events stream has several copies, so that its leader may change

	mu      sync.Mutex
	buckets map[string]*Bucket
	streams map[string]*Stream
	served  map[string]*queue    // of triggers, by function
	denied  map[string]time.Time // subjects the server refused us, and when
	deaf    string               // the last subscription that the server refused us on this link

	unreachableTold time.Time // when it was last said that no server can be reached

	closing context.Context
	close   context.CancelFunc
	work    sync.WaitGroup

	feeding   context.Context // of feeds and workers, which end first
	stopFeeds context.CancelFunc
	feeds     sync.WaitGroup
}

// Connect makes a Bus. It does not wait for the server and fails only on options that can never work.
func Connect(o Options) (*Bus, error) {
	b := &Bus{log: o.Log, replicas: o.Replicas, buckets: map[string]*Bucket{}, streams: map[string]*Stream{}, served: map[string]*queue{}, denied: map[string]time.Time{}}
	b.closing, b.close = context.WithCancel(context.Background())
	b.feeding, b.stopFeeds = context.WithCancel(b.closing)
	nc, err := o.Dial(
		nats.Name(o.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200*time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 200*time.Millisecond),
		nats.ReconnectBufSize(-1), // nothing is sent later than its caller thinks
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(2*time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(b.connected),
		nats.ReconnectHandler(b.connected),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ReconnectErrHandler(b.unreachable),
		nats.ErrorHandler(b.asyncError),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	b.nc = nc
	if b.requests, err = newRequester(nc, lookTimeout); err != nil {
		nc.Close()
		return nil, err
	}
	if b.js, err = jetstream.New(nc); err != nil {
		nc.Close()
		return nil, fmt.Errorf("set up JetStream: %w", err)
	}
	return b, nil
}

// Over makes a Bus of a connection that stays its owner's, for Follow and Ask alone.
func Over(nc *nats.Conn) (*Bus, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("set up JetStream: %w", err)
	}
	return &Bus{nc: nc, js: js, log: slog.New(slog.DiscardHandler)}, nil
}

// Conn is the connection itself, for what package runtime does not wrap.
func (b *Bus) Conn() *nats.Conn { return b.nc }

func (b *Bus) connected(nc *nats.Conn) {
	b.links.Add(1)
	b.mu.Lock()
	b.deaf, b.unreachableTold = "", time.Time{}
	b.mu.Unlock()
	b.log.Info("connected", "server", nc.ConnectedUrlRedacted(), "server_name", nc.ConnectedServerName())
	b.kick()
}

// tellUnreachable is how often it is said that there is no server: attempts are several a second.
const tellUnreachable = 30 * time.Second

// unreachable is called for every attempt to connect that fails.
func (b *Bus) unreachable(_ *nats.Conn, err error) {
	b.mu.Lock()
	told := time.Since(b.unreachableTold) < tellUnreachable
	if !told {
		b.unreachableTold = time.Now()
	}
	b.mu.Unlock()
	if !told && b.closing.Err() == nil {
		b.log.Warn("cannot connect to NATS, trying on", "cause", err)
	}
}

func (b *Bus) disconnected(_ *nats.Conn, err error) {
	b.links.Add(1)
	if b.closing.Err() == nil {
		b.log.Warn("disconnected", "cause", err)
	}
	b.kick()
}

// These find the subject in what a server says of a refused publish or subscription; NATS gives it in no other form.
var (
	refusedPublish   = regexp.MustCompile(`Publish to "([^"]+)"`)
	refusedSubscribe = regexp.MustCompile(`Subscription to "([^"]+)"`)
)

func (b *Bus) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		if m := refusedPublish.FindStringSubmatch(err.Error()); m != nil {
			subject = m[1]
			b.mu.Lock()
			if len(b.denied) >= maxDenied {
				clear(b.denied)
			}
			b.denied[subject] = time.Now()
			b.mu.Unlock()
		} else if m := refusedSubscribe.FindStringSubmatch(err.Error()); m != nil {
			subject = m[1]
			b.mu.Lock()
			b.deaf = subject
			b.mu.Unlock()
		}
	}
	b.log.Warn("nats error", "subject", subject, "cause", err)
}

// maxDenied bounds the memory of refused subjects; a process that is refused more of them is misconfigured anyway.
const maxDenied = 1000

// refused tells whether the server refused us a publish to subject since a time.
func (b *Bus) refused(subject string, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.denied[subject].Before(since)
}

// kick makes every bucket and stream be looked at now.
func (b *Bus) kick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bucket := range b.buckets {
		bucket.look()
	}
	for _, stream := range b.streams {
		stream.look()
	}
	for _, q := range b.served {
		q.look()
	}
}

// queues notes where the triggers of a function come from.
func (b *Bus) queues(function string, q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.served[function] = q
}

// triggersOf checks that the triggers of a function are taken.
func (b *Bus) triggersOf(function string) Check {
	b.mu.Lock()
	q := b.served[function]
	b.mu.Unlock()
	if q == nil {
		return Check{Name: "triggers " + function, Detail: "not served yet"}
	}
	return q.check(function)
}

// known is a bucket that this process uses; nil for another.
func (b *Bus) known(bucket string) *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buckets[bucket]
}

// Bucket follows a bucket and makes it if it is absent and may be made. The same bucket is returned every time.
func (b *Bus) Bucket(spec BucketSpec) *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bucket := b.buckets[spec.Name]; bucket != nil {
		return bucket
	}
	bucket := newBucket(b, spec)
	b.buckets[spec.Name] = bucket
	b.work.Go(bucket.follow)
	return bucket
}

// Close ends the connection after what was published has left, within the time ctx gives.
func (b *Bus) Close(ctx context.Context) error {
	b.close()
	b.endFeeds()
	defer b.work.Wait()
	if !b.nc.IsConnected() {
		b.nc.Close()
		return nil
	}
	closed := b.nc.StatusChanged(nats.CLOSED)
	if err := b.nc.Drain(); err != nil {
		b.nc.Close()
		return fmt.Errorf("drain connection: %w", err)
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		b.nc.Close()
		return fmt.Errorf("drain connection: %w", ctx.Err())
	}
}

// maxValue is the size of the largest record, reply or error: what the server takes, less room for headers.
func (b *Bus) maxValue() int {
	limit := int(b.nc.MaxPayload())
	if limit <= 0 {
		limit = 1 << 20 // not connected yet: the server's default
	}
	return max(limit-headerRoom, headerRoom)
}

// headerRoom is what the contract keeps free for headers in a message.
const headerRoom = 16 << 10

func errNotConnected() *wire.Error {
	return wire.Errorf(wire.Unavailable, "not connected to NATS").With("reason", wire.NotConnected)
}
