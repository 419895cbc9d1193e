package natstest

import "github.com/nats-io/nats-server/v2/server"

// Option changes the options of a server before it starts. It is applied anew at
// each start of each node, because a server keeps and changes what it was given:
// make pointers (accounts, users, TLS) inside the function, not around it.
//
// The address, the store directory, the server's name and a cluster's name and
// routes stay as the helper chose them, whatever an option says.
type Option func(*server.Options)

// With is any change of the server's options.
func With(change func(*server.Options)) Option { return change }

// MaxPayload is the largest message in bytes, headers included, that the server
// takes. The server's own default is 1 MiB.
func MaxPayload(n int32) Option {
	return func(o *server.Options) { o.MaxPayload = n }
}

// WithoutJetStream starts a server that has never had JetStream. For one that
// loses it while running see [Node.DisableJetStream].
func WithoutJetStream() Option {
	return func(o *server.Options) { o.JetStream = false }
}

// baseOptions are those of a single node with JetStream, its options applied.
func baseOptions(name string, opts []Option) *server.Options {
	o := &server.Options{ServerName: name, JetStream: true}
	for _, opt := range opts {
		opt(o)
	}
	o.ServerName = name
	return o
}

// configOptions are those of a configuration file, cut down to one quiet node
// that meets nobody: no log, no pid file, no cluster, gateway or leaf links, and
// whatever else it listens on moved to a random loopback port.
func configOptions(file string) (*server.Options, error) {
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, err
	}
	o.LogFile, o.Syslog, o.RemoteSyslog = "", false, ""
	o.PidFile, o.PortsFileDir = "", ""
	o.Cluster, o.Routes, o.RoutesStr = server.ClusterOpts{}, nil, ""
	o.Gateway = server.GatewayOpts{}
	o.LeafNode.Remotes = nil
	o.HTTPHost = loopback
	for _, port := range []*int{&o.HTTPPort, &o.HTTPSPort, &o.ProfPort} {
		toRandomPort(port)
	}
	for host, port := range map[*string]*int{
		&o.LeafNode.Host:  &o.LeafNode.Port,
		&o.Websocket.Host: &o.Websocket.Port,
		&o.MQTT.Host:      &o.MQTT.Port,
	} {
		*host = loopback
		toRandomPort(port)
	}
	return o, nil
}

// toRandomPort asks the server to choose, if it was to listen at all.
func toRandomPort(port *int) {
	if *port != 0 {
		*port = server.RANDOM_PORT
	}
}
