package join

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"muster/wire"
)

// leaves calls visit with each string, number and bool within v, and with where it is: type and member.
func leaves(v reflect.Value, at string, visit func(at string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			leaves(v.Elem(), at, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), at, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), v.Type().Name()+"."+v.Type().Field(i).Name, visit)
		}
	default:
		visit(at, v)
	}
}

// alter makes a leaf another value.
func alter(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 1)
	case reflect.Int32:
		v.SetInt(v.Int() ^ 1)
	default:
		panic("a leaf of kind " + v.Kind().String())
	}
}

// twin copies v, whatever it is made of.
func twin(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		to.Set(reflect.New(v.Type().Elem()))
		to.Elem().Set(twin(v.Elem()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		to.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			to.Index(i).Set(twin(v.Index(i)))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			to.Field(i).Set(twin(v.Field(i)))
		}
	default:
		to.Set(v)
	}
	return to
}

func twinOf(r *wire.JoinRequest) *wire.JoinRequest {
	return twin(reflect.ValueOf(r)).Interface().(*wire.JoinRequest)
}

// The tests below lean on this: a member that the config gains has to be in the full request too.
func TestFullRequest_HasEveryMember(t *testing.T) {
	seen := map[string]bool{}
	leaves(reflect.ValueOf(fullRequest(t)), "", func(at string, _ reflect.Value) { seen[at] = true })
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		for i := 0; typ.Kind() == reflect.Struct && i < typ.NumField(); i++ {
			f := typ.Field(i)
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if at := typ.Name() + "." + f.Name; inner.Kind() != reflect.Struct && !seen[at] {
				t.Errorf("testdata/request.json has no %s", at)
			}
			look(inner)
		}
	}
	look(reflect.TypeFor[wire.JoinRequest]())
}

func TestSameConfig_SeesEveryChange(t *testing.T) {
	base := fullRequest(t).RackNetworkConfig
	count := 0
	leaves(reflect.ValueOf(base), "", func(string, reflect.Value) { count++ })
	for changed := range count {
		c := fullRequest(t).RackNetworkConfig
		i, where := 0, ""
		leaves(reflect.ValueOf(c), "", func(at string, v reflect.Value) {
			if i == changed {
				where = at
				alter(v)
			}
			i++
		})
		if sameConfig(base, c) {
			t.Errorf("another %s is the same config", where)
		}
	}
}

func TestSameConfig_NothingIsOnlyNothing(t *testing.T) {
	c := smallRequest().RackNetworkConfig
	if !sameConfig(nil, nil) || sameConfig(nil, c) || sameConfig(c, nil) {
		t.Error("a config that is not there is the same as one that is")
	}
}

// The order of lists in a config is the operator's: another order is another config.
func TestSameConfig_OrderCounts(t *testing.T) {
	a, b := fullRequest(t).RackNetworkConfig, fullRequest(t).RackNetworkConfig
	slices.Reverse(b.Ports)
	if sameConfig(a, b) {
		t.Error("two ports in another order are the same config")
	}
}

func TestCopies_ShareNothing(t *testing.T) {
	for name, copied := range map[string]func(*wire.JoinRequest) any{
		"normal":      func(r *wire.JoinRequest) any { return normal(r) },
		"cloneConfig": func(r *wire.JoinRequest) any { return cloneConfig(r.RackNetworkConfig) },
		"redacted":    func(r *wire.JoinRequest) any { return redacted(r.RackNetworkConfig) },
	} {
		r := fullRequest(t)
		leaves(reflect.ValueOf(copied(r)), "", func(_ string, v reflect.Value) { alter(v) })
		if d := cmp.Diff(fullRequest(t), r); d != "" {
			t.Errorf("%s: a change of the copy shows in the original: want -, got +\n%s", name, d)
		}
	}
	if d := cmp.Diff(fullRequest(t).RackNetworkConfig, cloneConfig(fullRequest(t).RackNetworkConfig)); d != "" {
		t.Errorf("a clone differs: want -, got +\n%s", d)
	}
	if cloneConfig(nil) != nil || redacted(nil) != nil || normal(&wire.JoinRequest{}).RackNetworkConfig != nil {
		t.Error("a copy of nothing is something")
	}
}

