// Package nats_test holds deploy/nats to its word: the configuration starts a real server, and declare runs on it.
package nats_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"muster/functions/declare"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

func TestServerConf_Settings(t *testing.T) {
	o, err := server.ProcessConfigFile("server.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || !o.SyncAlways {
		t.Errorf("JetStream %t, sync always %t: what is acknowledged must survive a power cut", o.JetStream, o.SyncAlways)
	}
	for what, host := range map[string]string{"clients": o.Host, "monitoring": o.HTTPHost} {
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			t.Errorf("%s: listens on %q, and there are no users", what, host)
		}
	}
	if o.Port != server.DEFAULT_PORT || o.HTTPPort != server.DEFAULT_HTTP_PORT {
		t.Errorf("ports %d and %d: clients and probes look at NATS' own", o.Port, o.HTTPPort)
	}
	if o.MaxPayload != server.MAX_PAYLOAD_SIZE {
		t.Errorf("max_payload %d, want NATS' default %d, which Muster's limits count on", o.MaxPayload, server.MAX_PAYLOAD_SIZE)
	}
	if o.MaxPending < 16*int64(o.MaxPayload) {
		t.Errorf("max_pending %d is too near to max_payload %d", o.MaxPending, o.MaxPayload)
	}
	if o.ServerName == "" || o.StoreDir == "" || o.JetStreamMaxStore <= 0 || o.MaxConn <= 0 {
		t.Errorf("name %q, store %q, %d bytes of it, %d connections: each must be set", o.ServerName, o.StoreDir, o.JetStreamMaxStore, o.MaxConn)
	}
	if o.LameDuckGracePeriod != time.Second || o.LameDuckDuration != 30*time.Second {
		t.Errorf("lame duck %v, %v", o.LameDuckGracePeriod, o.LameDuckDuration)
	}
	if len(o.Users) > 0 || o.Username != "" || o.TLSConfig != nil {
		t.Error("users or TLS are set: the comments and the README say they are not")
	}
}

// TestServerConf_EveryLineSaysWhy: a setting that is not explained gets copied and never changed.
func TestServerConf_EveryLineSaysWhy(t *testing.T) {
	for _, file := range []string{"server.conf", "cluster.conf"} {
		previous := ""
		for _, line := range strings.Split(read(t, file), "\n") {
			line = strings.TrimSpace(line)
			block := line == "" || line == "}" || strings.HasSuffix(line, "{")
			if !block && !strings.HasPrefix(line, "#") && previous == "" {
				t.Errorf("%s: no comment above %q", file, line)
			}
			previous = line
			if strings.HasSuffix(line, "{") {
				previous = ""
			}
		}
	}
}

func TestClusterConf_Settings(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cluster.conf": read(t, "cluster.conf"), "accounts.conf": "accounts { MUSTER { jetstream: enabled, users: [ {user: a, password: b} ] } }"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if err := os.Mkdir("tls", 0o700); err != nil {
		t.Fatal(err)
	}
	certificate(t, "tls/server.crt", "tls/server.key")
	if err := os.Link("tls/server.crt", "tls/ca.crt"); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"NODE": "n1", "LISTEN": "127.0.0.1:4231", "ROUTE": "127.0.0.1:6231", "STORE": "store/n1"} {
		t.Setenv(name, value)
	}
	o, err := server.ProcessConfigFile("cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || !o.SyncAlways || o.StoreDir != "store/n1" || o.JetStreamMaxStore <= 0 {
		t.Errorf("JetStream %t, sync always %t, store %q of %d bytes", o.JetStream, o.SyncAlways, o.StoreDir, o.JetStreamMaxStore)
	}
	if o.TLSConfig == nil || o.Cluster.TLSConfig == nil || o.Cluster.TLSConfig.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Errorf("TLS for clients %t, for routes %+v", o.TLSConfig != nil, o.Cluster.TLSConfig)
	}
	if o.ServerName != "n1" || o.Port != 4231 || o.Cluster.Name == "" || o.Cluster.Port != 6231 || len(o.Routes) != 3 {
		t.Errorf("name %q, port %d, cluster %q, port %d, %d routes", o.ServerName, o.Port, o.Cluster.Name, o.Cluster.Port, len(o.Routes))
	}
	if o.MaxPayload != server.MAX_PAYLOAD_SIZE || o.MaxPending < 16*int64(o.MaxPayload) || o.MaxConn <= 0 || o.MaxSubs <= 0 {
		t.Errorf("payload %d, pending %d, connections %d, subscriptions %d", o.MaxPayload, o.MaxPending, o.MaxConn, o.MaxSubs)
	}
	if o.LameDuckGracePeriod <= 0 || o.LameDuckDuration < 30*time.Second || o.NoAuthUser != "" {
		t.Errorf("lame duck %v, %v, without a user %q", o.LameDuckGracePeriod, o.LameDuckDuration, o.NoAuthUser)
	}
}

