package main

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

// connection says where NATS is and who we are there.
type connection struct {
	NATS    string `name:"nats" env:"NATS_URL" placeholder:"URL" help:"NATS servers, with commas between them. Else the NATS context, else localhost."`
	Creds   string `env:"NATS_CREDS" placeholder:"FILE" help:"Credentials file."`
	Context string `env:"NATS_CONTEXT" placeholder:"NAME" help:"NATS context; else the selected one."`
}

// dial connects. An address or credentials that are given win over those of a context.
func (c connection) dial(options ...nats.Option) (*nats.Conn, error) {
	if c.Creds != "" {
		options = append(options, nats.UserCredentials(c.Creds))
	}
	if c.NATS != "" && c.Context == "" {
		return nats.Connect(c.NATS, options...)
	}
	options = append(options, func(o *nats.Options) error {
		if c.NATS != "" {
			o.Servers = strings.Split(c.NATS, ",")
		}
		if len(o.Servers) == 0 || o.Servers[0] == "" {
			o.Servers = []string{nats.DefaultURL}
		}
		return nil
	})
	nc, _, err := natscontext.Connect(c.Context, options...)
	return nc, err
}
