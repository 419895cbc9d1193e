package resolve

import (
	"strings"
	"testing"

	"muster/wire"
)

func TestRecord(t *testing.T) {
	r := &record{}
	if !r.define(dnsSource, start) || r.define(&wire.Source{DNS: &wire.DNSSource{Name: dnsSource.DNS.Name}}, start) {
		t.Error("an equal source is no change, a new one is")
	}
	of := r.of
	if !r.answered(of, found{Backends: named("a"), Complete: true}) || r.answered(of, found{Backends: named("a"), Complete: true, ObservedAt: at(9)}) {
		t.Error("an equal answer is no change, a new one is")
	}
	expires := at(5)
	same := named("a")
	same[0].ExpiresAt = &expires
	if r.answered(of, found{Backends: same, Complete: true}) {
		t.Error("a refresh is no change")
	}
	if !r.answered(of, found{Backends: same, Complete: false}) || r.Answer.Backends[0].ExpiresAt != nil {
		t.Error("an incomplete answer is another one, and what moves with each refresh is not stored")
	}
	if r.answered("another", found{Backends: named("b")}) || names(r.Answer.Backends) != "a" {
		t.Error("the answer of another source was taken")
	}
	withServers := &wire.Source{DNS: &wire.DNSSource{Name: dnsSource.DNS.Name, Servers: []string{"[::1]:53"}}}
	if !r.define(withServers, start) || r.Answer != nil || r.of == of {
		t.Error("other servers are another source, and its answer is not there yet")
	}
	if !r.define(staticSource, start) || names(r.Answer.Backends) != "mgs0 mgs1" {
		t.Errorf("a static list is its answer: %+v", r.Answer)
	}
	r.remove()
	if r.Source != nil || r.Answer != nil || r.answered("", found{}) {
		t.Errorf("removed, and still %+v", r)
	}
	if !r.define(staticSource, start) {
		t.Error("what was removed cannot be defined again")
	}
}

func TestRecordKeepsWhatItDoesNotKnow(t *testing.T) {
	r, err := decodeRecord([]byte(`{"n":9007199254740993,"source":{"leases":{}},"o":{"b":1,"a":[2]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(){
		func() { r.answered(r.of, found{Backends: named("a")}) }, func() { r.define(staticSource, start) }, r.remove,
	} {
		change()
		if out := string(encode(r)); !strings.Contains(out, `"n":9007199254740993`) || !strings.Contains(out, `"o":{"b":1,"a":[2]}`) {
			t.Errorf("written again as %s", out)
		}
	}
}

func TestRecordThatCannotBeRead(t *testing.T) {
	for _, value := range []string{``, `7`, `[]`, `{"source":{}}`, `{"source":{"consul":{}}}`, `{"source":7}`, `{"source":{"static":[]}}`, `{"answer":{"backends":{}}}`, `{"source":{"dns":{"name":1}}}`} {
		if r, err := decodeRecord([]byte(value)); err == nil {
			t.Errorf("%s was read as %+v", value, r)
		}
	}
}

func TestCopied(t *testing.T) {
	c, err := decodeCopied([]byte(`{"status":"fresh","ttl":"5s","backends":[{"name":"a","address":"[fd00::1]:80"}],"new_member":1}`))
	if err != nil || c.ttl.Seconds() != 5 || names(c.Backends) != "a" {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, value := range []string{``, `{}`, `{"status":"good"}`, `{"status":"fresh","ttl":"5"}`, `{"status":"fresh","age_ms":"1"}`, `_resolver 8XY`} {
		if c, err := decodeCopied([]byte(value)); err == nil {
			t.Errorf("%s was read as %+v", value, c)
		}
	}
}
