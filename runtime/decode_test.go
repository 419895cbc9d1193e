package runtime

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/wire"
)

// sample is a body with everything that bodies of ours have: nested objects, maps, arrays, integers of both kinds.
type sample struct {
	State      wire.State             `json:"state"`
	IfRevision *uint64                `json:"if_revision,omitempty"`
	Limit      int                    `json:"limit,omitempty"`
	DryRun     bool                   `json:"dry_run,omitempty"`
	Agents     map[string]*wire.Agent `json:"agents,omitempty"`
	Ports      []samplePort           `json:"ports,omitempty"`
}

type samplePort struct {
	Port      string   `json:"port"`
	Addresses []string `json:"addresses,omitempty"`
	VLAN      *uint16  `json:"vlan_id,omitempty"`
}

func TestDecode_Takes(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want sample
	}{
		"empty is {}":                       {"", sample{}},
		"spaces are {}":                     {" \r\n\t ", sample{}},
		"no members":                        {"{}", sample{}},
		"spaces around":                     {"\n\t {\"state\" : \"up\"}\r\n", sample{State: "up"}},
		"null is a missing member":          {`{"state":null,"if_revision":null,"limit":null,"dry_run":null,"agents":null,"ports":null}`, sample{}},
		"null for an agent":                 {`{"agents":{"a":null}}`, sample{Agents: map[string]*wire.Agent{"a": nil}}},
		"null within an agent":              {`{"agents":{"a":{"state":null}}}`, sample{Agents: map[string]*wire.Agent{"a": {}}}},
		"escapes":                           {`{"st\u0061te":"\u0075p"}`, sample{State: "up"}},
		"a surrogate pair":                  {`{"state":"\ud83d\ude00"}`, sample{State: "😀"}},
		"zero is not missing":               {`{"if_revision":0}`, sample{IfRevision: new(uint64(0))}},
		"an integer no float64 can hold":    {`{"if_revision":9007199254740993}`, sample{IfRevision: new(uint64(9007199254740993))}},
		"the greatest unsigned":             {`{"if_revision":18446744073709551615}`, sample{IfRevision: new(uint64(18446744073709551615))}},
		"a negative one where it may be":    {`{"limit":-1}`, sample{Limit: -1}},
		"arrays":                            {`{"ports":[{"port":"qsfp0","addresses":["::1"]},{}]}`, sample{Ports: []samplePort{{Port: "qsfp0", Addresses: []string{"::1"}}, {}}}},
		"agents that differ in case only":   {`{"agents":{"a":{"state":"up"},"A":{"state":"up"}}}`, sample{Agents: map[string]*wire.Agent{"a": {State: "up"}, "A": {State: "up"}}}},
		"the same member in two places":     {`{"agents":{"a":{"state":"up"},"b":{"state":"up"}},"state":"up"}`, sample{State: "up", Agents: map[string]*wire.Agent{"a": {State: "up"}, "b": {State: "up"}}}},
		"a state no handler would let pass": {`{"state":"banana"}`, sample{State: "banana"}},
	} {
		var got sample
		if err := decode([]byte(c.body), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: want -, got +\n%s", name, d)
		}
	}
}

