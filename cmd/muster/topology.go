package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/runtime"
	"muster/wire"
)

// topology is the command `muster topology`.
type topology struct {
	Replicas int    `default:"1" placeholder:"N" help:"On how many servers of a cluster each stream is kept, 1 to 5 (default ${default})."`
	Format   string `enum:"json,nack" default:"json" help:"json: configurations as nats stream add --config takes them; nack: Kubernetes resources for NATS' controller (default ${default})."`
	Out      string `placeholder:"DIR" help:"Write a file for each to DIR/buckets and DIR/streams, instead of printing all. Only for json."`
}

// Help is printed by muster topology --help.
func (topology) Help() string {
	return `Functions make what is absent by themselves. This is for those who would rather make it first, and let the functions make nothing.`
}

func (c topology) Run(std streams) error {
	if c.Replicas < 1 || c.Replicas > 5 {
		return &exit{exitUsage, errors.New("--replicas must be 1 to 5")}
	}
	if c.Format == "nack" && c.Out != "" {
		return &exit{exitUsage, errors.New("--format nack is printed; leave --out away")}
	}
	all := runtime.Topology(values(), c.Replicas)
	if c.Format == "nack" {
		_, err := std.out.Write(nackResources(all))
		return err
	}
	for _, s := range all {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			return fmt.Errorf("encode stream %s: %w", s.Name, err)
		}
		if c.Out == "" {
			if _, err := b.WriteTo(std.out); err != nil {
				return err
			}
			continue
		}
		file := filepath.Join(c.Out, topologyFile(s.Name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("make the folder of --out: %w", err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil { //nolint:gosec // no secret
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// topologyFile is where the configuration of a stream is written.
func topologyFile(stream string) string {
	if bucket, ok := strings.CutPrefix(stream, wire.BucketStream("")); ok {
		return filepath.Join("buckets", bucket+".json")
	}
	return filepath.Join("streams", stream+".json")
}

// nackResources are the streams as Kubernetes resources. Every string in it is quoted; JSON's quotes are YAML's.
func nackResources(all []jetstream.StreamConfig) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by muster topology --format nack from what the functions declare; do not edit.\n")
	for _, s := range all {
		fmt.Fprintf(&b, "---\napiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nmetadata:\n  name: %q\nspec:\n", strings.ToLower(strings.ReplaceAll(s.Name, "_", "-")))
		fmt.Fprintf(&b, "  name: %q\n  description: %q\n", s.Name, s.Description)
		if len(s.Subjects) > 0 {
			fmt.Fprintf(&b, "  subjects:\n")
			for _, subject := range s.Subjects {
				fmt.Fprintf(&b, "    - %q\n", subject)
			}
		}
		fmt.Fprintf(&b, "  retention: %s\n  storage: %s\n  discard: %s\n", quoted(s.Retention), quoted(s.Storage), quoted(s.Discard))
		fmt.Fprintf(&b, "  replicas: %d\n  maxMsgsPerSubject: %d\n  maxMsgs: %d\n  maxBytes: %d\n  maxMsgSize: %d\n  maxConsumers: %d\n",
			s.Replicas, s.MaxMsgsPerSubject, s.MaxMsgs, s.MaxBytes, s.MaxMsgSize, s.MaxConsumers)
		for _, d := range []struct {
			name string
			d    time.Duration
		}{{"maxAge", s.MaxAge}, {"duplicateWindow", s.Duplicates}, {"subjectDeleteMarkerTtl", s.SubjectDeleteMarkerTTL}} {
			if d.d > 0 {
				fmt.Fprintf(&b, "  %s: %q\n", d.name, d.d)
			}
		}
		for _, f := range []struct {
			name string
			on   bool
		}{
			{"denyDelete", s.DenyDelete}, {"allowRollup", s.AllowRollup}, {"allowMsgTtl", s.AllowMsgTTL},
			{"allowDirect", s.AllowDirect}, {"allowAtomicPublish", s.AllowAtomicPublish}, {"denyPurge", s.DenyPurge},
		} {
			fmt.Fprintf(&b, "  %s: %t\n", f.name, f.on)
		}
		if len(s.Sources) > 0 {
			fmt.Fprintf(&b, "  sources:\n")
		}
		for _, source := range s.Sources {
			fmt.Fprintf(&b, "    - name: %q\n", source.Name)
			if source.FilterSubject != "" {
				fmt.Fprintf(&b, "      filterSubject: %q\n", source.FilterSubject)
			}
			if len(source.SubjectTransforms) > 0 {
				fmt.Fprintf(&b, "      subjectTransforms:\n")
			}
			for _, t := range source.SubjectTransforms {
				fmt.Fprintf(&b, "        - source: %q\n          dest: %q\n", t.Source, t.Destination)
			}
		}
		if r := s.RePublish; r != nil {
			fmt.Fprintf(&b, "  republish:\n    source: %q\n    destination: %q\n", r.Source, r.Destination)
		}
		fmt.Fprintf(&b, "  preventDelete: true\n")
	}
	return b.Bytes()
}

// quoted is a setting as the JetStream API spells it.
func quoted(setting json.Marshaler) []byte {
	b, err := setting.MarshalJSON()
	if err != nil {
		panic("encode a setting of ours: " + err.Error())
	}
	return b
}
