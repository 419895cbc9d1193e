package test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/functions/declare"
	"muster/functions/join"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// step is a command of a document and what it prints.
type step struct {
	command string
	output  string
}

// steps reads the console blocks of a document: lines after "$ " are commands, the others their output.
func steps(t *testing.T, file string) (all []step) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	console := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch {
		case line == "```console":
			console = true
		case strings.HasPrefix(line, "```"):
			console = false
		case console && strings.HasPrefix(line, "$ "):
			all = append(all, step{command: line[2:]})
		case console:
			all[len(all)-1].output += line + "\n"
		}
	}
	return all
}

// varying is what differs from run to run in an output.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`"request_id":"[^"]+"`), `"request_id":"…"`},
	{regexp.MustCompile(`"id":"[0-9a-f-]{36}"`), `"id":"…"`},
	{regexp.MustCompile(`"reported_at":"[^"]+"`), `"reported_at":"…"`},
	{regexp.MustCompile(`"age_ms":\d+`), `"age_ms":…`},
	{regexp.MustCompile(`"(lease|expires_at|observed_at)":"[^"]+"`), `"$1":"…"`},
	{regexp.MustCompile(`"source":"leases","revision":\d+`), `"source":"leases","revision":…`}, // moves once more when it is resolved
}

func steady(s string) string {
	for _, v := range varying {
		s = v.what.ReplaceAllString(s, v.by)
	}
	return strings.TrimSpace(s)
}

// TestReadme runs every command of the README's five minutes and compares what it prints.
func TestReadme(t *testing.T) {
	up := launch(t, "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", t.TempDir())
	url, _ := up.waitReady()
	nc := natstest.Connect(t, url)
	all := steps(t, "../README.md")
	if len(all) < 10 {
		t.Fatalf("only %d commands found in README.md", len(all))
	}
	for _, s := range all {
		var got string
		run := func() bool {
			if subject, body, ok := natsRequest(s.command); ok {
				reply, err := nc.Request(subject, []byte(body), 5*time.Second)
				if err != nil {
					t.Fatalf("%s: %v", s.command, err)
				}
				got = string(reply.Data)
			} else {
				got = shell(t, s.command, url)
			}
			return steady(got) == steady(s.output)
		}
		if strings.Contains(s.command, "declare.status") { // the hive reports a moment later
			deadline := time.Now().Add(5 * time.Second)
			for !run() && time.Now().Before(deadline) {
				<-time.After(50 * time.Millisecond)
			}
		} else {
			run()
		}
		if steady(got) != steady(s.output) {
			t.Fatalf("$ %s\nprints\n%s\nthe README says\n%s", s.command, steady(got), steady(s.output))
		}
	}
}

// natsRequest understands `nats req SUBJECT 'BODY'`; building that program takes longer than all tests.
func natsRequest(command string) (subject, body string, ok bool) {
	words := strings.SplitN(command, " ", 4)
	if len(words) != 4 || words[0] != "nats" || words[1] != "req" {
		return "", "", false
	}
	return words[2], strings.Trim(words[3], "'"), true
}

// shell runs a command of the document with the program that was built in place of `go run`.
func shell(t *testing.T, command, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(command, "go run ./cmd/muster", binary))
	cmd.Env = append(bare(os.Environ()), "NATS_URL="+url)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if exit, refused := err.(*exec.ExitError); err != nil && (!refused || exit.ExitCode() > 6) { //nolint:errorlint // Output returns it bare
		t.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

// TestContractListsEveryCode holds the table of error codes in the documents to the list in wire.
func TestContractListsEveryCode(t *testing.T) {
	doc, err := os.ReadFile("../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\w+) \| \d{3} \| (?:yes|no) \|`).FindAllStringSubmatch(string(doc), -1) {
		listed = append(listed, m[1])
	}
	given := map[wire.Code]bool{}
	for _, fn := range []runtime.Function{declare.New(declare.Deps{}), join.New(join.Deps{})} {
		for _, op := range runtime.SchemasOf(fn).Ops {
			for _, code := range op.Errors {
				given[code] = true
			}
		}
	}
	for code := range given {
		if !slices.Contains(listed, string(code)) {
			t.Errorf("%s is not in the table", code)
		}
	}
	for _, code := range listed {
		if !given[wire.Code(code)] {
			t.Errorf("%s is in the table and no op gives it", code)
		}
	}
}
