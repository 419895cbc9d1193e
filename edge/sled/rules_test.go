package sled

import (
	"fmt"
	"strings"
	"testing"

	"muster/functions/join/quorum"
	"muster/wire"
)

func TestReconfigure(t *testing.T) {
	c := newCast(t, 5)
	fresh := c.fresh(board(1))
	told := must(t)(fresh.reconfigure(order(4, nil, boards(3)...)))
	d := c.deal(2, 3, nil)
	prepared := must(t)(c.fresh(board(1)).prepare(c.prepare(d, board(1))))
	committed := must(t)(prepared.commit(quorum.Commit{RackID: rack, Epoch: 2}))
	change := func(r quorum.Reconfigure, f func(*quorum.Reconfigure)) quorum.Reconfigure {
		f(&r)
		return r
	}
	for name, x := range map[string]struct {
		now    *state
		ask    quorum.Reconfigure
		code   wire.Code
		field  string // of an InvalidRequest
		equal  bool   // nothing changes
		detail string
	}{
		"the first":                   {now: fresh, ask: order(1, nil, boards(3)...)},
		"any epoch":                   {now: fresh, ask: order(1<<63-1, nil, boards(5)...)},
		"again":                       {now: told, ask: order(4, nil, boards(3)...), equal: true},
		"again, members turned round": {now: told, ask: order(4, nil, board(3), board(2), board(1)), equal: true},
		"a higher epoch":              {now: told, ask: order(5, nil, boards(3)...)},
		"32 members":                  {now: fresh, ask: order(1, nil, boards(32)...)},

		"2 members":          {now: fresh, ask: order(1, nil, boards(2)...), code: wire.InvalidRequest, field: "members"},
		"33 members":         {now: fresh, ask: order(1, nil, boards(33)...), code: wire.InvalidRequest, field: "members"},
		"no members":         {now: fresh, ask: order(1, nil), code: wire.InvalidRequest, field: "members"},
		"a member twice":     {now: fresh, ask: order(1, nil, board(1), board(2), board(2)), code: wire.InvalidRequest, field: "members[2]"},
		"a nameless member":  {now: fresh, ask: order(1, nil, board(1), board(2), wire.Baseboard{PartNumber: "p"}), code: wire.InvalidRequest, field: "members[2].serial_number"},
		"threshold 0":        {now: fresh, ask: change(order(1, nil, boards(5)...), func(r *quorum.Reconfigure) { r.Threshold = 0 }), code: wire.InvalidRequest, field: "threshold"},
		"threshold 1":        {now: fresh, ask: change(order(1, nil, boards(5)...), func(r *quorum.Reconfigure) { r.Threshold = 1 }), code: wire.InvalidRequest, field: "threshold"},
		"threshold n":        {now: fresh, ask: change(order(1, nil, boards(5)...), func(r *quorum.Reconfigure) { r.Threshold = 5 }), code: wire.InvalidRequest, field: "threshold"},
		"threshold below 0":  {now: fresh, ask: change(order(1, nil, boards(5)...), func(r *quorum.Reconfigure) { r.Threshold = -3 }), code: wire.InvalidRequest, field: "threshold"},
		"epoch 0":            {now: fresh, ask: order(0, nil, boards(3)...), code: wire.InvalidRequest, field: "epoch"},
		"epoch 2^63":         {now: fresh, ask: order(1<<63, nil, boards(3)...), code: wire.InvalidRequest, field: "epoch"},
		"no rack":            {now: fresh, ask: change(order(1, nil, boards(3)...), func(r *quorum.Reconfigure) { r.RackID = "" }), code: wire.InvalidRequest, field: "rack_id"},
		"last committed 0":   {now: fresh, ask: order(3, ptr(uint64(0)), boards(3)...), code: wire.InvalidRequest, field: "last_committed_epoch"},
		"last is itself":     {now: fresh, ask: order(3, ptr(uint64(3)), boards(3)...), code: wire.InvalidRequest, field: "last_committed_epoch"},
		"it is not a member": {now: fresh, ask: order(1, nil, board(2), board(3), board(4)), code: wire.NotMember},

		"another rack":                  {now: told, ask: change(order(5, nil, boards(3)...), func(r *quorum.Reconfigure) { r.RackID = "other" }), code: wire.WrongRack, detail: "rack_id"},
		"a lower epoch":                 {now: told, ask: order(3, nil, boards(3)...), code: wire.StaleEpoch, detail: "epoch"},
		"the same epoch, other members": {now: told, ask: order(4, nil, boards(5)...), code: wire.EpochConflict, detail: "epoch"},
		"the same epoch, another's":     {now: prepared, ask: order(2, nil, boards(3)...), code: wire.EpochConflict, detail: "epoch"},
		"the same epoch, another last":  {now: must(t)(committed.reconfigure(order(4, ptr(uint64(2)), boards(3)...))), ask: order(4, ptr(uint64(1)), boards(3)...), code: wire.EpochConflict},

		"after a commit":                {now: committed, ask: order(3, ptr(uint64(2)), boards(5)...)},
		"after a commit, none named":    {now: committed, ask: order(3, nil, boards(3)...), code: wire.LastCommittedEpochMismatch, detail: "last_committed_epoch"},
		"after a commit, another named": {now: committed, ask: order(3, ptr(uint64(1)), boards(3)...), code: wire.LastCommittedEpochMismatch, detail: "last_committed_epoch"},
		"others have committed":         {now: prepared, ask: order(3, ptr(uint64(2)), boards(3)...)},
		"a newcomer cannot carry on":    {now: fresh, ask: order(3, ptr(uint64(2)), boards(3)...), code: wire.LastCommittedEpochMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := x.now.reconfigure(x.ask)
			judge(t, err, x.code, x.field, x.detail)
			switch {
			case err != nil:
			case x.equal != (next == x.now):
				t.Errorf("changed %v", next != x.now)
			case next.rack != rack || next.highest() != x.ask.Epoch || !next.coordination.open():
				t.Errorf("rack %s, epoch %d, %+v", next.rack, next.highest(), next.coordination)
			}
		})
	}
}

