package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

const deployNATS = "../../deploy/nats"

// generated are the files under deploy that the program makes, and the commands that make them.
var generated = map[string][]string{
	"../../deploy/kubernetes/streams.yaml": {"topology", "--replicas", "3", "--format", "nack"},
	deployNATS + "/accounts.conf": {
		"perms", "--role", "function:all", "--role", "function:declare", "--role", "function:join", "--role", "function:resolve", "--role", "operator", "--role", "trigger",
		"--role", "reader", "--role", "dead", "--role", "hive:h1", "--role", "sled:913-0000019:2FAKE001",
	},
}

// TestDeploy_FilesAreWhatTheProgramMakes. go test ./cmd/muster -run TestDeploy -update makes them anew.
func TestDeploy_FilesAreWhatTheProgramMakes(t *testing.T) {
	if *update {
		for _, kind := range []string{"buckets", "streams"} {
			if err := os.RemoveAll(filepath.Join(deployNATS, kind)); err != nil {
				t.Fatal(err)
			}
		}
		if r := muster("topology", "--replicas", "3", "--out", deployNATS); r.code != exitOK {
			t.Fatal(r.err)
		}
	}
	for file, command := range generated {
		want := muster(command...)
		if *update {
			if err := os.WriteFile(file, []byte(want.out), 0o644); err != nil { //nolint:gosec // a file of the repository
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || want.code != exitOK || string(got) != want.out {
			t.Errorf("%s is not what muster %s prints (%v)", file, strings.Join(command, " "), err)
		}
	}
	dir := t.TempDir()
	if r := muster("topology", "--replicas", "3", "--out", dir); r.code != exitOK {
		t.Fatal(r.err)
	}
	if len(relative(t, dir)) == 0 {
		t.Error("no files made")
	}
	for _, kind := range []string{"buckets", "streams"} {
		made, there := relative(t, filepath.Join(dir, kind)), relative(t, filepath.Join(deployNATS, kind))
		for name, text := range made {
			if there[name] != text {
				t.Errorf("%s/%s/%s is not what muster topology makes", deployNATS, kind, name)
			}
		}
		for name := range there {
			if made[name] == "" {
				t.Errorf("%s/%s/%s is nothing that muster topology makes", deployNATS, kind, name)
			}
		}
	}
}

// relative reads all files below a folder.
func relative(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a folder that is not there holds no files
		}
		b, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		if err != nil || relErr != nil {
			return err
		}
		files[name] = string(b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestTopology_IsTakenByAServer adds each configuration to a server as it is, and Muster then finds no difference and makes
// nothing more.
func TestTopology_IsTakenByAServer(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t)
	nc := natstest.Connect(t, node.URL())
	dir := t.TempDir()
	if r := muster("topology", "--out", dir); r.code != exitOK {
		t.Fatal(r.err)
	}
	for name, text := range relative(t, dir) {
		var c struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal([]byte(text), &c); err != nil || topologyFile(c.Name) != name {
			t.Fatalf("%s: %v, names %q", name, err, c.Name)
		}
		if m, err := nc.Request(wire.APIStreamCreate(c.Name), []byte(text), nats.DefaultTimeout*5); err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("%s: %v, %s", name, err, m.Data)
		}
	}
	p, err := start(t.Context(), runtime.URL(node.URL()), 1, nil, "127.0.0.1:0", newLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.waitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range p.checks(t.Context()) {
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	have := 0
	for name := range js.StreamNames(t.Context()).Name() {
		have++
		if _, err := os.Stat(filepath.Join(dir, topologyFile(name))); err != nil {
			t.Errorf("Muster made %s, which muster topology does not know", name)
		}
	}
	if want := len(relative(t, dir)); have != want {
		t.Errorf("%d streams, %d files", have, want)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}