func TestServerConf_DeclareRunsOnIt(t *testing.T) {
	node := natstest.StartConfig(t, "server.conf")
	if c := node.Server().JetStreamConfig(); c == nil || !c.SyncAlways {
		t.Fatalf("the running server does not sync always: %+v", c)
	}
	serve(t, node.URL())
	nc := natstest.Connect(t, node.URL())
	declareOn(t, nc)

	node.Restart()
	natstest.Eventually(t, 20*time.Second, "the declaration, after a restart of the server", func() bool {
		d, err := ask(nc, nil, `{}`, "view", "h1")
		return err == nil && d.Revision == 3 && len(d.Agents) == 2
	})
}

// TestServerConf_WithTLSAndUsers fills in what is commented out, as the README says.
func TestServerConf_WithTLSAndUsers(t *testing.T) {
	conf := read(t, "server.conf")
	head, tail, found := strings.Cut(conf, "# tls {\n")
	if !found {
		t.Fatal("tls is not in server.conf")
	}
	dir := t.TempDir()
	cert := filepath.Join(dir, "server.crt")
	certificate(t, cert, filepath.Join(dir, "server.key"))
	tail = regexp.MustCompile(`(?m)^# ?`).ReplaceAllString("# tls {\n"+tail, "")
	file := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(file, []byte(head+strings.ReplaceAll(tail, "/etc/nats", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_PASSWORD", "not-in-the-file")
	node := natstest.StartConfig(t, file)
	options := []nats.Option{nats.RootCAs(cert), nats.UserInfo("muster", "not-in-the-file")}
	serve(t, node.URL(), options...)
	declareOn(t, natstest.Connect(t, node.URL(), options...))
	for who, options := range map[string][]nats.Option{
		"a stranger":                    options[:1],
		"one who takes any certificate": {nats.UserInfo("muster", "not-in-the-file")},
	} {
		if nc, err := nats.Connect(node.URL(), options...); err == nil {
			nc.Close()
			t.Errorf("%s got in", who)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// serve runs declare as muster serve does, until the test ends.
func serve(t *testing.T, url string, options ...nats.Option) {
	t.Helper()
	bus, err := runtime.Connect(runtime.Options{
		Name: "muster serve", Log: slog.New(slog.DiscardHandler),
		Dial: func(o ...nats.Option) (*nats.Conn, error) { return nats.Connect(url, append(options, o...)...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	fn := declare.New(declare.Deps{Wanted: bus.Bucket(runtime.Wanted), Reported: bus.Bucket(runtime.Reported), Now: time.Now})
	svc, err := bus.Serve(t.Context(), fn, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := bus.Stop(ctx, svc); err != nil {
			t.Error(err)
		}
		if err := bus.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	natstest.Eventually(t, 20*time.Second, "ready", func() bool {
		for _, c := range bus.Checks(t.Context(), []runtime.Function{fn}) {
			if !c.OK {
				return false
			}
		}
		return true
	})
}

// ask sends one request to declare.
func ask(nc *nats.Conn, header nats.Header, body, op string, ids ...string) (d wire.Declaration, err error) {
	reply, err := nc.RequestMsg(&nats.Msg{Subject: wire.Subject(wire.Declare, op, ids...), Header: header, Data: []byte(body)}, 5*time.Second)
	if err != nil {
		return d, err
	}
	var failure wire.ErrorBody
	if err := json.Unmarshal(reply.Data, &failure); err == nil && failure.Code != "" {
		return d, &wire.Error{Code: failure.Code, Message: failure.Message, Details: failure.Details}
	}
	return d, json.Unmarshal(reply.Data, &d)
}

// declareOn creates, sets and views on hive h1, which must not be declared yet; afterwards it is at revision 3.
func declareOn(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if d, err := ask(nc, nil, `{"state":"up"}`, "create", "h1", "atlas"); err != nil || d.Revision != 1 || !d.Changed {
		t.Fatalf("create: %+v, %v", d, err)
	}
	for range 2 { // the second is a retry: one atomic batch of outcome and record, found again
		id := nats.Header{wire.HeaderRequestID: {"try-1"}}
		if d, err := ask(nc, id, `{"state":"paused"}`, "set", "h1", "iris"); err != nil || d.Revision != 3 || !d.Changed {
			t.Fatalf("set with an id: %+v, %v", d, err)
		}
	}
	if d, err := ask(nc, nil, `{}`, "view", "h1"); err != nil || d.Revision != 3 || d.Agents["atlas"].State != wire.Up || d.Agents["iris"].State != wire.Paused {
		t.Fatalf("view: %+v, %v", d, err)
	}
}

// certificate makes a server certificate for 127.0.0.1 that signs itself.
func certificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
