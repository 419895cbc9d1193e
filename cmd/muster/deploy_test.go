package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
)

// takes tells whether the program takes a command line, without running it.
func takes(t *testing.T, args []string) {
	t.Helper()
	var c cli
	parser, err := kong.New(&c, kong.Name("muster"), kong.Exit(func(int) { t.Errorf("muster %q asks for help", args) }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Errorf("muster %q: %v", args, err)
	}
}

// reads tells whether the program takes a variable from its environment.
func reads(t *testing.T, variable string) {
	t.Helper()
	t.Setenv(variable, "something")
	if (connection{}).withEnv() == (connection{}) {
		t.Errorf("the program does not read %s", variable)
	}
	if err := os.Unsetenv(variable); err != nil {
		t.Fatal(err)
	}
}

// unitKeys are the settings of systemd that our units use; any other is a typing error or new here.
var unitKeys = map[string][]string{
	"Unit": {"Description", "Documentation", "After", "Wants"},
	"Service": {
		"User", "Group", "DynamicUser", "WorkingDirectory", "EnvironmentFile", "Environment", "LoadCredential", "ExecStart", "ExecReload", "ExecStop",
		"TimeoutStopSec", "Restart", "RestartSec", "LimitNOFILE", "StateDirectory", "StateDirectoryMode", "UMask", "NoNewPrivileges", "ProtectSystem",
		"ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables", "ProtectControlGroups", "CapabilityBoundingSet",
		"RestrictAddressFamilies", "SystemCallFilter", "MemoryDenyWriteExecute",
	},
	"Install": {"WantedBy"},
}

// TestDeploy_Units: systemd's units are well formed, and start the program with flags and variables that it has.
func TestDeploy_Units(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 4 {
		t.Fatalf("units %v, %v", units, err)
	}
	example := strings.NewReplacer("${HIVE}", "h1", "${PART}", "913-0000019", "${SERIAL}", "2FAKE001")
	for _, file := range units {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		unit, section := map[string][]string{}, ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			switch key, value, set := strings.Cut(line, "="); {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "["):
				section = strings.Trim(line, "[]")
			case !set || !slices.Contains(unitKeys[section], key):
				t.Errorf("%s: [%s] %s", file, section, line)
			default:
				unit[key] = append(unit[key], value)
			}
		}
		for _, key := range []string{"Description", "ExecStart", "TimeoutStopSec", "Restart", "WantedBy"} {
			if len(unit[key]) != 1 {
				t.Errorf("%s: %d times %s", file, len(unit[key]), key)
			}
		}
		start := strings.Fields(example.Replace(strings.Join(unit["ExecStart"], " ")))
		if filepath.Base(start[0]) != "muster" {
			continue
		}
		takes(t, start[1:])
		if d, err := time.ParseDuration(unit["TimeoutStopSec"][0] + "s"); err != nil || d <= stopWithin {
			t.Errorf("%s: killed after %v, it may take %v", file, d, stopWithin)
		}
		for _, variables := range unit["Environment"] {
			for _, v := range strings.Fields(variables) {
				name, value, _ := strings.Cut(v, "=")
				reads(t, name)
				credential, ok := strings.CutPrefix(value, "%d/")
				if !ok || !slices.ContainsFunc(unit["LoadCredential"], func(s string) bool { return strings.HasPrefix(s, credential+":") }) {
					t.Errorf("%s: %s is no credential that is loaded", file, v)
				}
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^#.*?(NATS_\w+|MUSTER_\w+)=`).FindAllStringSubmatch(string(text), -1) {
			reads(t, m[1])
		}
	}
}

