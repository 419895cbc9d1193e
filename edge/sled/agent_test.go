package sled

import (
	"errors"
	"testing"

	"muster/functions/join/quorum"
	"muster/wire"
)

const md5Key = `s3cret"key`

func startRequest() wire.StartSled {
	return wire.StartSled{SchemaVersion: 1, Body: wire.StartSledBody{
		ID: "0e4c7a2c-0000-4000-8000-000000000001", Subnet: wire.Subnet{Net: "fd00:1122:3344:201::/64"},
		UseTrustQuorum: true, RackID: rack,
	}}
}

func networkRequest(generation uint64) wire.SledNetworkConfig {
	return wire.SledNetworkConfig{Generation: generation, Config: &wire.RackNetworkConfig{
		RackSubnet: "fd00:1122:3344:200::/56", InfraIPFirst: "10.0.0.1", InfraIPLast: "10.0.0.9",
		Ports: []wire.Port{{Port: "qsfp0", Switch: "switch0", UplinkPortSpeed: "speed40_g", BGPPeers: []wire.BGPPeer{
			{ASN: 47, Port: "qsfp0", Addr: wire.BGPPeerAddr{Type: "numbered", TargetAddr: "10.0.0.2"}, MD5AuthKey: ptr(md5Key)},
		}}},
	}}
}

// member is a sled that has committed epoch 1.
func member(t testing.TB) *state {
	c := newCast(t, 3)
	now := must(t)(c.fresh(board(2)).prepare(c.prepare(c.deal(1, 3, nil), board(2))))
	return must(t)(now.commit(quorum.Commit{RackID: rack, Epoch: 1}))
}

func TestStart(t *testing.T) {
	c := newCast(t, 3)
	in := member(t)
	pending, started := must(t)(in.start(startRequest(), false)), must(t)(in.start(startRequest(), true))
	prepared := must(t)(c.fresh(board(2)).prepare(c.prepare(c.deal(1, 3, nil), board(2))))
	change := func(f func(*wire.StartSled)) wire.StartSled {
		r := startRequest()
		f(&r)
		return r
	}
	for name, x := range map[string]struct {
		now     *state
		ask     wire.StartSled
		done    bool
		code    wire.Code
		field   string
		equal   bool
		started bool
	}{
		"without a command":           {now: in, ask: startRequest(), done: true, started: true},
		"with one":                    {now: in, ask: startRequest()},
		"again":                       {now: started, ask: startRequest(), done: true, equal: true, started: true},
		"again, a command came":       {now: started, ask: startRequest(), equal: true, started: true},
		"again, it has not succeeded": {now: pending, ask: startRequest(), equal: true},
		"again, the command is gone":  {now: pending, ask: startRequest(), done: true, started: true},
		"another id":                  {now: started, ask: change(func(r *wire.StartSled) { r.Body.ID = "x" }), code: wire.AlreadyStarted},
		"another subnet":              {now: pending, ask: change(func(r *wire.StartSled) { r.Body.Subnet.Net = "fd00::/64" }), code: wire.AlreadyStarted},
		"another generation":          {now: started, ask: change(func(r *wire.StartSled) { r.Generation = 1 }), code: wire.AlreadyStarted},
		"another rack":                {now: in, ask: change(func(r *wire.StartSled) { r.Body.RackID = "other" }), code: wire.WrongRack},
		"a free sled":                 {now: c.fresh(board(2)), ask: startRequest(), code: wire.NotPrepared},
		"only prepared":               {now: prepared, ask: startRequest(), code: wire.NotPrepared},
		"another form":                {now: in, ask: change(func(r *wire.StartSled) { r.SchemaVersion = 2 }), code: wire.InvalidRequest, field: "schema_version"},
		"no id":                       {now: in, ask: change(func(r *wire.StartSled) { r.Body.ID = "" }), code: wire.InvalidRequest, field: "body.id"},
		"no rack":                     {now: in, ask: change(func(r *wire.StartSled) { r.Body.RackID = "" }), code: wire.InvalidRequest, field: "body.rack_id"},
		"a subnet of 56":              {now: in, ask: change(func(r *wire.StartSled) { r.Body.Subnet.Net = "fd00::/56" }), code: wire.InvalidRequest, field: "body.subnet.net"},
		"host bits":                   {now: in, ask: change(func(r *wire.StartSled) { r.Body.Subnet.Net = "fd00::1/64" }), code: wire.InvalidRequest, field: "body.subnet.net"},
		"IPv4":                        {now: in, ask: change(func(r *wire.StartSled) { r.Body.Subnet.Net = "10.0.0.0/24" }), code: wire.InvalidRequest, field: "body.subnet.net"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := x.now.start(x.ask, x.done)
			judge(t, err, x.code, x.field, "")
			if err == nil && (x.equal != (got == x.now) || got.identity().Started != x.started) {
				t.Errorf("changed %v, started %v", got != x.now, got.identity().Started)
			}
		})
	}
	if got := pending.started(startRequest()); !got.identity().Started {
		t.Error("a success is not taken")
	}
	if got := in.started(startRequest()); got != in {
		t.Error("a success is taken that belongs to nothing")
	}
}

