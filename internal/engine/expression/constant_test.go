package expression

import (
	"context"
	"math"
	"testing"
)

func TestConstantSaysWhatEveryRequestGives(t *testing.T) {
	core, pods := "", "pods"
	for _, tc := range []struct {
		expression string
		known      Known
		// want is true, false, error or unknown.
		want string
	}{
		{"true", Known{}, "true"},
		{"1 == 2", Known{}, "false"},
		{"[1][2] == 0", Known{}, "error"},
		{"object.metadata.name == 'x'", Known{}, "unknown"},
		{"object.metadata.name == 'x'", Known{Operation: "CREATE"}, "unknown"},
		{"object.metadata.name == 'x'", Known{Operation: "DELETE"}, "error"},
		{"oldObject.metadata.name == 'x'", Known{Operation: "CREATE"}, "error"},
		{"oldObject == null", Known{Operation: "CREATE"}, "true"},
		{"oldObject == null", Known{Operation: "UPDATE"}, "unknown"},
		{"request.operation == 'DELETE'", Known{}, "unknown"},
		{"request.operation == 'DELETE'", Known{Operation: "CREATE"}, "false"},
		{"request.operation != 'DELETE' || object.a", Known{Operation: "CREATE"}, "true"},
		{"request.operation == 'DELETE' && object.a == 1", Known{Operation: "CREATE"}, "false"},
		{"request.resource.resource == 'leases'", Known{}, "unknown"},
		{"request.resource.resource == 'leases'", Known{Resource: &pods}, "false"},
		{"request.resource.group == '' && request.resource.resource == 'pods'", Known{Group: &core, Resource: &pods}, "true"},
		{"request.resource.version == 'v1'", Known{Group: &core, Resource: &pods}, "unknown"},
		{"request.requestResource.resource == 'pods'", Known{Resource: &pods}, "unknown"},
		{"request.userInfo.username == 'x' || true", Known{}, "true"},
		{"request.userInfo.username == 'x'", Known{}, "unknown"},
		{"'system:nodes' in request.userInfo.groups", Known{}, "unknown"},
		{"has(request.name)", Known{}, "unknown"},
		{"has(request.dryRun) && request.dryRun", Known{}, "unknown"},
		{"authorizer.requestResource.check('get').allowed()", Known{}, "unknown"},
		{"authorizer.group('').resource('pods').check('get').allowed()", Known{}, "unknown"},
		{"namespaceObject.metadata.name == 'x'", Known{}, "error"},
		{"namespaceObject.metadata.name == 'x'", Known{Namespace: true}, "unknown"},
		{"object.spec.containers.all(c, c.image != '')", Known{Operation: "UPDATE"}, "unknown"},
		{"object.nothing +", Known{}, "unknown"},
		// Expensive constants: requests may not reach them.
		{"lists.range(100000).all(x, string(x).matches('a*') || true)", Known{}, "unknown"},
		{"object.a || lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))", Known{}, "unknown"},
	} {
		a := Analyze(New(tc.expression, conditions, nil, Bool))
		value, err, known := a.Constant(t.Context(), &tc.known)
		got := "unknown"
		switch {
		case err != nil:
			got = "error"
		case known:
			got = "false"
			if value.Value() == true {
				got = "true"
			}
		}
		if got != tc.want {
			t.Errorf("%s with %+v: %s (%v, %v), want %s", tc.expression, tc.known, got, value, err, tc.want)
		}
	}
}

// TestConstantEndsWithItsContext has an expression that is within the limit, and always true.
func TestConstantEndsWithItsContext(t *testing.T) {
	a := Analyze(New("lists.range(1000).all(x, x >= 0)", conditions, nil, Bool))
	if value, err, known := a.Constant(t.Context(), &Known{}); !known || err != nil || value.Value() != true {
		t.Fatalf("%v, %v, known %t, want true", value, err, known)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if value, err, known := a.Constant(ctx, &Known{}); known || err != nil {
		t.Errorf("with a context that has ended: %v, %v, known %t", value, err, known)
	}
}

func TestCostGrowsWithTheObject(t *testing.T) {
	cost := func(expression string, size uint64) uint64 {
		return Analyze(New(expression, conditions, nil, Bool)).Cost(size)
	}
	const flat = "object.spec.rules.all(r, r.host != '')"
	if small, large := cost(flat, 10), cost(flat, 1000); small == 0 || large < 50*small {
		t.Errorf("a list of 10 costs %d, of 1000 %d", small, large)
	}
	if c := cost(flat, 200); c > PerExpression/100 {
		t.Errorf("a plain expression costs %d", c)
	}
	const containers = "object.spec.containers.all(c, c.image != '')"
	if small, large := cost(containers, podSize), cost(containers, 1000); small == 0 || large != small {
		t.Errorf("a pod of %d containers costs %d, a larger one %d", podSize, small, large)
	}
	// The nested lists of one object are limited by the size of the object.
	if c := cost("object.a.all(a, a.b.all(b, b.c.all(c, c != '')))", 200); c == 0 || c > PerExpression/10 {
		t.Errorf("three lists in one another cost %d", c)
	}
	if c := cost("object.a.all(a, object.b.all(b, object.c.all(c, c != a + b)))", 200); c < PerExpression || c == math.MaxUint64 {
		t.Errorf("every element of three lists with every other costs %d", c)
	}
	const loop = "object.a.all(a, object.a.all(b, object.a.all(c, c != a + b)))"
	for _, bounded := range []string{
		"size(object.a) <= 10 && " + loop, "object.b == '' && object.a.size() < 11 && " + loop, "!(size(object.a) > 10) && " + loop,
		"size(object.a) > 10 || " + loop, "10 < object.a.size() ? true : " + loop, "10 >= size(object.a) ? " + loop + " : false",
	} {
		if c := cost(bounded, 200); c == 0 || c > PerExpression/10 {
			t.Errorf("%s costs %d", bounded, c)
		}
	}
	for _, free := range []string{
		loop + " && size(object.a) <= 10", "size(object.a) > 10 && " + loop, "size(object.b) <= 10 && " + loop,
		"size(object.a) <= 10 || " + loop, "size(object.a) <= 10 ? true : " + loop, "size(object.a) <= object.most && " + loop,
	} {
		if c := cost(free, 200); c < PerExpression {
			t.Errorf("%s costs %d", free, c)
		}
	}
	if c := cost("object.nothing +", 100); c != 0 {
		t.Errorf("an expression that does not compile costs %d", c)
	}
}