// judge compares an error with the code, the field of an InvalidRequest, and a detail.
func judge(t *testing.T, err error, want wire.Code, field, detail string) {
	t.Helper()
	if code(err) != want {
		t.Fatalf("%v, want code %q", err, want)
	}
	if err == nil {
		return
	}
	e := wire.AsError(err)
	if want == wire.InvalidRequest {
		list, _ := e.Details["problems"].([]wire.Problem)
		if e.Details["field"] != field || len(list) == 0 || list[0].Field != field || !strings.Contains(e.Message, list[0].Problem) {
			t.Errorf("%v with %v, want field %s", e, e.Details, field)
		}
	}
	if _, ok := e.Details[detail]; detail != "" && !ok {
		t.Errorf("%v with %v, want detail %s", e, e.Details, detail)
	}
}

func TestInvalidRequest_NamesEveryRule(t *testing.T) {
	_, err := newCast(t, 1).fresh(board(1)).reconfigure(quorum.Reconfigure{RackID: rack, Members: []wire.Baseboard{board(1), board(1)}})
	e := wire.AsError(err)
	got := fmt.Sprint(e.Details["problems"])
	for _, rule := range []string{"rule epoch", "rule membership_size", "rule duplicate_member", "rule threshold"} {
		if !strings.Contains(got, rule) {
			t.Errorf("%s is not named in %s", rule, got)
		}
	}
	if !strings.HasSuffix(e.Message, "; and 3 more") {
		t.Errorf("message %q", e.Message)
	}
}

