package order

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// Objects that others need come first, and services that request an address come before services that get any.
func TestPhases(t *testing.T) {
	params := map[schema.GroupKind]bool{{Kind: "ConfigMap"}: true}
	for _, tc := range []struct {
		name, object string
		want         Phase
	}{
		{"a namespace", "{apiVersion: v1, kind: Namespace}", Definitions},
		{"a definition", "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}", Definitions},
		{"what a plugin reads", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass}", Readings},
		{"a kind of the same name in another group", "{apiVersion: example.com/v1, kind: PriorityClass}", Others},
		{"a role", "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role}", Readings},
		{"a binding of a role", "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding}", Grants},
		{"params of a policy", "{apiVersion: v1, kind: ConfigMap}", Params},
		{"a policy", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy}", Registrations},
		{"webhooks", "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration}", Registrations},
		{"a binding of a policy", "{apiVersion: admissionregistration.k8s.io/v1beta1, kind: MutatingAdmissionPolicyBinding}", Bindings},
		{"a service", "{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}]}}", Others},
		{"a headless service", "{apiVersion: v1, kind: Service, spec: {clusterIP: None}}", Others},
		{"a service with an address", "{apiVersion: v1, kind: Service, spec: {clusterIP: 10.96.0.9}}", Fixed},
		{"a service with a port of the nodes", "{apiVersion: v1, kind: Service, spec: {ports: [{nodePort: 30000}]}}", Fixed},
		{"a service with port 0 of the nodes, which requests none", "{apiVersion: v1, kind: Service, spec: {ports: [{nodePort: 0}]}}", Others},
		{"a pod", "{apiVersion: v1, kind: Pod}", Others},
	} {
		if got := PhaseOf(object(t, tc.object), params); got != tc.want {
			t.Errorf("%s: phase %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Both orders contain every phase once. Registrations are active for applied objects, and not for existing ones.
func TestOrders(t *testing.T) {
	for _, order := range [][]Phase{AsApplied, AsStored} {
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, []Phase{Definitions, Readings, Grants, Params, Registrations, Bindings, Fixed, Others}) {
			t.Errorf("phases %v", order)
		}
	}
	if slices.Index(AsApplied, Registrations) > slices.Index(AsApplied, Others) || slices.Index(AsStored, Registrations) < slices.Index(AsStored, Others) {
		t.Error("registrations come too late, or too early")
	}
}

// CRDs, objects that plugins read, registrations and their params affect admission.
func TestWhatRequestsAreJudgedBy(t *testing.T) {
	var got []string
	for _, u := range Judging([]*unstructured.Unstructured{
		object(t, "{apiVersion: v1, kind: Pod}"),
		object(t, "{apiVersion: v1, kind: ConfigMap}"),
		object(t, "{apiVersion: v1, kind: LimitRange}"),
		object(t, "{apiVersion: v1, kind: Service, spec: {clusterIP: 10.96.0.9}}"),
		object(t, "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, spec: {paramKind: {apiVersion: v1, kind: ConfigMap}}}"),
	}) {
		got = append(got, u.GetKind())
	}
	if want := []string{"ConfigMap", "LimitRange", "ValidatingAdmissionPolicy"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Only policies have a kind of params, even if other objects have the same field.
func TestParamKinds(t *testing.T) {
	for _, tc := range []struct {
		name, object string
		kind         schema.GroupKind
		ok           bool
	}{
		{"a policy with params", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, spec: {paramKind: {apiVersion: example.com/v1, kind: Limit}}}", schema.GroupKind{Group: "example.com", Kind: "Limit"}, true},
		{"a policy without", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, spec: {}}", schema.GroupKind{}, false},
		{"a version that is none", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, spec: {paramKind: {apiVersion: a/b/c, kind: Limit}}}", schema.GroupKind{}, false},
		{"another object", "{apiVersion: example.com/v1, kind: Policy, spec: {paramKind: {apiVersion: v1, kind: ConfigMap}}}", schema.GroupKind{}, false},
	} {
		if kind, ok := ParamKind(object(t, tc.object)); ok != tc.ok || ok && kind != tc.kind {
			t.Errorf("%s: %v, %t", tc.name, kind, ok)
		}
	}
}

// Requests are sequential if they are for one object, take from one pool, or count towards one quota; quotas of
// different namespaces are independent.
func TestLanes(t *testing.T) {
	var lanes Lanes
	lanes.Limit("limited")
	kinds := offline.Builtin()
	kind := func(version, name string) *offline.Kind { return kinds.Of(schema.FromAPIVersionAndKind(version, name)) }
	pod, beta, stable := kind("v1", "Pod"), kind("events.k8s.io/v1", "Event"), kind("v1", "Event")
	for _, tc := range []struct {
		name string
		a, b string
		same bool
	}{
		{"one object", lanes.Of(pod, "shop", "a"), lanes.Of(pod, "shop", "a"), true},
		{"two objects", lanes.Of(pod, "shop", "a"), lanes.Of(pod, "shop", "b"), false},
		{"two namespaces", lanes.Of(pod, "shop", "a"), lanes.Of(pod, "test", "a"), false},
		{"two groups", lanes.Of(beta, "shop", "a"), lanes.Of(stable, "shop", "a"), false},
		{"two services", lanes.Of(kind("v1", "Service"), "shop", "a"), lanes.Of(kind("v1", "Service"), "test", "b"), true},
		{"under a quota", lanes.Of(pod, "limited", "a"), lanes.Of(kind("v1", "Secret"), "limited", "b"), true},
		{"under a quota and not", lanes.Of(pod, "limited", "a"), lanes.Of(pod, "shop", "a"), false},
	} {
		if got := tc.a == tc.b; got != tc.same {
			t.Errorf("%s: %q and %q", tc.name, tc.a, tc.b)
		}
	}
}

// The items of a lane keep their order, and an error ends all lanes.
func TestInLanes(t *testing.T) {
	var mu sync.Mutex
	done := map[string][]int{}
	lane := func(i int) string { return []string{"even", "odd"}[i%2] }
	if err := InLanes(t.Context(), []int{0, 1, 2, 3, 4, 5}, lane, func(_ context.Context, i int) error {
		mu.Lock()
		defer mu.Unlock()
		done[lane(i)] = append(done[lane(i)], i)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(done["even"], []int{0, 2, 4}) || !slices.Equal(done["odd"], []int{1, 3, 5}) {
		t.Errorf("%v", done)
	}
	wrong := errors.New("wrong")
	err := InLanes(t.Context(), []int{0, 1, 2}, lane, func(ctx context.Context, i int) error {
		switch i {
		case 0:
			return wrong
		case 2:
			t.Error("the lane went on")
		default:
			<-ctx.Done()
		}
		return nil
	})
	if !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
}
