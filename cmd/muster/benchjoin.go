package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"muster/edge/sled"
	"muster/functions/join"
	"muster/runtime"
	"muster/wire"
)

// benchJoin is one line of the joins: racks that are started at once, with sleds of this process, each on a connection and
// a store of its own.
type benchJoin struct {
	name         string
	racks, sleds int // sleds of each rack
}

// smallRack is how many sleds each rack has of those that join at once.
const smallRack = 8

// joinLimit is how long a join may take, and joinRuns how often it is measured at most.
const (
	joinLimit = 30 * time.Second
	joinRuns  = 20
)

func (b *benchRun) joins() []benchJoin {
	return []benchJoin{
		{fmt.Sprintf("join, %d sleds", b.Sleds), 1, b.Sleds},
		{fmt.Sprintf("join, %d racks of %d at once", b.Racks, smallRack), b.Racks, smallRack},
	}
}

// joined is what was measured of a line.
type joined struct {
	took      []time.Duration // of each run, from the first start to the last rack that awaits its completion
	revisions int             // the most that a rack's record had
	failed    int
}

// measureJoins runs sleds, has them join over and over, and prints a table.
func (b *benchRun) measureJoins(ctx context.Context, lines []benchJoin) error {
	if len(lines) == 0 {
		return nil
	}
	most := 0
	for _, l := range lines {
		most = max(most, l.racks*l.sleds)
	}
	stop, err := b.runSleds(ctx, most)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintln(b.std.out)
	table := tabwriter.NewWriter(b.std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "line\truns\tp50\tslowest\trevisions\tfailed")
	for _, l := range lines {
		var got joined
		for end := time.Now().Add(b.Time); len(got.took)+got.failed < joinRuns && (len(got.took)+got.failed == 0 || time.Now().Before(end)); {
			if err := b.joinOnce(ctx, l, &got); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if got.failed++; got.failed == 1 {
					fmt.Fprintf(b.std.err, "%s: first failure: %v\n", l.name, err)
				}
			}
		}
		slices.Sort(got.took)
		s := sample{took: got.took}
		fmt.Fprintf(table, "%s\t%d\t%v\t%v\t%d\t%d\n", l.name, len(got.took)+got.failed,
			s.quantile(0.5).Round(time.Millisecond), s.quantile(1).Round(time.Millisecond), got.revisions, got.failed)
	}
	return table.Flush()
}

// board is the i-th sled of the bench.
func (b *benchRun) board(i int) wire.Baseboard {
	return wire.Baseboard{PartNumber: b.name, SerialNumber: strconv.Itoa(i)}
}

// runSleds runs sleds and returns once they have announced themselves.
func (b *benchRun) runSleds(ctx context.Context, n int) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for sleds: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		os.RemoveAll(dir) //nolint:errcheck // it lies in the system's temporary directory
	})
	defer func() {
		if err != nil {
			stop()
		}
	}()
	log := slog.New(slog.DiscardHandler)
	for i := range n {
		bus, err := runtime.Connect(runtime.Options{Name: "muster bench sled", Dial: b.dial, Log: log})
		if err != nil {
			return nil, dialFailed(err)
		}
		running.Go(func() {
			c := sled.Config{Baseboard: b.board(i), Dir: filepath.Join(dir, strconv.Itoa(i)), Bus: bus, Log: log, Output: io.Discard}
			err := sled.Run(ctx, c)
			end, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer done()
			if err = errors.Join(err, bus.Close(end)); err != nil && ctx.Err() == nil {
				fmt.Fprintf(b.std.err, "sled %v: %v\n", c.Baseboard, err)
			}
		})
	}
	js, err := jetstream.New(b.conns[0])
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	return stop, b.watchKeys(ctx, js, wire.BucketSleds, []string{b.name + ".*"}, func(e jetstream.KeyValueEntry) bool {
		there[e.Key()] = true
		return len(there) == n
	})
}

// watchKeys calls take with each revision of some keys, until it says that it has seen enough.
func (b *benchRun) watchKeys(ctx context.Context, js jetstream.JetStream, bucket string, keys []string, take func(jetstream.KeyValueEntry) (done bool)) error {
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return &exit{exitUnavailable, fmt.Errorf("look at bucket %s (is muster serving here?): %w", bucket, err)}
	}
	w, err := kv.WatchFiltered(ctx, slices.Clone(keys)) // it writes into them
	if err != nil {
		return fmt.Errorf("watch bucket %s: %w", bucket, err)
	}
	defer w.Stop() //nolint:errcheck // nothing more is wanted of it
	limit := time.After(joinLimit)
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return fmt.Errorf("watch bucket %s: it ended", bucket)
			}
			if e != nil && take(e) { // nil: what was there before has been told
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return fmt.Errorf("bucket %s: not all are where they should be after %v", bucket, joinLimit)
		}
	}
}

