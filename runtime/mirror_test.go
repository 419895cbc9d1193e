package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// A mirror needs signs of life within 1.5 s. This is for what must be told soon, on two busy cores.
const soon = 5 * time.Second

// mirror is a mirror of the test's bucket that runs until the test ends, and an operator's hands on the bucket.
type mirror struct {
	*runtime.Mirror[string]
	kv jetstream.KeyValue
}

func newMirror(t *testing.T, l *line, keep bool) *mirror {
	t.Helper()
	m := &mirror{kv: keyValue(t, l.operator, testBucket.Name), Mirror: runMirror(t, l.bus, keep)}
	m.sure(t, soon)
	return m
}

func runMirror(t *testing.T, bus *runtime.Bus, keep bool) *runtime.Mirror[string] {
	m := runtime.NewMirror(bus, testBucket, func(b []byte) (string, error) {
		if strings.HasPrefix(string(b), "bad") {
			return "", errors.New("bad value")
		}
		return string(b), nil
	}, nil, keep)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return m
}

func doubtful(m *runtime.Mirror[string]) bool {
	_, why := m.Doubt(time.Now())
	return why != nil
}

// sure waits until the mirror is.
func (m *mirror) sure(t *testing.T, limit time.Duration) {
	t.Helper()
	natstest.Eventually(t, limit, "the mirror is sure", func() bool { return !doubtful(m.Mirror) })
}

func (m *mirror) unsure(t *testing.T, limit time.Duration) {
	t.Helper()
	natstest.Eventually(t, limit, "the mirror knows that it is blind", func() bool { return doubtful(m.Mirror) })
}

func (m *mirror) put(t *testing.T, key, value string) {
	t.Helper()
	natstest.Eventually(t, limit, "put "+key, func() bool { // after a restart the first may get lost
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.kv.PutString(ctx, key, value)
		return err == nil
	})
}

// text is what is seen under a key, "" for nothing.
func text(m *runtime.Mirror[string], key string) string {
	group := m.Group(key)
	if len(group) == 0 {
		return ""
	}
	switch i := group[0]; {
	case i.Gone:
		return "gone " + i.Value
	case i.Err != nil:
		return i.Err.Error()
	default:
		return i.Value
	}
}

func (m *mirror) sees(t *testing.T, limit time.Duration, key, value string) {
	t.Helper()
	natstest.Eventually(t, limit, fmt.Sprintf("%s is seen to be %q", key, value), func() bool { return text(m.Mirror, key) == value })
}

// never watches that the mirror is not sure of a value from now on, until the function it returns is called.
func (m *mirror) never(t *testing.T, key, value string) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			_, before := m.Doubt(time.Now())
			if got := text(m.Mirror, key); got == value && before == nil && !doubtful(m.Mirror) {
				t.Errorf("the mirror is sure of %s being %q, which it is not", key, value)
				return
			}
			select {
			case <-end:
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
	})
	return func() {
		close(end)
		wg.Wait()
	}
}

func TestMirrorSeesWhatIsThereAndWhatComes(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	kv := keyValue(t, l.operator, testBucket.Name)
	for key, value := range map[string]string{"before": "1", "broken": "bad", "_own": "not one of theirs", "twice": "1"} {
		if _, err := kv.PutString(within(t), key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := kv.Delete(within(t), "twice"); err != nil {
		t.Fatal(err)
	}
	m, kept := newMirror(t, l, false), newMirror(t, l, true)
	if got := strings.Join(m.Groups(), " "); got != "before broken" {
		t.Errorf("groups %s", got)
	}
	m.put(t, "later", "1")
	m.put(t, "before", "2")
	m.sees(t, soon, "later", "1")
	kept.sees(t, soon, "later", "1")
	if err := kv.Purge(within(t), "later"); err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]*mirror{"": m, "gone 1": kept} {
		m.sees(t, soon, "later", what)
		m.sees(t, soon, "before", "2")
		m.sees(t, soon, "broken", "bad value")
		m.sees(t, soon, "_own", "")
	}
	m.put(t, "later", "3")
	for _, m := range []*mirror{m, kept} {
		m.sees(t, soon, "later", "3")
	}
}

// What changes while the link is down is not missed, and what was seen before is never sure again until it was looked at.
func TestMirrorKnowsThatItIsBlind(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ begin, end func(*natstest.Proxy) }{
		"cut":   {(*natstest.Proxy).Cut, func(p *natstest.Proxy) { p.Heal() }},
		"hangs": {func(p *natstest.Proxy) { p.Blackhole(true) }, func(p *natstest.Proxy) { p.Blackhole(false) }},
		"deaf":  {func(p *natstest.Proxy) { p.DropToClient(true) }, func(p *natstest.Proxy) { p.DropToClient(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, natstest.Start(t).URL(), 1)
			m := newMirror(t, l, false)
			m.put(t, "key", "old")
			m.put(t, "other", "old")
			m.sees(t, soon, "other", "old")
			began := time.Now()
			fault.begin(l.proxy)
			m.unsure(t, soon)
			if since, _ := m.Doubt(time.Now()); since.Before(began.Add(-soon)) || since.After(time.Now()) {
				t.Errorf("unsure since %v before the fault", began.Sub(since))
			}
			m.put(t, "key", "new")
			if err := m.kv.Delete(within(t), "other"); err != nil {
				t.Fatal(err)
			}
			if text(m.Mirror, "key") != "old" || text(m.Mirror, "other") != "old" {
				t.Error("what was seen is forgotten while nothing is seen")
			}
			stop := m.never(t, "key", "old")
			alsoStop := m.never(t, "other", "old")
			fault.end(l.proxy)
			m.sure(t, limit)
			m.sees(t, soon, "key", "new")
			m.sees(t, soon, "other", "")
			stop()
			alsoStop()
		})
	}
}