func TestDecode_Refuses(t *testing.T) {
	for name, c := range map[string]struct{ body, field string }{
		"no object: null":            {"null", ""},
		"no object: array":           {"[]", ""},
		"no object: string":          {`"up"`, ""},
		"no object: number":          {"7", ""},
		"no object: true":            {"true", ""},
		"no JSON":                    {"state: up", ""},
		"half an object":             {`{"state":"up"`, ""},
		"half a member":              {`{"state"`, "state"},
		"trailing comma":             {`{"state":"up",}`, ""},
		"comment":                    {`{"state":"up"/**/}`, ""},
		"single quotes":              {`{'state':'up'}`, ""},
		"trailing word":              {`{"state":"up"} x`, ""},
		"trailing object":            {`{"state":"up"}{}`, ""},
		"trailing bracket":           {`{"state":"up"}]`, ""},
		"trailing NUL":               {"{}\x00", ""},
		"byte order mark":            {"\uFEFF{}", ""},
		"byte order mark of UTF-16":  {"\xfe\xff\x00{\x00}", ""},
		"unknown":                    {`{"stat":"up"}`, "stat"},
		"unknown beside known":       {`{"state":"up","if_revison":7}`, "if_revison"},
		"unknown, empty name":        {`{"":1}`, ""},
		"unknown in an agent":        {`{"agents":{"a":{"stat":"up"}}}`, "agents.a.stat"},
		"unknown in an array":        {`{"ports":[{},{"prot":"x"}]}`, "ports[1].prot"},
		"duplicate":                  {`{"state":"up","state":"up"}`, "state"},
		"duplicate by escapes":       {`{"state":"up","st\u0061te":"up"}`, "state"},
		"duplicate null":             {`{"state":null,"state":"up"}`, "state"},
		"duplicate agent":            {`{"agents":{"a":{"state":"up"},"a":{"state":"up"}}}`, "agents.a"},
		"duplicate in an agent":      {`{"agents":{"a":{"state":"up","state":"up"}}}`, "agents.a.state"},
		"duplicate in an array":      {`{"ports":[{"port":"a","port":"b"}]}`, "ports[0].port"},
		"duplicate agents":           {`{"agents":{},"agents":{}}`, "agents"},
		"other letter case":          {`{"State":"up"}`, "State"},
		"capitals":                   {`{"STATE":"up"}`, "STATE"},
		"long s":                     {`{"ſtate":"up"}`, "ſtate"},
		"Kelvin sign":                {`{"\u212aey":1}`, "\u212aey"},
		"other case in an agent":     {`{"agents":{"a":{"State":"up"}}}`, "agents.a.State"},
		"number for a string":        {`{"state":1}`, "state"},
		"bool for a string":          {`{"state":true}`, "state"},
		"object for a string":        {`{"state":{}}`, "state"},
		"array for a string":         {`{"state":["up"]}`, "state"},
		"string for a number":        {`{"if_revision":"7"}`, "if_revision"},
		"string for a bool":          {`{"dry_run":"true"}`, "dry_run"},
		"number for a bool":          {`{"dry_run":1}`, "dry_run"},
		"array for a map":            {`{"agents":[]}`, "agents"},
		"string for a map":           {`{"agents":"a"}`, "agents"},
		"string for an agent":        {`{"agents":{"a":"up"}}`, "agents.a"},
		"number for a nested string": {`{"agents":{"a":{"state":1}}}`, "agents.a.state"},
		"object for an array":        {`{"ports":{}}`, "ports"},
		"number in an array":         {`{"ports":[{},7]}`, "ports[1]"},
		"number for a port":          {`{"ports":[{"port":7}]}`, "ports[0].port"},
		"number for an address":      {`{"ports":[{"addresses":["::1",7]}]}`, "ports[0].addresses[1]"},
		"fraction":                   {`{"if_revision":7.5}`, "if_revision"},
		"fraction that is none":      {`{"if_revision":7.0}`, "if_revision"},
		"exponent":                   {`{"if_revision":1e2}`, "if_revision"},
		"2^64":                       {`{"if_revision":18446744073709551616}`, "if_revision"},
		"2^64 - 1 as a float":        {`{"if_revision":1.8446744073709551615e19}`, "if_revision"},
		"1e400":                      {`{"if_revision":1e400}`, "if_revision"},
		"negative":                   {`{"if_revision":-1}`, "if_revision"},
		"negative nothing":           {`{"if_revision":-0}`, "if_revision"},
		"2^63 for a signed one":      {`{"limit":9223372036854775808}`, "limit"},
		"too great for a small one":  {`{"ports":[{"vlan_id":65536}]}`, "ports[0].vlan_id"},
		"leading zero":               {`{"limit":007}`, ""},
		"plus sign":                  {`{"limit":+7}`, "limit"},
		"hexadecimal":                {`{"limit":0x7}`, ""},
		"NaN":                        {`{"limit":NaN}`, "limit"},
		"broken UTF-8 in a value":    {"{\"state\":\"\xff\"}", "state"},
		"broken UTF-8 in a name":     {"{\"\xff\":1}", ""},
		"overlong UTF-8":             {"{\"state\":\"\xc0\xaf\"}", "state"},
		"surrogate in UTF-8":         {"{\"state\":\"\xed\xa0\x80\"}", "state"},
		"lone high surrogate":        {`{"state":"\ud800"}`, "state"},
		"lone low surrogate":         {`{"state":"\udc00x"}`, "state"},
		"surrogates in wrong order":  {`{"state":"\udc00\ud800"}`, "state"},
		"lone surrogate in a name":   {`{"\ud800":1}`, ""},
		"control character":          {"{\"state\":\"a\nb\"}", "state"},
		"unknown escape":             {`{"state":"\x41"}`, "state"},
		"10,000 [":                   {strings.Repeat("[", 10000), ""},
		"10,000 [ for a map":         {`{"agents":` + strings.Repeat("[", 10000), "agents"},
		"20,000 { as unknown":        {`{"x":` + strings.Repeat(`{"x":`, 20000), "x"},
	} {
		e := refusedBody(t, name, c.body)
		if e == nil {
			continue
		}
		if field, _ := e.Details["field"].(string); field != c.field {
			t.Errorf("%s: details.field is %q, want %q (%s)", name, field, c.field, e.Message)
		}
	}
}

