package test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/runtime/natstest"
)

// TestTriggersDocument runs the commands of docs/triggers.md and compares what they print.
func TestTriggersDocument(t *testing.T) {
	t.Parallel()
	up := launch(t, "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", t.TempDir())
	url, _ := up.waitReady()
	b := busOf(t, url)
	all := steps(t, "../docs/triggers.md")
	if len(all) < 10 {
		t.Fatalf("only %d commands found", len(all))
	}
	moment := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	steadily := func(s string) string { return moment.ReplaceAllString(steady(s), "…") }
	for _, s := range all {
		if m := natsPublish(s.command); m != nil {
			if _, err := b.js.PublishMsg(ctx(t), m); err != nil {
				t.Fatalf("%s: %v", s.command, err)
			}
			b.settled()
			continue
		}
		var got string
		natstest.Eventually(t, startLimit, s.command+" prints something", func() bool { // replayed triggers die a moment later
			got = shell(t, s.command, url)
			return got != ""
		})
		if steadily(got) != steadily(s.output) {
			t.Fatalf("$ %s\nprints\n%s\nthe document says\n%s", s.command, got, s.output)
		}
	}
}

// natsPublish understands `nats pub [-H NAME:VALUE]… SUBJECT 'BODY'`; nil for another command.
func natsPublish(command string) *nats.Msg {
	rest, ok := strings.CutPrefix(command, "nats pub ")
	if !ok {
		return nil
	}
	m := &nats.Msg{Header: nats.Header{}}
	for strings.HasPrefix(rest, "-H ") {
		header, more, _ := strings.Cut(rest[3:], " ")
		name, value, _ := strings.Cut(header, ":")
		m.Header[name] = []string{value}
		rest = more
	}
	subject, body, _ := strings.Cut(rest, " ")
	m.Subject, m.Data = subject, []byte(strings.Trim(body, "'"))
	return m
}