func TestNormal_OfTheFullRequest(t *testing.T) {
	r := fullRequest(t)
	r.RackNetworkConfig.RackSubnet = "FD00:1122:3344:0200:0::/56"
	got, want := normal(r), fullRequest(t)
	p := want.TrustQuorumPeers
	p[0], p[1], p[2] = p[1], p[2], p[0]
	c := want.RackNetworkConfig
	c.Ports[0].BGPPeers[0].AllowedImport, c.BGP[0].Shaper, c.BGP[1].MaxPaths = nil, nil, nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
}

func TestRedacted_LeavesNothingOfAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawRequest(t).RackNetworkConfig
		const secret = "Hunter2"
		keys := 0
		for i := range c.Ports {
			for j := range c.Ports[i].BGPPeers {
				if p := &c.Ports[i].BGPPeers[j]; rapid.Bool().Draw(t, "key") {
					keys++
					p.MD5AuthKey = new(rapid.SampledFrom([]string{secret, secret + " and more", "", redactedKey}).Draw(t, "md5"))
				} else {
					p.MD5AuthKey = nil
				}
			}
		}
		before := twin(reflect.ValueOf(c)).Interface()
		shown := redacted(c)
		if d := cmp.Diff(before, any(c)); d != "" {
			t.Fatalf("redacting changed the config: want -, got +\n%s", d)
		}
		b, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), secret) || strings.Count(string(b), `"md5_auth_key":"`+redactedKey+`"`) != keys {
			t.Fatalf("%d keys: %s", keys, b)
		}
		for i := range shown.Ports {
			for j := range shown.Ports[i].BGPPeers {
				shown.Ports[i].BGPPeers[j].MD5AuthKey = c.Ports[i].BGPPeers[j].MD5AuthKey
			}
		}
		if d := cmp.Diff(c, shown); d != "" {
			t.Fatalf("more than keys was redacted: want -, got +\n%s", d)
		}
	})
}

func TestNormal_IsOneFormOfEqualRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		before, other := twinOf(r), drawOtherForm(t, r)
		n := normal(r)
		if d := cmp.Diff(before, r); d != "" {
			t.Fatalf("normal changed its argument: want -, got +\n%s", d)
		}
		if d := cmp.Diff(n, normal(n)); d != "" {
			t.Fatalf("normal is not idempotent: once -, twice +\n%s", d)
		}
		if d := cmp.Diff(n, normal(other)); d != "" {
			t.Fatalf("an equal request in another form has another normal form: want -, got +\n%s", d)
		}
		if !sameConfig(r.RackNetworkConfig, other.RackNetworkConfig) {
			t.Fatal("equal configs are not the same")
		}
		if checkRequest(r) == nil && checkRequest(n) != nil {
			t.Fatalf("the normal form of a request that is taken: %+v", checkRequest(n))
		}
	})
}

func TestCheckRequest_TakesEveryFormOfALegalRequest(t *testing.T) {
	full := fullRequest(t)
	rapid.Check(t, func(t *rapid.T) {
		other := drawOtherForm(t, full)
		if p := checkRequest(other); p != nil {
			t.Fatalf("%+v", p)
		}
		if d := cmp.Diff(normal(full), normal(other)); d != "" {
			t.Fatalf("want -, got +\n%s", d)
		}
	})
}

// Whoever stores a normal form and reads it back has the same one.
func TestNormal_SurvivesTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := normal(drawRequest(t))
		b, err := json.Marshal(n, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		back := &wire.JoinRequest{}
		if err := json.Unmarshal(b, back, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(n, normal(back)); d != "" {
			t.Fatalf("want -, got +\n%s", d)
		}
	})
}
