package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

// connection says where NATS is and who we are there.
type connection struct {
	NATS    string `name:"nats" placeholder:"URL" help:"NATS servers, with commas between them; else $$NATS_URL, else those of the NATS context, else localhost."`
	Creds   string `placeholder:"FILE" help:"NATS credentials file; else $$NATS_CREDS, else what the NATS context says."`
	Context string `placeholder:"NAME" help:"NATS context, as nats context ls has it, or the file of one; else $$NATS_CONTEXT, else the selected one unless servers are given."`
	TLSCA   string `name:"tlsca" placeholder:"FILE" help:"Certificate authority that the servers' certificates are of; else $$NATS_CA, else what the NATS context says, else the system's."`
	Inbox   string `name:"inbox-prefix" placeholder:"PREFIX" help:"What the subjects of private inboxes begin with; else $$MUSTER_INBOX_PREFIX, else what the NATS context says, else that of the user if muster perms made it, else _INBOX."`
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
		TLSCA:   cmp.Or(c.TLSCA, os.Getenv("NATS_CA")),
		Inbox:   cmp.Or(c.Inbox, os.Getenv("MUSTER_INBOX_PREFIX")),
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
	if c.TLSCA != "" {
		if _, err := os.ReadFile(c.TLSCA); err != nil {
			return nil, &exit{exitUsage, fmt.Errorf("read certificate authority: %w", err)}
		}
		own = append(own, nats.RootCAs(c.TLSCA))
	}
	if c.Inbox != "" {
		own = append(own, nats.CustomInboxPrefix(c.Inbox))
	}
	if c.NATS != "" && c.Context == "" {
		return nats.Connect(c.NATS, append(append(own, c.privateInbox), options...)...)
	}
	if strings.ContainsRune(c.Context, filepath.Separator) { // a file
		file, err := filepath.Abs(c.Context)
		if err != nil {
			return nil, &exit{exitUsage, fmt.Errorf("load NATS context: %w", err)}
		}
		c.Context = file
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
	nc, _, err := natscontext.Connect(c.Context, append(append(own, c.privateInbox), options...)...)
	if err != nil && !loaded {
		return nil, &exit{exitUsage, fmt.Errorf("load NATS context: %w", err)}
	}
	return nc, err
}

// privateInbox takes the inboxes of the user that we are, if it is one that muster perms made: it may use no others. Those
// that a context names are for the context's own user.
func (c connection) privateInbox(o *nats.Options) error {
	if c.Inbox != "" || o.InboxPrefix != "" && c.Creds == "" {
		return nil
	}
	user := o.User
	if o.UserJWT != nil {
		token, err := o.UserJWT()
		if err != nil {
			return nil //nolint:nilerr // whoever connects says what is wrong with the credentials
		}
		user = userOf(token)
	}
	if user == "" && len(o.Servers) > 0 {
		if u, err := url.Parse(o.Servers[0]); err == nil && u.User != nil {
			user = u.User.Username()
		}
	}
	if r, err := userRole(user); err == nil {
		o.InboxPrefix = r.inbox()
	}
	return nil
}

// forgetUser removes who a context says we are. The client would send both, or refuse to.
func forgetUser(o *nats.Options) error {
	o.User, o.Password, o.Token, o.Nkey = "", "", "", ""
	o.UserJWT, o.SignatureCB = nil, nil
	return nil
}