func TestPrepare(t *testing.T) {
	c := newCast(t, 5)
	one, other := c.deal(4, 3, nil), c.deal(4, 3, nil)
	me := board(2)
	fresh := c.fresh(me)
	now := must(t)(fresh.prepare(c.prepare(one, me)))
	leading := must(t)(must(t)(fresh.reconfigure(order(4, nil, boards(3)...))).deal(newZeros(), nil))
	committed := must(t)(now.commit(quorum.Commit{RackID: rack, Epoch: 4}))
	next := func(prior quorum.Secrets) quorum.Prepare { return c.prepare(c.deal(5, 3, prior), me) }
	change := func(p quorum.Prepare, f func(*quorum.Prepare)) quorum.Prepare {
		p.Config.Members = append([]quorum.Member{}, p.Config.Members...)
		p.Keys = append([]quorum.MemberKey{}, p.Keys...)
		f(&p)
		return p
	}
	valid := c.prepare(one, me)
	for name, x := range map[string]struct {
		now   *state
		ask   quorum.Prepare
		code  wire.Code
		field string
		equal bool
	}{
		"the first":             {now: fresh, ask: valid},
		"again":                 {now: now, ask: valid, equal: true},
		"again, sealed anew":    {now: now, ask: c.prepare(one, me), equal: true},
		"again, committed":      {now: committed, ask: valid, equal: true},
		"a higher epoch":        {now: now, ask: next(nil)},
		"with fewer keys":       {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Keys = p.Keys[1:2] })},
		"after a commit":        {now: committed, ask: next(quorum.Secrets{4: one.Secret})},
		"again with fewer keys": {now: now, ask: change(valid, func(p *quorum.Prepare) { p.Keys = nil }), equal: true},
		"again with other keys": {now: now, ask: change(valid, func(p *quorum.Prepare) { p.Keys[0].Key = newKey(t).Public() })},
		"committed, other keys": {now: committed, ask: change(valid, func(p *quorum.Prepare) { p.Keys[0].Key = newKey(t).Public() }), equal: true},

		"the same epoch, another configuration": {now: now, ask: c.prepare(other, me), code: wire.EpochConflict},
		"the epoch it coordinates itself":       {now: leading, ask: valid, code: wire.EpochConflict},
		"a lower epoch":                         {now: now, ask: c.prepare(c.deal(3, 3, nil), me), code: wire.StaleEpoch},
		"a lower epoch than it coordinates":     {now: leading, ask: c.prepare(c.deal(3, 3, nil), me), code: wire.StaleEpoch},
		"another rack":                          {now: now, ask: change(valid, func(p *quorum.Prepare) { p.Config.RackID = "other" }), code: wire.WrongRack},
		"it is not a member":                    {now: c.fresh(board(4)), ask: c.prepare(one, me), code: wire.NotMember},
		"without the secrets before":            {now: committed, ask: next(nil), code: wire.LastCommittedEpochMismatch},
		"another member's share":                {now: fresh, ask: change(c.prepare(one, board(3)), func(*quorum.Prepare) {}), code: wire.ShareMismatch},
		"a share of another deal":               {now: fresh, ask: change(c.prepare(other, me), func(p *quorum.Prepare) { p.Config = one.Config }), code: wire.ShareMismatch},
		"sealed by another":                     {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.SenderKey = newKey(t).Public() }), code: wire.ShareMismatch},
		"with its commitments":                  {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Commitments = commitments(t, one) })},
		"commitments of another deal":           {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Commitments = commitments(t, other) }), code: wire.ShareMismatch},
		"commitments that are none":             {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Commitments = "none" }), code: wire.ShareMismatch},
		"garbage for a share":                   {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Share = "!" }), code: wire.ShareMismatch},

		"no share":                {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Share = "" }), code: wire.InvalidRequest, field: "share"},
		"no sender key":           {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.SenderKey = "" }), code: wire.InvalidRequest, field: "sender_key"},
		"a key that is none":      {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Keys[1].Key = "X" }), code: wire.InvalidRequest, field: "keys[1]"},
		"a key twice":             {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Keys[2] = p.Keys[1] }), code: wire.InvalidRequest, field: "keys[2]"},
		"a stranger's key":        {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Keys[0].Member = board(9) }), code: wire.InvalidRequest, field: "keys[0]"},
		"epoch 0":                 {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Epoch = 0 }), code: wire.InvalidRequest, field: "config.epoch"},
		"epoch 2^63":              {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Epoch = 1 << 63 }), code: wire.InvalidRequest, field: "config.epoch"},
		"threshold 1":             {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Threshold = 1 }), code: wire.InvalidRequest, field: "config.threshold"},
		"threshold n":             {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Threshold = 3 }), code: wire.InvalidRequest, field: "config.threshold"},
		"two members":             {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Members = p.Config.Members[:2]; p.Keys = p.Keys[:2] }), code: wire.InvalidRequest, field: "config.members"},
		"a member twice":          {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Members[2] = p.Config.Members[1]; p.Keys = p.Keys[:2] }), code: wire.InvalidRequest, field: "config.members[2][0]"},
		"a coordinator from afar": {now: fresh, ask: change(valid, func(p *quorum.Prepare) { p.Config.Coordinator = board(9) }), code: wire.InvalidRequest, field: "config.coordinator"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := x.now.prepare(x.ask)
			judge(t, err, x.code, x.field, "")
			switch {
			case err != nil:
			case x.equal != (got == x.now):
				t.Errorf("changed %v", got != x.now)
			case got.rack != rack || number(got.identity().PreparedEpoch) != x.ask.Config.Epoch:
				t.Errorf("%+v", got.identity())
			}
		})
	}
}

