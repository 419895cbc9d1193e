package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/wire"
)

// dead are the commands `muster dead list`, `show` and `replay`.
type dead struct {
	List   deadList   `cmd:"" help:"Print a line for each dead trigger: its number, when it died, its subject, the error code, how often it was tried."`
	Show   deadShow   `cmd:"" help:"Print one dead trigger: the headers that it came with, why it is dead, and its data."`
	Replay deadReplay `cmd:"" help:"Publish dead triggers once more, and take them off the list."`
}

// Help is printed by muster dead --help.
func (dead) Help() string {
	return `A trigger that can never succeed, or did not in 20 deliveries, is kept in stream ` + wire.StreamDead + `. Its number is its sequence there.`
}

// deadCall is how long one call to the stream may take.
const deadCall = 5 * time.Second

// letters opens the stream.
func (c connection) letters(ctx context.Context) (nc *nats.Conn, s jetstream.Stream, js jetstream.JetStream, err error) {
	nc, err = c.dial(nats.Name("muster dead"))
	if err != nil {
		return nil, nil, nil, dialFailed(err)
	}
	if js, err = jetstream.New(nc); err == nil {
		s, err = js.Stream(ctx, wire.StreamDead)
	}
	if err != nil {
		nc.Close()
		return nil, nil, nil, &exit{exitUnavailable, fmt.Errorf("look at stream %s (is muster serving here?): %w", wire.StreamDead, err)}
	}
	return nc, s, js, nil
}

// each calls f with every dead letter in order.
func each(ctx context.Context, s jetstream.Stream, f func(*jetstream.RawStreamMsg) error) error {
	state := s.CachedInfo().State
	for seq := state.FirstSeq; seq > 0 && seq <= state.LastSeq; seq++ {
		m, err := letter(ctx, s, seq, jetstream.WithGetMsgSubject(wire.DeadSubjects()))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Sequence > state.LastSeq {
			return nil // came while we went through
		}
		if err := f(m); err != nil {
			return err
		}
		seq = m.Sequence
	}
	return nil
}

// letter reads a dead letter; with a subject the first one from seq on.
func letter(ctx context.Context, s jetstream.Stream, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	if seq == 0 { // asks for nothing
		return nil, jetstream.ErrMsgNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, deadCall)
	defer cancel()
	m, err := s.GetMsg(ctx, seq, opts...)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, &exit{exitUnavailable, fmt.Errorf("read dead trigger: %w", err)}
	}
	return m, err
}

type deadList struct{ connection }

func (c deadList) Run(ctx context.Context, std streams) error {
	nc, s, _, err := c.letters(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	return each(ctx, s, func(m *jetstream.RawStreamMsg) error {
		_, err := fmt.Fprintf(std.out, "%d %s %s %s %s\n", m.Sequence, m.Time.UTC().Format(time.RFC3339), m.Subject,
			m.Header.Get(wire.HeaderDeadCode), m.Header.Get(wire.HeaderDeliveries))
		return err
	})
}

type deadShow struct {
	connection
	N uint64 `arg:"" help:"Number of the dead trigger."`
}

func (c deadShow) Run(ctx context.Context, std streams) error {
	nc, s, _, err := c.letters(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := letter(ctx, s, c.N)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &exit{exitRefused, fmt.Errorf("there is no dead trigger %d", c.N)}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%s\n%s\n", m.Subject, m.Time.UTC().Format(time.RFC3339))
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		if strings.HasPrefix(name, "Nats-") { // the stream's own
			continue
		}
		for _, value := range m.Header[name] {
			fmt.Fprintf(std.out, "%s: %s\n", name, value)
		}
	}
	_, err = fmt.Fprintf(std.out, "\n%s\n", m.Data)
	return err
}

type deadReplay struct {
	connection
	N   []uint64 `arg:"" optional:"" help:"Numbers of the dead triggers."`
	All bool     `help:"Replay all that are there now."`
}

// Help is printed by muster dead replay --help.
func (deadReplay) Help() string {
	return `A trigger that is replayed has its source and id still, so that one which was applied after all is not applied again within 10 minutes. Running this twice is safe: what was replayed is off the list, and one that a broken connection left on it is known again by the stream of triggers. One that dies again gets a new number.`
}

func (c deadReplay) Run(ctx context.Context, std streams) error {
	if c.All == (len(c.N) > 0) {
		return &exit{exitUsage, errors.New("give numbers, or --all")}
	}
	nc, s, js, err := c.letters(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	replay := func(m *jetstream.RawStreamMsg) error {
		if err := replayed(ctx, js, s, m); err != nil {
			return &exit{exitUnavailable, fmt.Errorf("replay dead trigger %d: %w", m.Sequence, err)}
		}
		_, err := fmt.Fprintf(std.out, "%d %s\n", m.Sequence, wire.LiveSubject(m.Subject))
		return err
	}
	if c.All {
		return each(ctx, s, replay)
	}
	for _, n := range c.N {
		m, err := letter(ctx, s, n)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound) && n > 0 && n <= s.CachedInfo().State.LastSeq:
			fmt.Fprintf(std.err, "muster: %d is not there any more; it was replayed or removed\n", n)
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return &exit{exitRefused, fmt.Errorf("there is no dead trigger %d", n)}
		case err != nil:
			return err
		default:
			if err := replay(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// replayed publishes a dead letter as the trigger it was and then removes it. Published before removed: whoever is
// interrupted in between replays it once more under the same message id, and the stream of triggers takes it once.
func replayed(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, m *jetstream.RawStreamMsg) error {
	ctx, cancel := context.WithTimeout(ctx, deadCall)
	defer cancel()
	id := "dead-" + strconv.FormatInt(s.CachedInfo().Created.UnixNano(), 36) + "-" + strconv.FormatUint(m.Sequence, 10)
	if _, err := js.PublishMsg(ctx, runtime.Revived(m.Subject, m.Header, m.Data), jetstream.WithMsgID(id)); err != nil {
		return err
	}
	if err := s.DeleteMsg(ctx, m.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return err
	}
	return nil
}
