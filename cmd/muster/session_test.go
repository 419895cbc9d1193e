package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime/natstest"
	"muster/wire"
)

var update = flag.Bool("update", false, "rewrite the sessions in testdata with what the program says now")

// TestSessions runs testdata/*.session, each on a NATS of its own where the functions run. In a session a line that
// begins with "$ " is run; below it stands what it printed, what went to standard error with "! " in front, and the exit
// code if it is not 0. "* " is a comment.
func TestSessions(t *testing.T) {
	files, err := filepath.Glob("testdata/*.session")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions found: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			node := natstest.Start(t)
			serving(t, node.URL())
			t.Setenv("NATS_URL", node.URL())
			file, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			if err := os.WriteFile("body.json", []byte("{\n  \"state\": \"offline\"\n}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("go test ./cmd/muster -run TestSessions -update takes this over (-want +got):\n%s", diff)
			}
		})
	}
}

// TestREADME_NATS runs the session in the README of deploy/nats on its server.conf.
func TestREADME_NATS(t *testing.T) {
	const dir = "../../deploy/nats/"
	readme, err := os.ReadFile(dir + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	inSession := false
	for line := range strings.Lines(string(readme)) {
		text, indented := strings.CutPrefix(line, "    ")
		inSession = indented && (inSession || strings.HasPrefix(text, "$ "))
		if inSession {
			want.WriteString(text)
		}
	}
	if n := strings.Count(want.String(), "$ muster"); n < 2 {
		t.Fatalf("found %d commands", n)
	}
	node := natstest.StartConfig(t, dir+"server.conf")
	serving(t, node.URL())
	t.Setenv("NATS_URL", node.URL())
	if diff := cmp.Diff(want.String(), replay(t, want.String())); diff != "" {
		t.Errorf("the README shows something else (-README +got):\n%s", diff)
	}
	bucketsAsIn(t, string(readme), natstest.Connect(t, node.URL()))
}

// bucketsAsIn compares the table in a README with the buckets that are there.
func bucketsAsIn(t *testing.T, readme string, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	onOff := map[bool]string{true: "on", false: "off"}
	there := map[string]string{}
	for s := range js.ListStreams(t.Context()).Info() {
		c := s.Config
		if !strings.HasPrefix(c.Name, wire.BucketStream("")) {
			there[c.Name] = fmt.Sprintf("%s | %.0fh", strings.ToLower(c.Retention.String()), c.MaxAge.Hours())
			continue
		}
		there[c.Name] = fmt.Sprintf("%d | %s | %s | %s", c.MaxMsgsPerSubject, onOff[c.AllowDirect], onOff[c.AllowAtomicPublish], onOff[c.AllowMsgTTL])
	}
	row := regexp.MustCompile("(?m)^\\| `\\w+` \\| `(KV_\\w+)` \\| [^|]+ \\| [^|]+ \\| (.+) \\|$")
	own := regexp.MustCompile("(?m)^\\| `(MUSTER_\\w+)` \\| [^|]+ \\| [^|]+ \\| (.+) \\|$")
	for _, m := range append(row.FindAllStringSubmatch(readme, -1), own.FindAllStringSubmatch(readme, -1)...) {
		if there[m[1]] != m[2] {
			t.Errorf("%s: the README says %q, it is %q (history, direct get, atomic batches, TTL)", m[1], m[2], there[m[1]])
		}
		delete(there, m[1])
	}
	if len(there) > 0 {
		t.Errorf("not in the README: %v", there)
	}
}

// changing is what is different each time.
var changing = regexp.MustCompile(`"request_id":"[A-Za-z0-9]{22}"`)

// replay runs the commands of a session and returns it as it went.
func replay(t *testing.T, session string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(session) {
		text, isCommand := strings.CutPrefix(line, "$ ")
		if !isCommand {
			if strings.HasPrefix(line, "* ") || line == "\n" {
				b.WriteString(line)
			}
			continue
		}
		b.WriteString(line)
		words, stdin := shellWords(t, text)
		r := musterIn(stdin, words[1:]...)
		b.WriteString(changing.ReplaceAllString(r.out, `"request_id":"…"`))
		for line := range strings.Lines(r.err) {
			b.WriteString("! " + changing.ReplaceAllString(line, `"request_id":"…"`))
		}
		if r.code != 0 {
			fmt.Fprintf(&b, "exit %d\n", r.code)
		}
	}
	return b.String()
}

// shellWords splits a command line that has at most single quotes and an echo in front of a pipe.
func shellWords(t *testing.T, line string) (words []string, stdin string) {
	t.Helper()
	for i, part := range strings.Split(strings.TrimSpace(line), "'") {
		if i%2 == 1 { // quoted
			words[len(words)-1] += part
			continue
		}
		fields := strings.Fields(part)
		if i > 0 && len(fields) > 0 && part[0] != ' ' {
			words[len(words)-1] += fields[0]
			fields = fields[1:]
		}
		words = append(words, fields...)
		if strings.HasSuffix(part, " ") {
			words = append(words, "") // the quoted part begins a word
		}
	}
	if len(words) > 3 && words[0] == "echo" && words[2] == "|" {
		stdin, words = words[1]+"\n", words[3:]
	}
	if words[0] != "muster" {
		t.Fatalf("not a command of ours: %s", line)
	}
	return words, stdin
}