// joinOnce starts racks, waits until all await their completion, and resets them.
func (b *benchRun) joinOnce(ctx context.Context, l benchJoin, got *joined) (err error) {
	js, err := jetstream.New(b.conns[0])
	if err != nil {
		return err
	}
	racks := make([]string, l.racks)
	for i := range racks {
		racks[i] = b.rack(i)
	}
	defer func() { err = errors.Join(err, b.resetAll(racks)) }()
	began := time.Now()
	started := make(chan error, 1)
	go func() {
		started <- b.all(racks, func(i int) error {
			body, err := b.joinRequest(i*l.sleds, l.sleds)
			if err == nil {
				_, err = b.request(i, wire.Subject(wire.Join, "start", racks[i]), body)
			}
			return err
		})
	}()
	revisions, awaiting := map[string]int{}, map[string]bool{}
	seen := b.watchKeys(ctx, js, wire.BucketRacks, racks, func(e jetstream.KeyValueEntry) bool {
		var r struct {
			State join.State `json:"state"`
		}
		if e.Operation() != jetstream.KeyValuePut || json.Unmarshal(e.Value(), &r) != nil {
			return false
		}
		revisions[e.Key()]++
		if r.State == join.AwaitingCompletion {
			awaiting[e.Key()] = true
		}
		return len(awaiting) == len(racks)
	})
	took := time.Since(began)
	if err := errors.Join(<-started, seen); err != nil {
		return err
	}
	got.took = append(got.took, took)
	for _, n := range revisions {
		got.revisions = max(got.revisions, n)
	}
	return nil
}

func (b *benchRun) rack(i int) string { return b.name + "-rack" + strconv.Itoa(i) }

// all does something for each rack at once.
func (b *benchRun) all(racks []string, do func(i int) error) error {
	errs := make([]error, len(racks))
	var wg sync.WaitGroup
	for i := range racks {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b *benchRun) resetAll(racks []string) error {
	return b.all(racks, func(i int) error {
		_, err := b.request(i, wire.Subject(wire.Join, "reset", racks[i]), []byte(`{"confirm":"`+racks[i]+`"}`))
		return err
	})
}

// joinRequest asks that sleds join, those from one on.
func (b *benchRun) joinRequest(from, n int) ([]byte, error) {
	r := wire.JoinRequest{}
	config := `{"rack_subnet":"fd00:1122:3344:200::/56","infra_ip_first":"192.0.2.1","infra_ip_last":"192.0.2.9","ports":[{"port":"qsfp0",
		"switch":"switch0","addresses":[],"routes":[],"bgp_peers":[],"uplink_port_speed":"speed100_g"}]}`
	if err := json.Unmarshal([]byte(config), &r.RackNetworkConfig); err != nil {
		return nil, fmt.Errorf("read the bench's network config: %w", err)
	}
	for i := range n {
		r.TrustQuorumPeers = append(r.TrustQuorumPeers, b.board(from+i))
	}
	return json.Marshal(r)
}

// removeRacks removes what is left of the bench's racks and sleds, also of a join that was broken off.
func (b *benchRun) removeRacks(ctx context.Context, js jetstream.JetStream) error {
	keys := map[string][]string{wire.BucketSleds: {b.name + ".*"}}
	for i := range b.Racks {
		keys[wire.BucketRacks] = append(keys[wire.BucketRacks], b.rack(i))
		keys[wire.BucketNetworks] = append(keys[wire.BucketNetworks], b.rack(i)+".*")
	}
	for bucket, of := range keys {
		s, err := js.Stream(ctx, wire.BucketStream(bucket))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // join is not served here
		}
		for _, key := range of {
			if err == nil {
				err = s.Purge(ctx, jetstream.WithPurgeSubject(wire.KeySubject(bucket, key)))
			}
		}
		if err != nil {
			return fmt.Errorf("remove the bench's racks: %w", err)
		}
	}
	return nil
}