// newZeros is a source of no randomness at all.
func newZeros() zeros { return zeros{} }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestPrepare_AddsKeysUntilTheCommit(t *testing.T) {
	c := newCast(t, 3)
	d, me := c.deal(1, 3, nil), board(2)
	some, all := c.prepare(d, me), c.prepare(d, me)
	some.Keys = some.Keys[:2]
	now := must(t)(c.fresh(me).prepare(some))
	if len(now.epochs[1].keys) != 2 {
		t.Fatalf("keys %v", now.epochs[1].keys)
	}
	now = must(t)(now.prepare(all))
	now = must(t)(now.commit(quorum.Commit{RackID: rack, Epoch: 1}))
	if len(now.epochs[1].keys) != 3 {
		t.Errorf("keys %v", now.epochs[1].keys)
	}
}

func TestPrepare_OfAHigherEpochEndsTheCoordination(t *testing.T) {
	c := newCast(t, 3)
	me := board(2)
	now := must(t)(must(t)(c.fresh(me).reconfigure(order(4, nil, boards(3)...))).deal(newZeros(), nil))
	now = must(t)(now.prepare(c.prepare(c.deal(5, 3, nil), me)))
	if _, err := now.status(nil); code(err) != wire.NotCoordinator {
		t.Errorf("status: %v", err)
	}
}

func TestCommit(t *testing.T) {
	c := newCast(t, 3)
	me := board(2)
	fresh := c.fresh(me)
	one := must(t)(fresh.prepare(c.prepare(c.deal(4, 3, nil), me)))
	two := must(t)(one.prepare(c.prepare(c.deal(5, 3, nil), me)))
	done := must(t)(two.commit(quorum.Commit{RackID: rack, Epoch: 5}))
	for name, x := range map[string]struct {
		now   *state
		rack  string
		epoch uint64
		code  wire.Code
		field string
		equal bool
	}{
		"prepared":                 {now: one, epoch: 4},
		"again":                    {now: done, epoch: 5, equal: true},
		"never prepared":           {now: fresh, epoch: 4, code: wire.NotPrepared},
		"not prepared yet":         {now: one, epoch: 5, code: wire.NotPrepared},
		"superseded":               {now: two, epoch: 4, code: wire.StaleEpoch},
		"before the one committed": {now: done, epoch: 4, code: wire.StaleEpoch},
		"another rack":             {now: one, rack: "other", epoch: 4, code: wire.WrongRack},
		"epoch 0":                  {now: one, code: wire.InvalidRequest, field: "epoch"},
		"epoch 2^63":               {now: one, epoch: 1 << 63, code: wire.InvalidRequest, field: "epoch"},
		"a rack without a name":    {now: one, rack: "!", epoch: 4, code: wire.InvalidRequest, field: "rack_id"},
	} {
		t.Run(name, func(t *testing.T) {
			if x.rack == "" {
				x.rack = rack
			}
			got, err := x.now.commit(quorum.Commit{RackID: x.rack, Epoch: x.epoch})
			judge(t, err, x.code, x.field, "")
			switch {
			case err != nil:
			case x.equal != (got == x.now):
				t.Errorf("changed %v", got != x.now)
			case number(got.identity().CommittedEpoch) != x.epoch:
				t.Errorf("%+v", got.identity())
			}
		})
	}
	if len(done.epochs) != 1 {
		t.Errorf("after the commit of 5 epochs %v are kept", len(done.epochs))
	}
}