// These are what our manifests use of Kubernetes' API, by its names; a member that is not here is refused.
type (
	labels   map[string]string
	metadata struct {
		Name        string
		Labels      labels
		Annotations labels
	}
	selector struct {
		MatchLabels labels `yaml:"matchLabels"`
	}
	manifest struct {
		APIVersion     string `yaml:"apiVersion"`
		Kind           string
		Metadata       metadata
		AutomountToken *bool `yaml:"automountServiceAccountToken"`
		Spec           yaml.Node
	}
	deployment struct {
		Replicas int
		Selector selector
		Strategy struct {
			Type          string
			RollingUpdate struct {
				MaxUnavailable int `yaml:"maxUnavailable"`
				MaxSurge       int `yaml:"maxSurge"`
			} `yaml:"rollingUpdate"`
		}
		Template struct {
			Metadata metadata
			Spec     podSpec
		}
	}
	podSpec struct {
		ServiceAccountName string `yaml:"serviceAccountName"`
		AutomountToken     *bool  `yaml:"automountServiceAccountToken"`
		Grace              int    `yaml:"terminationGracePeriodSeconds"`
		Spread             []struct {
			MaxSkew           int      `yaml:"maxSkew"`
			TopologyKey       string   `yaml:"topologyKey"`
			WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
			LabelSelector     selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		SecurityContext struct {
			RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
			RunAsUser      int                   `yaml:"runAsUser"`
			RunAsGroup     int                   `yaml:"runAsGroup"`
			FSGroup        int                   `yaml:"fsGroup"`
			SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		Containers []container
		Volumes    []struct {
			Name   string
			Secret struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
			}
		}
	}
	container struct {
		Name  string
		Image string
		Args  []string
		Env   []struct{ Name, Value string }
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		Liveness  probe `yaml:"livenessProbe"`
		Readiness probe `yaml:"readinessProbe"`
		Resources struct {
			Requests, Limits map[string]string
		}
		SecurityContext struct {
			Escalation   *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities struct{ Drop []string }
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	probe struct {
		HTTPGet struct {
			Path string
			Port string
		} `yaml:"httpGet"`
		Period   int `yaml:"periodSeconds"`
		Timeout  int `yaml:"timeoutSeconds"`
		Failures int `yaml:"failureThreshold"`
	}
	disruptionBudget struct {
		MinAvailable int `yaml:"minAvailable"`
		Selector     selector
	}
	// nackStream has the members of NACK's v1beta2 resource that we use.
	nackStream struct {
		Name, Description, Retention, Storage, Discard string
		Subjects                                       []string
		Replicas                                       int
		MaxMsgsPerSubject                              int    `yaml:"maxMsgsPerSubject"`
		MaxMsgs                                        int    `yaml:"maxMsgs"`
		MaxBytes                                       int    `yaml:"maxBytes"`
		MaxMsgSize                                     int    `yaml:"maxMsgSize"`
		MaxConsumers                                   int    `yaml:"maxConsumers"`
		MaxAge                                         string `yaml:"maxAge"`
		DuplicateWindow                                string `yaml:"duplicateWindow"`
		SubjectDeleteMarkerTTL                         string `yaml:"subjectDeleteMarkerTtl"`
		DenyDelete                                     bool   `yaml:"denyDelete"`
		DenyPurge                                      bool   `yaml:"denyPurge"`
		AllowRollup                                    bool   `yaml:"allowRollup"`
		AllowMsgTTL                                    bool   `yaml:"allowMsgTtl"`
		AllowDirect                                    bool   `yaml:"allowDirect"`
		AllowAtomicPublish                             bool   `yaml:"allowAtomicPublish"`
		PreventDelete                                  bool   `yaml:"preventDelete"`
		Sources                                        []struct {
			Name              string
			FilterSubject     string `yaml:"filterSubject"`
			SubjectTransforms []struct {
				Source string
				Dest   string
			} `yaml:"subjectTransforms"`
		}
		Republish *struct{ Source, Destination string }
	}
)

// manifests reads a file of them.
func manifests(t *testing.T, file string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		d.KnownFields(true)
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, m)
	}
}

// strictly decodes a part of a manifest and refuses members that are not known.
func strictly(t *testing.T, n yaml.Node, v any) {
	t.Helper()
	text, err := yaml.Marshal(&n)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatal(err)
	}
}