// refusedBody decodes a body that must not pass, and checks what holds of every such error.
func refusedBody(t *testing.T, name, body string) *wire.Error {
	t.Helper()
	err := decode([]byte(body), new(sample))
	if err == nil {
		t.Errorf("%s: accepted", name)
		return nil
	}
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != wire.InvalidRequest {
		t.Errorf("%s: %v, want InvalidRequest", name, err)
		return nil
	}
	if e.Message == "" || len(e.Message) > 512 {
		t.Errorf("%s: message of %d bytes", name, len(e.Message))
	}
	if sent, err := encode(nil, e.Body("r1")); err != nil || !json.Valid(sent) {
		t.Errorf("%s: the error cannot be sent: %v", name, err)
	}
	return e
}

// 10,000 brackets where a string belongs: the path that the decoder was on is cut, not repeated.
func TestDecode_DeepNestingGetsAShortAnswer(t *testing.T) {
	e := refusedBody(t, "deep", `{"state":`+strings.Repeat("[", 10000))
	if field, _ := e.Details["field"].(string); !strings.HasPrefix(field, "state") || len(field) > 256 {
		t.Errorf("details.field has %d bytes and begins with %.20q", len(field), field)
	}
}

func TestDecode_SaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ body, says string }{
		"a byte order mark by its name": {"\uFEFF{}", "byte order mark"},
		"that an object is wanted":      {"[]", "JSON object"},
		"the members there are":         {`{"stat":"up"}`, "state, if_revision, limit, dry_run, agents, ports"},
		"the members of the agent":      {`{"agents":{"a":{"stat":1}}}`, "known are: state"},
		"that a member is there twice":  {`{"state":"up","state":"up"}`, "state is there twice"},
		"the type it wants":             {`{"agents":{"a":{"state":1}}}`, "agents.a.state must be a string"},
		"integers":                      {`{"limit":"x"}`, "limit must be an integer"},
		"unsigned integers":             {`{"if_revision":-1}`, "if_revision must be an unsigned integer"},
		"booleans":                      {`{"dry_run":1}`, "dry_run must be true or false"},
		"arrays":                        {`{"ports":1}`, "ports must be an array"},
		"objects":                       {`{"agents":1}`, "agents must be an object"},
		"where JSON ends":               {`{"state":"up"`, "not valid JSON, at byte 13"},
	} {
		if e := refusedBody(t, name, c.body); e != nil && !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: message %q, want %q in it", name, e.Message, c.says)
		}
	}
}

// What a value held is nobody's business; names of members may be told, in ASCII.
func TestDecode_NeverRepeatsAValue(t *testing.T) {
	const secret = "hunter2"
	for _, body := range []string{
		`{"state":{"` + secret + `":1}}`, `{"if_revision":"` + secret + `"}`, `{"agents":"` + secret + `"}`,
		`{"stat":"` + secret + `"}`, `{"limit":` + secret + `}`, `"` + secret + `"`, secret, `{"state":"` + secret,
		`{"state":"` + secret + `"} ` + secret, `{"state":"up","state":"` + secret + `"}`,
	} {
		e := refusedBody(t, body, body)
		if e == nil {
			continue
		}
		sent, err := encode(nil, e.Body("r1"))
		if err != nil || strings.Contains(string(sent), secret) {
			t.Errorf("%s is answered with %s, %v", body, sent, err)
		}
	}
	e := refusedBody(t, "odd name", "{\"\x7f\u202eé\\n\":1}")
	for _, c := range e.Message {
		if c < ' ' || c > '~' {
			t.Errorf("message %q has %q in it", e.Message, c)
		}
	}
}
