package test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"muster/functions/declare"
	"muster/functions/join"
	"muster/functions/resolve"
	"muster/runtime"
	"muster/runtime/natstest"
	"muster/wire"
)

// lesser is a user of the server's configuration, with a password.
func lesser(name string, p permits, answers bool) string {
	quoted := func(subjects []string) (all []string) {
		for _, s := range subjects {
			all = append(all, fmt.Sprintf("%q", s))
		}
		return all
	}
	text := fmt.Sprintf("{user: %q, password: less, permissions: {\n publish: {allow: [%s]}\n subscribe: {allow: [%s]}\n",
		name, strings.Join(quoted(p.publish), ","), strings.Join(quoted(p.subscribe), ","))
	if answers {
		text += " allow_responses: {max: 1, expires: \"65s\"}\n"
	}
	return text + "}}\n"
}

func without(all []string, gone ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(gone, s) })
}

// ready tells whether all checks are fine of what looks at its buckets and streams but serves nothing.
func ready(checks []runtime.Check) bool {
	return !slices.ContainsFunc(checks, func(c runtime.Check) bool { return !c.OK && !strings.HasPrefix(c.Name, "triggers ") })
}

// TestPerms_OneLess takes each permission of a function away in turn. Readiness names it. Two are not needed to be ready: to
// ask what is permitted, without which a function says that it cannot tell, and to make buckets that are there.
func TestPerms_OneLess(t *testing.T) {
	t.Parallel()
	for _, fn := range []runtime.Function{declare.New(declare.Deps{}), join.New(join.Deps{}), resolve.New(resolve.Deps{})} {
		t.Run(fn.Name, func(t *testing.T) {
			t.Parallel()
			user := "function." + fn.Name
			fn.Ready = nil // of a function that serves
			full := &lockedServer{t: t, dir: filepath.Join(t.TempDir(), "users")}
			full.makeUsers("conf", "function:"+fn.Name)
			p := full.permits()[user]
			type missing struct{ user, what string }
			var all []missing
			conf := lesser("whole", p, true)
			take := func(what string, p permits, answers bool) {
				all = append(all, missing{fmt.Sprintf("less%d", len(all)), what})
				conf += lesser(all[len(all)-1].user, p, answers)
			}
			for _, s := range p.publish {
				take("publish to "+s, permits{publish: without(p.publish, s), subscribe: p.subscribe}, true)
			}
			for _, s := range p.subscribe {
				take("subscribe to "+s, permits{publish: p.publish, subscribe: without(p.subscribe, s)}, true)
			}
			take("answer requests", p, false)
			s := serverWithUsers(t, conf)
			whole := busAs(t, s.URL(), "whole", user)
			natstest.Eventually(t, startLimit, "ready with all permissions", func() bool { return ready(whole.Checks(t.Context(), []runtime.Function{fn})) })
			for _, m := range all {
				t.Run(m.what, func(t *testing.T) {
					t.Parallel()
					bus := busAs(t, s.URL(), m.user, user)
					var said []runtime.Check
					if strings.HasSuffix(m.what, wire.APIUserInfo) {
						natstest.Eventually(t, startLimit, "ready, and says that it cannot tell", func() bool {
							said = bus.Checks(t.Context(), []runtime.Function{fn})
							return ready(said) && strings.Contains(fmt.Sprint(said), "not known")
						})
						return
					}
					if strings.Contains(m.what, "STREAM.CREATE") {
						natstest.Eventually(t, startLimit, "ready, since the buckets are there", func() bool {
							return ready(bus.Checks(t.Context(), []runtime.Function{fn}))
						})
						return
					}
					what := strings.TrimPrefix(m.what, "subscribe to _INBOX.") // named as it was refused, without >
					what = strings.TrimSuffix(what, ">")
					natstest.Eventually(t, startLimit, "not ready, and it is said why", func() bool {
						said = bus.Checks(t.Context(), []runtime.Function{fn})
						return !ready(said) && strings.Contains(fmt.Sprint(said), what)
					})
				})
			}
		})
	}
}