func TestCommit_TakesTheOthersSharesOffTheCoordinator(t *testing.T) {
	c := newCast(t, 3)
	me := board(1)
	now := must(t)(must(t)(c.fresh(me).reconfigure(order(1, nil, boards(3)...))).deal(newZeros(), nil))
	d := quorum.Deal{Config: *now.coordination.config, Shares: now.coordination.shares}
	now = must(t)(now.prepare(c.prepare(d, me)))
	now = must(t)(now.commit(quorum.Commit{RackID: rack, Epoch: 1}))
	if now.coordination.open() || now.coordination.shares != nil {
		t.Error("the shares are still there")
	}
	status, err := now.status(nil)
	if err != nil || len(status.AckedPrepares) != 3 || !status.Config.Equal(d.Config) {
		t.Errorf("status %+v, %v", status, err)
	}
}

func TestShare(t *testing.T) {
	c := newCast(t, 5)
	me := board(2)
	first := c.deal(1, 4, nil)
	some := c.prepare(first, me)
	some.Keys = some.Keys[:3]
	one := must(t)(c.fresh(me).prepare(some))
	done := must(t)(one.commit(quorum.Commit{RackID: rack, Epoch: 1}))
	second := c.deal(2, 3, quorum.Secrets{1: first.Secret})
	next := must(t)(done.prepare(c.prepare(second, me)))
	for name, x := range map[string]struct {
		now   *state
		epoch uint64
		rack  string
		who   wire.Baseboard
		code  wire.Code
		field string
	}{
		"a member":                   {now: done, epoch: 1, who: board(1)},
		"itself":                     {now: done, epoch: 1, who: me},
		"not committed":              {now: one, epoch: 1, who: board(1), code: wire.NotPrepared},
		"the next is not committed":  {now: next, epoch: 2, who: board(1), code: wire.NotPrepared},
		"an epoch before":            {now: must(t)(next.commit(quorum.Commit{RackID: rack, Epoch: 2})), epoch: 1, who: board(3)},
		"no longer a member":         {now: must(t)(next.commit(quorum.Commit{RackID: rack, Epoch: 2})), epoch: 1, who: board(4), code: wire.NotMember},
		"unknown epoch":              {now: done, epoch: 7, who: board(1), code: wire.NotPrepared},
		"a stranger":                 {now: done, epoch: 1, who: board(5), code: wire.NotMember},
		"a member whose key is lost": {now: done, epoch: 1, who: board(4), code: wire.NotMember},
		"another rack":               {now: done, epoch: 1, rack: "other", who: board(1), code: wire.WrongRack},
		"a free sled":                {now: c.fresh(me), epoch: 1, who: board(1), code: wire.NotPrepared},
		"epoch 0":                    {now: done, who: board(1), code: wire.InvalidRequest, field: "epoch"},
		"nobody":                     {now: done, epoch: 1, code: wire.InvalidRequest, field: "requester.part_number"},
	} {
		t.Run(name, func(t *testing.T) {
			if x.rack == "" {
				x.rack = rack
			}
			share, to, err := x.now.share(quorum.ShareRequest{RackID: x.rack, Epoch: x.epoch, Requester: x.who})
			judge(t, err, x.code, x.field, "")
			if err == nil && (to != c.keys[x.who].Public() || !share.Equal(first.Shares[me])) {
				t.Errorf("sealed to %s", to)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	c := newCast(t, 3)
	me := board(1)
	if _, err := c.fresh(me).status(nil); code(err) != wire.NotCoordinator {
		t.Errorf("a free sled: %v", err)
	}
	d := c.deal(1, 3, nil)
	now := must(t)(c.fresh(me).prepare(c.prepare(d, me)))
	now = must(t)(now.commit(quorum.Commit{RackID: rack, Epoch: 1}))
	now = must(t)(now.reconfigure(order(2, ptr(uint64(1)), boards(3)...)))
	if _, err := now.status(nil); code(err) != wire.Unavailable {
		t.Errorf("not dealt: %v", err)
	}
	prior, err := now.carried(d.Secret)
	if err != nil {
		t.Fatal(err)
	}
	now = must(t)(now.deal(newZeros(), prior))
	status, err := now.status([]wire.Baseboard{me})
	if err != nil || status.Config.Epoch != 2 || len(status.AckedPrepares) != 1 || status.Config.EncryptedRackSecrets == nil {
		t.Errorf("dealt: %+v, %v", status, err)
	}
	if again := must(t)(now.deal(newZeros(), prior)); again != now {
		t.Error("an epoch was dealt twice")
	}
}
