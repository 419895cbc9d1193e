package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

// connection says where NATS is and who we are there.
type connection struct {
	NATS    string `name:"nats" placeholder:"URL" help:"NATS servers, with commas between them; else $$NATS_URL, else those of the NATS context, else localhost."`
	Creds   string `placeholder:"FILE" help:"NATS credentials file; else $$NATS_CREDS, else what the NATS context says."`
	Context string `placeholder:"NAME" help:"NATS context, as nats context ls has it; else $$NATS_CONTEXT, else the selected one unless servers are given."`
}

// withEnv fills in from the environment what no flag says. A context that was given by a flag is not bent by NATS_URL or
// NATS_CREDS: whoever asks for a context must not end up elsewhere.
func (c connection) withEnv() connection {
	if c.Context != "" {
		return c
	}
	return connection{
		NATS:    cmp.Or(c.NATS, os.Getenv("NATS_URL")),
		Creds:   cmp.Or(c.Creds, os.Getenv("NATS_CREDS")),
		Context: os.Getenv("NATS_CONTEXT"),
	}
}

// dial connects. An address or credentials that are given win over those of a context. What can not be used at all, a
// context or a file that is not there, is a usage error.
func (c connection) dial(options ...nats.Option) (*nats.Conn, error) {
	c = c.withEnv()
	var own []nats.Option
	if c.Creds != "" {
		if _, err := os.ReadFile(c.Creds); err != nil {
			return nil, &exit{exitUsage, fmt.Errorf("read NATS credentials: %w", err)}
		}
		own = append(own, forgetUser, nats.UserCredentials(c.Creds))
	}
	if c.NATS != "" && c.Context == "" {
		return nats.Connect(c.NATS, append(own, options...)...)
	}
	loaded := false
	own = append(own, func(o *nats.Options) error {
		loaded = true
		if c.NATS != "" {
			o.Servers = strings.FieldsFunc(c.NATS, func(r rune) bool { return r == ',' || r == ' ' })
		}
		if len(o.Servers) == 0 || o.Servers[0] == "" {
			o.Servers = []string{nats.DefaultURL}
		}
		return nil
	})
	nc, _, err := natscontext.Connect(c.Context, append(own, options...)...)
	if err != nil && !loaded {
		return nil, &exit{exitUsage, fmt.Errorf("load NATS context: %w", err)}
	}
	return nc, err
}

// forgetUser removes who a context says we are. The client would send both, or refuse to.
func forgetUser(o *nats.Options) error {
	o.User, o.Password, o.Token, o.Nkey = "", "", "", ""
	o.UserJWT, o.SignatureCB = nil, nil
	return nil
}