func TestMirrorAcrossARestart(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	l := newLine(t, n.URL(), 1)
	m := newMirror(t, l, false)
	m.put(t, "key", "old")
	m.sees(t, soon, "key", "old")
	first := m.Group("key")[0].Stored
	n.Restart()
	m.sure(t, limit)
	if again := m.Group("key")[0].Stored; again.After(first) {
		t.Errorf("looking again made what is stored younger by %v", again.Sub(first))
	}
	m.put(t, "key", "new")
	m.sees(t, soon, "key", "new")
	n.DisableJetStream()
	m.unsure(t, soon)
	n.EnableJetStream()
	m.sure(t, limit)
	if got := text(m.Mirror, "key"); got != "new" {
		t.Errorf("after JetStream came back: %q", got)
	}
}

// One that begins late knows how long ago what it finds was stored.
func TestMirrorKnowsTheAgeOfWhatItFinds(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	first := newMirror(t, l, true)
	first.put(t, "key", "1")
	first.sees(t, soon, "key", "1")
	stored := first.Group("key")[0].Stored
	natstest.Eventually(t, soon, "a while has passed", func() bool { return time.Since(stored) > time.Second })
	late := newMirror(t, l, true)
	if d := late.Group("key")[0].Stored.Sub(stored).Abs(); d > 300*time.Millisecond {
		t.Errorf("one that came late counts from %v off", d)
	}
	if err := first.kv.Delete(within(t), "key"); err != nil {
		t.Fatal(err)
	}
	first.sees(t, soon, "key", "gone 1")
	if got := first.Group("key")[0].Stored; !got.Equal(stored) {
		t.Errorf("going made it younger by %v", got.Sub(stored))
	}
}

// A message that is lost between the server and here, while all else arrives.
func TestMirrorNoticesALostMessage(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	m := newMirror(t, l, false)
	m.put(t, "key", "old")
	m.sees(t, soon, "key", "old")
	var once sync.Once
	l.proxy.HoldToClient(func(b []byte) bool {
		lost := false
		if bytes.Contains(b[:min(len(b), 200)], []byte(wire.KeySubject(testBucket.Name, "key")+" ")) {
			once.Do(func() { lost = true })
		}
		return lost
	})
	m.put(t, "key", "new")
	m.sees(t, soon, "key", "new")
	m.sure(t, soon)
}

// In place of a deleted bucket there is another one, with less in it. That what is not in it is gone is said when that is
// certain; until then nothing is.
func TestMirrorOfABucketMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLine(t, natstest.Start(t).URL(), 1)
	m := newMirror(t, l, false)
	m.put(t, "kept", "old")
	m.put(t, "lost", "old")
	m.sees(t, soon, "lost", "old")
	config := deleteBucket(t, l, jetStream(t, l.operator))
	stop := m.never(t, "lost", "")
	m.unsure(t, soon)
	stopOld := m.never(t, "kept", "old")
	m.kv = makeBucket(t, jetStream(t, l.operator), config)
	m.put(t, "kept", "new")
	made := time.Now()
	m.sees(t, soon, "kept", "new")
	if got := text(m.Mirror, "lost"); got != "old" {
		t.Errorf("what was there is %q at once", got)
	}
	stop()
	m.sure(t, limit)
	m.sees(t, soon, "lost", "")
	stopOld()
	if took := time.Since(made); took > 5*time.Second+busy*20 {
		t.Errorf("sure again after %v", took)
	}
}

func TestMirrorOnAClusterWithoutItsLeader(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	l := newLine(t, c.Node(0).URL(), 3)
	m := newMirror(t, l, false)
	m.put(t, "key", "old")
	m.sees(t, soon, "key", "old")
	for c.StreamLeader(wire.BucketStream(testBucket.Name)) == c.Node(0) {
		c.StepDown(wire.BucketStream(testBucket.Name))
	}
	c.StreamLeader(wire.BucketStream(testBucket.Name)).Stop()
	natstest.Eventually(t, limit, "the new leader takes a value", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := m.kv.PutString(ctx, "key", "new")
		return err == nil
	})
	m.sees(t, limit, "key", "new")
	m.sure(t, limit)
}

// A server that is alone keeps sending heartbeats of what it last knew. It is no sign that nothing has changed.
func TestMirrorOnAServerThatIsAlone(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t, 3)
	l := newLine(t, c.Node(0).URL(), 3)
	m := newMirror(t, l, false)
	m.put(t, "key", "old")
	m.sees(t, soon, "key", "old")
	c.Node(1).Stop()
	c.Node(2).Stop()
	m.unsure(t, limit) // a leader that is left alone takes its time to notice
	if got := text(m.Mirror, "key"); got != "old" {
		t.Errorf("alone, it sees %q", got)
	}
	c.Node(1).Up()
	c.Node(2).Up()
	m.sure(t, 2*limit)
}