func TestDeploy_Kubernetes(t *testing.T) {
	byKind := map[string]manifest{}
	for _, m := range manifests(t, "../../deploy/kubernetes/muster.yaml") {
		byKind[m.APIVersion+" "+m.Kind] = m
	}
	want := []string{"apps/v1 Deployment", "policy/v1 PodDisruptionBudget", "v1 ServiceAccount"}
	if got := slices.Sorted(maps.Keys(byKind)); !slices.Equal(got, want) {
		t.Fatalf("kinds %q, want %q", got, want)
	}
	var d deployment
	var pdb disruptionBudget
	strictly(t, byKind[want[0]].Spec, &d)
	strictly(t, byKind[want[1]].Spec, &pdb)
	pod := d.Template.Spec
	for what, l := range map[string]labels{"budget": pdb.Selector.MatchLabels, "pods": d.Template.Metadata.Labels, "spread": pod.Spread[0].LabelSelector.MatchLabels} {
		if len(l) == 0 || !maps.Equal(l, d.Selector.MatchLabels) {
			t.Errorf("%s have labels %v, the deployment selects %v", what, l, d.Selector.MatchLabels)
		}
	}
	if d.Replicas < 2 || pdb.MinAvailable < 1 || pdb.MinAvailable >= d.Replicas || d.Strategy.RollingUpdate.MaxUnavailable != 0 {
		t.Errorf("%d replicas, %d of them always, %+v", d.Replicas, pdb.MinAvailable, d.Strategy)
	}
	if pod.ServiceAccountName != byKind[want[2]].Metadata.Name || pod.AutomountToken == nil || *pod.AutomountToken {
		t.Errorf("service account %q, token %v", pod.ServiceAccountName, pod.AutomountToken)
	}
	if time.Duration(pod.Grace)*time.Second <= stopWithin {
		t.Errorf("killed after %d s, it may take %v", pod.Grace, stopWithin)
	}
	c := pod.Containers[0]
	takes(t, c.Args)
	port := "0.0.0.0:9464"
	if !slices.Contains(c.Args, port) || c.Ports[0].ContainerPort != 9464 || d.Template.Metadata.Annotations["prometheus.io/port"] != "9464" {
		t.Errorf("args %q, ports %+v: HTTP must be reached from outside the pod", c.Args, c.Ports)
	}
	for path, p := range map[string]probe{"/livez": c.Liveness, "/readyz": c.Readiness} {
		if p.HTTPGet.Path != path || p.HTTPGet.Port != c.Ports[0].Name || p.Timeout < 2 || p.Period < 1 || p.Failures < 2 {
			t.Errorf("probe %+v, want %s", p, path)
		}
	}
	for _, e := range c.Env {
		reads(t, e.Name)
		if strings.HasPrefix(e.Value, "/") && filepath.Dir(e.Value) != c.VolumeMounts[0].MountPath {
			t.Errorf("%s is %s, mounted is %s", e.Name, e.Value, c.VolumeMounts[0].MountPath)
		}
	}
	if v := pod.Volumes[0]; v.Name != c.VolumeMounts[0].Name || v.Secret.SecretName == "" || v.Secret.DefaultMode&0o007 != 0 || !c.VolumeMounts[0].ReadOnly {
		t.Errorf("volume %+v", v)
	}
	if s := c.SecurityContext; s.Escalation == nil || *s.Escalation || !s.ReadOnly || !slices.Contains(s.Capabilities.Drop, "ALL") || !pod.SecurityContext.RunAsNonRoot {
		t.Errorf("the container has more than it needs: %+v", s)
	}
}

func TestDeploy_KubernetesStreams(t *testing.T) {
	names := map[string]bool{}
	for _, m := range manifests(t, "../../deploy/kubernetes/streams.yaml") {
		var s nackStream
		strictly(t, m.Spec, &s)
		if m.APIVersion != "jetstream.nats.io/v1beta2" || m.Kind != "Stream" || !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(m.Metadata.Name) {
			t.Errorf("%s %s %q", m.APIVersion, m.Kind, m.Metadata.Name)
		}
		if names[s.Name] || s.Name == "" || len(s.Subjects)+len(s.Sources) == 0 || s.Replicas != 3 || !s.PreventDelete {
			t.Errorf("stream %+v", s)
		}
		names[s.Name] = true
	}
	if files, _ := filepath.Glob(deployNATS + "/*/*.json"); len(files) != len(names) || len(names) == 0 {
		t.Errorf("%d streams, %d files in deploy/nats", len(names), len(files))
	}
}