func TestConfigure(t *testing.T) {
	c := newCast(t, 3)
	fresh := c.fresh(board(2))
	other := networkRequest(4)
	other.Config.InfraIPLast = "10.0.0.8"
	pending, written := must(t)(fresh.configure(networkRequest(4), false)), must(t)(fresh.configure(networkRequest(4), true))
	next := must(t)(written.configure(networkRequest(5), false))
	for name, x := range map[string]struct {
		now     *state
		ask     wire.SledNetworkConfig
		done    bool
		code    wire.Code
		field   string
		equal   bool
		written uint64
	}{
		"without a command":           {now: fresh, ask: networkRequest(4), done: true, written: 4},
		"with one":                    {now: fresh, ask: networkRequest(4)},
		"again":                       {now: written, ask: networkRequest(4), equal: true, written: 4},
		"again, it has not succeeded": {now: pending, ask: networkRequest(4), equal: true},
		"again, the command is gone":  {now: pending, ask: networkRequest(4), done: true, written: 4},
		"a newer one":                 {now: written, ask: networkRequest(9), done: true, written: 9},
		"a newer one, not yet":        {now: written, ask: networkRequest(9), written: 4},
		"an older one":                {now: written, ask: networkRequest(3), code: wire.StaleGeneration},
		"older than one not written":  {now: next, ask: networkRequest(4), code: wire.StaleGeneration},
		"another content":             {now: written, ask: other, code: wire.GenerationConflict},
		"another, not written":        {now: pending, ask: other, code: wire.GenerationConflict},
		"generation 0":                {now: fresh, ask: networkRequest(0), code: wire.InvalidRequest, field: "generation"},
		"no config":                   {now: fresh, ask: wire.SledNetworkConfig{Generation: 1}, code: wire.InvalidRequest, field: "config"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := x.now.configure(x.ask, x.done)
			judge(t, err, x.code, x.field, "")
			if err == nil && (x.equal != (got == x.now) || got.identity().NetworkGeneration != x.written) {
				t.Errorf("changed %v, written %d", got != x.now, got.identity().NetworkGeneration)
			}
		})
	}
	if got := next.configured(5); got.identity().NetworkGeneration != 5 {
		t.Error("a success is not taken")
	}
	if got := next.configured(4); got != next {
		t.Error("a success is taken that came too late")
	}
}

func TestForget(t *testing.T) {
	in := must(t)(must(t)(member(t).start(startRequest(), true)).configure(networkRequest(3), true))
	fresh := newCast(t, 2).fresh(board(2))
	key := func() (quorum.ExchangeKey, error) { return newKey(t), nil }
	for name, x := range map[string]struct {
		now   *state
		rack  string
		code  wire.Code
		equal bool
	}{
		"its rack":          {now: in, rack: rack},
		"again":             {now: fresh, rack: rack, equal: true},
		"another rack":      {now: in, rack: "other", code: wire.WrongRack},
		"no name of a rack": {now: in, rack: "", code: wire.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := x.now.forget(wire.SledForget{RackID: x.rack}, key)
			field := ""
			if x.code == wire.InvalidRequest {
				field = "rack_id"
			}
			judge(t, err, x.code, field, "")
			switch {
			case err != nil:
			case x.equal != (got == x.now):
				t.Errorf("changed %v", got != x.now)
			case got.rack != "" || got.highest() != 0 || got.agent != nil || got.network != nil || got.coordination != nil:
				t.Errorf("left: %+v", got.identity())
			case !x.equal && got.key.Public() == x.now.key.Public():
				t.Error("a share under way to it would still open")
			}
		})
	}
	broken := errors.New("no randomness")
	if _, err := in.forget(wire.SledForget{RackID: rack}, func() (quorum.ExchangeKey, error) { return quorum.ExchangeKey{}, broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}
