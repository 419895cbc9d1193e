package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

// leftBehind lists what is stored beside the hives that were there.
func leftBehind(t *testing.T, js jetstream.JetStream) (left []string) {
	t.Helper()
	for s := range js.ListStreams(t.Context()).Info() {
		if name := s.Config.Name; name == wire.BucketStream(benchBucket) || !strings.HasPrefix(name, "KV_muster_") && !strings.HasPrefix(name, "MUSTER_") {
			left = append(left, "stream "+name)
		}
	}
	events, err := js.Stream(t.Context(), wire.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	heard, err := events.Info(t.Context(), jetstream.WithSubjectFilter(wire.EventSubject("hive", "*")))
	if err != nil {
		t.Fatal(err)
	}
	for subject := range heard.State.Subjects {
		if subject != wire.EventSubject("hive", "mine") {
			left = append(left, "event "+subject)
		}
	}
	for _, bucket := range []string{wire.BucketWanted, wire.BucketRacks, wire.BucketNetworks, wire.BucketSleds} {
		s, err := js.Stream(t.Context(), wire.BucketStream(bucket))
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		for subject := range info.State.Subjects {
			if key := wire.SubjectKey(bucket, subject); key != "mine" {
				left = append(left, "key "+key+" of "+bucket)
			}
		}
	}
	return left
}

func benched(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	node := natstest.Start(t)
	serving(t, node.URL())
	if r := muster("call", "--nats", node.URL(), "declare.set.mine.atlas", `{"state":"up"}`); r.code != exitOK {
		t.Fatalf("call: %+v", r)
	}
	js, err := jetstream.New(natstest.Connect(t, node.URL()))
	if err != nil {
		t.Fatal(err)
	}
	return node.URL(), js
}

func TestBench(t *testing.T) {
	url, js := benched(t)
	r := muster("bench", "--nats", url, "--time", "100ms", "--callers", "4", "--agents", "1500", "--sleds", "4", "--racks", "2")
	if r.code != exitOK {
		t.Fatalf("got %+v", r)
	}
	if !regexp.MustCompile(`^\w+, \d+ cores, go\S+; NATS server \S+; 4 callers on 4 connections, 100ms a line in 8 rounds\n\nline +callers +requests/s +p50 +p99 +failed +compared\n`).MatchString(r.out) {
		t.Errorf("the head is not as expected:\n%s", r.out)
	}
	for name, compared := range map[string]string{
		"echo": "", "KV update, own keys": "", "KV update, followed": "", "KV update followed, one caller": "", "echo, one caller": "", "KV update, one caller": "", "declare.set, large hive": "",
		"declare.set, own hives":  ` +\d+\.\d\d of echo and update in series, \d+\.\d\d followed`,
		"declare.set, one hive":   ` +\d+\.\d\d of echo`,
		"declare.view, one hive":  ` +\d+\.\d\d of echo`,
		"declare.view, own hives": ` +\d+\.\d\d of echo`,
		"declare.set, one caller": ` +p50 \d+\.\d\d of echo plus update, \d+\.\d\d followed`,
		"trigger, own hives":      ` +\d+\.\d\d of declare.set`,
		"event at 5,000/s":        "",
	} {
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `  +(?:1|4|32)  +[1-9]\d*  +\S+s  +\S+s  +0` + compared + ` *$`)
		if !line.MatchString(r.out) {
			t.Errorf("no line of %q with figures and no failure", name)
		}
	}
	for _, name := range []string{"join, 4 sleds", "join, 2 racks of 8 at once"} {
		if !regexp.MustCompile(`(?m)^` + name + ` +[1-9]\d*  +\d\S*s  +\d\S*s  +([5-9]|1\d|20)  +0$`).MatchString(r.out) {
			t.Errorf("no line of %q with figures, 5 to 20 revisions and no failure", name)
		}
	}
	if t.Failed() {
		t.Logf("it printed:\n%s%s", r.out, r.err)
	}
	if left := leftBehind(t, js); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	r = muster("call", "--nats", url, "declare.list")
	if !strings.Contains(r.out, `"hives":[{"hive":"mine",`) || strings.Count(r.out, `"hive":`) != 1 {
		t.Errorf("hives afterwards: %s", r.out)
	}
}

func TestBench_Interrupted(t *testing.T) {
	for _, line := range []string{"declare.set, own hives", "join, 3 sleds"} {
		t.Run(line, func(t *testing.T) {
			url, js := benched(t)
			r := background(t, "bench", "--nats", url, "--time", "1m", "--callers", "4", "--sleds", "3", "--only", line)
			natstest.Eventually(t, 20*time.Second, "something of the bench", func() bool { return len(leftBehind(t, js)) > 4 })
			if code := r.stop(t); code == exitOK {
				t.Errorf("exit %d, though it did not measure what it should", code)
			}
			if left := leftBehind(t, js); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestBench_NobodyServes(t *testing.T) {
	node := natstest.Start(t)
	r := muster("bench", "--nats", node.URL(), "--time", "100ms")
	if r.code != exitUnavailable || !strings.Contains(r.err, "is muster serving here?") {
		t.Errorf("got %+v, want exit %d and why", r, exitUnavailable)
	}
	js, err := jetstream.New(natstest.Connect(t, node.URL()))
	if err != nil {
		t.Fatal(err)
	}
	if names := js.StreamNames(context.Background()); len(names.Name()) > 0 {
		t.Errorf("left behind: %s", <-names.Name())
	}
}