func serverWithUsers(t *testing.T, users string) *natstest.Node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.conf")
	if err := os.WriteFile(file, []byte("jetstream: {}\nauthorization { users: [\n"+users+"] }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return natstest.StartConfig(t, file)
}

// busAs is a bus as a user with the private inboxes of another one.
func busAs(t *testing.T, url, user, inbox string) *runtime.Bus {
	t.Helper()
	bus, err := runtime.Connect(runtime.Options{
		Name: user, Log: slog.New(slog.DiscardHandler),
		Dial: func(o ...nats.Option) (*nats.Conn, error) {
			return nats.Connect(url, append(o, nats.UserInfo(user, "less"), nats.CustomInboxPrefix("_INBOX."+inbox))...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close(t.Context()) })
	natstest.Eventually(t, startLimit, "connected", func() bool { return bus.Conn().IsConnected() })
	return bus
}

// TestPerms_RefusedWhereUsed: when readiness cannot tell, a request that needs what is not permitted says so.
func TestPerms_RefusedWhereUsed(t *testing.T) {
	t.Parallel()
	full := &lockedServer{t: t, dir: filepath.Join(t.TempDir(), "users")}
	full.makeUsers("conf", "function:declare")
	p := full.permits()["function.declare"]
	record, get := wire.RecordSubjects(wire.BucketWanted, 1), wire.APIMessageGet(wire.BucketStream(wire.BucketWanted))
	s := serverWithUsers(t, "{user: root, password: less}\n"+
		lesser("nowrite", permits{publish: without(p.publish, record, wire.APIUserInfo), subscribe: p.subscribe}, true)+
		lesser("noread", permits{publish: without(p.publish, get, wire.APIUserInfo), subscribe: p.subscribe}, true))
	nc := natstest.Connect(t, s.URL(), nats.UserInfo("root", "less"))
	for user, subject := range map[string]string{"nowrite": "muster.declare.set.h1.a", "noread": "muster.declare.view.h1"} {
		bus := busAs(t, s.URL(), user, "function.declare")
		fn := declare.New(declare.Deps{Wanted: bus.Bucket(runtime.Wanted), Reported: bus.Bucket(runtime.Reported), Now: time.Now})
		service, err := bus.Serve(t.Context(), fn, prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, startLimit, "the bucket is there", func() bool {
			e := ask(t, nc, subject, state("up"))
			if strings.Contains(subject, "view") {
				e = ask(t, nc, subject, "")
			}
			return e.failure != nil && e.failure.Code == wire.Unavailable && e.failure.Details["reason"] == wire.PermissionDenied
		})
		if err := bus.Stop(t.Context(), service); err != nil {
			t.Error(err)
		}
	}
}

// TestPerms_MayNotMake: a function that may not make its buckets says so, and is ready when somebody else has made them.
func TestPerms_MayNotMake(t *testing.T) {
	t.Parallel()
	full := &lockedServer{t: t, dir: filepath.Join(t.TempDir(), "users")}
	full.makeUsers("conf", "function:declare")
	p := full.permits()["function.declare"]
	create := "$JS.API.STREAM.CREATE."
	s := serverWithUsers(t, "{user: root, password: less}\n"+lesser("uses", permits{
		publish:   slices.DeleteFunc(slices.Clone(p.publish), func(s string) bool { return strings.HasPrefix(s, create) }),
		subscribe: p.subscribe,
	}, true))
	fns := []runtime.Function{declare.New(declare.Deps{})}
	bus := busAs(t, s.URL(), "uses", "function.declare")
	natstest.Eventually(t, startLimit, "what is missing is named", func() bool {
		said := fmt.Sprint(bus.Checks(t.Context(), fns))
		return strings.Contains(said, create+"KV_muster_wanted") && strings.Contains(said, create+"KV_muster_reported")
	})
	nc := natstest.Connect(t, s.URL(), nats.UserInfo("root", "less"))
	for _, c := range runtime.Topology(fns, 1) {
		body, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request(create+c.Name, body, startLimit); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, startLimit, "ready with what another has made", func() bool {
		return ready(bus.Checks(t.Context(), fns))
	})
}
