package runtime

import (
	"cmp"
	"context"
	"strings"

	"github.com/go-json-experiment/json"

	"muster/wire"
)

// userInfo is what the server says of who asks. No permissions means all.
type userInfo struct {
	Data struct {
		Permissions *struct {
			Publish   subjectLists `json:"publish"`
			Subscribe subjectLists `json:"subscribe"`
			Responses *struct{}    `json:"responses"`
		} `json:"permissions"`
	} `json:"data"`
}

type subjectLists struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// permitted compares what the functions need with what the server says that this user may. A server that does not say
// is no fault: what is refused then shows where it is used.
func (b *Bus) permitted(ctx context.Context, fns []Function) Check {
	c := Check{Name: "permissions", OK: true}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	reply, err := b.nc.RequestWithContext(ctx, wire.APIUserInfo, nil)
	if err != nil {
		c.Detail = "not known: no answer to " + wire.APIUserInfo
		b.mu.Lock()
		deaf := b.deaf
		b.mu.Unlock()
		if deaf != "" { // the answer may not have been let through
			c.OK, c.Detail = false, wire.PermissionDenied+": this user may not subscribe to "+deaf
		}
		return c
	}
	var info userInfo
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		c.Detail = "not known: the server's answer to " + wire.APIUserInfo + " cannot be read"
		return c
	}
	if missing := info.missing(PermissionsOf(fns, b.inboxes())); len(missing) > 0 {
		c.OK, c.Detail = false, wire.PermissionDenied+": this user may not "+strings.Join(missing, "; ")
	}
	return c
}

// inboxes is the prefix of this connection's inboxes.
func (b *Bus) inboxes() string { return cmp.Or(b.nc.Opts.InboxPrefix, wire.InboxDefault) }

// missing lists what is needed and not there, in words for an operator.
func (u *userInfo) missing(need Permissions) []string {
	p := u.Data.Permissions
	if p == nil {
		return nil
	}
	var missing []string
	for _, s := range need.Publish {
		switch {
		case p.Publish.covers(s):
		case strings.HasPrefix(s, wire.APIStreamCreate("")):
			// Who finds buckets that others made need not make any; one that is absent and cannot be made has a check of its own.
		case p.Responses != nil && wire.IsInbox(s): // it may answer anywhere
		default:
			missing = append(missing, "publish to "+s)
		}
	}
	for _, s := range need.Subscribe {
		if !p.Subscribe.covers(s) {
			missing = append(missing, "subscribe to "+s)
		}
	}
	if need.Answers && p.Responses == nil && !p.Publish.covers(wire.InboxDefault+".>") {
		missing = append(missing, "answer requests (allow_responses)")
	}
	return missing
}

// covers tells whether a need, a subject and perhaps a queue group, is within one of the allowed and beside all of the
// denied. An empty list allows everything.
func (l subjectLists) covers(need string) bool {
	subject, queue, _ := strings.Cut(need, " ")
	for _, d := range l.Deny {
		denied, q, _ := strings.Cut(d, " ")
		if (q == "" || q == queue) && overlap(denied, subject) {
			return false
		}
	}
	for _, a := range l.Allow {
		allowed, q, _ := strings.Cut(a, " ")
		if (q == "" || within(queue, q)) && within(subject, allowed) {
			return true
		}
	}
	return len(l.Allow) == 0
}

// within tells whether every subject of the pattern s is one of the pattern in.
func within(s, in string) bool {
	ss, is := strings.Split(s, "."), strings.Split(in, ".")
	for i, t := range is {
		switch {
		case i >= len(ss):
			return false
		case t == ">":
			return true
		case ss[i] == ">", t != "*" && t != ss[i]:
			return false
		}
	}
	return len(ss) == len(is)
}

// overlap tells whether two patterns have a subject in common.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == ">", bs[i] == ">":
			return true
		case as[i] != "*" && bs[i] != "*" && as[i] != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}
