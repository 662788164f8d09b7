package clustersnapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// item reads an object.
func item(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

func TestFilesAreReadAsTheyWereWritten(t *testing.T) {
	s := &Cluster{APIVersion: APIVersion, Kind: Kind, Cluster: About{KubernetesVersion: "v1.37.2", ServiceRange: "10.0.0.0/24"},
		Served: []Served{{APIVersion: "v1", Kinds: []string{"Pod"}}}, Unread: []Unread{{Resource: "secrets", Reason: "never"}},
		Items: []map[string]any{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "n": int64(3), "f": 0.5}}}
	for _, name := range []string{"s.yaml", "s.json"} {
		file := filepath.Join(t.TempDir(), name)
		if err := s.Write(file); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; it has the RBAC of a cluster", name, info.Mode(), err)
		}
		got, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if !s.KnowsKinds() || !s.Serves(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}) ||
		s.Serves(schema.GroupVersionKind{Version: "v1", Kind: "Node"}) || s.Serves(schema.GroupVersionKind{Version: "v2", Kind: "Pod"}) {
		t.Error("the kinds that are served are others")
	}
	if not := s.Missing(schema.GroupResource{Resource: "secrets"}); not == nil || not.Reason != "never" {
		t.Errorf("secrets: %v", not)
	}
	if s.Missing(schema.GroupResource{Group: "example.com", Resource: "secrets"}) != nil {
		t.Error("the resource of another group counts as unread")
	}
}

func TestFilesThatAreNoSnapshots(t *testing.T) {
	head := "apiVersion: gatehouse.dev/v1alpha1\nkind: ClusterSnapshot\n"
	for _, tt := range []struct{ name, text, err string }{
		{"another kind", "apiVersion: v1\nkind: Pod\n", `but of kind "Pod": make one with 'gatehouse snapshot -o FILE'`},
		{"another version", "apiVersion: gatehouse.dev/v1\nkind: ClusterSnapshot\n", `a snapshot of version "gatehouse.dev/v1"`},
		{"no YAML", "a: [", "did not find expected"},
		{"no object", "- 1\n", "not a snapshot of a cluster"},
		{"an item without a name", head + "items: [{apiVersion: v1, kind: Pod, metadata: {}}]\n", "items[0]: apiVersion, kind and metadata.name are needed"},
		{"an item without a kind", head + "items: [{apiVersion: v1, kind: Pod, metadata: {name: a}}, {apiVersion: v1, metadata: {name: b}}]\n", "items[1]: "},
		{"items of another form", head + "items: 3\n", "cannot unmarshal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "s.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(file); err == nil || !strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), file+": ") {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// Fields that every server sets, and fields that change all the time, do not affect admission and are removed.
func TestTidy(t *testing.T) {
	noise := "uid: u, resourceVersion: '1', generation: 2, creationTimestamp: x, managedFields: [], ownerReferences: []"
	for _, tt := range []struct{ name, from, want string }{
		{"metadata", "{apiVersion: v1, kind: LimitRange, metadata: {name: a, namespace: shop, labels: {l: x}, " + noise + "}}",
			"{apiVersion: v1, kind: LimitRange, metadata: {name: a, namespace: shop, labels: {l: x}}}"},
		{"what kubectl applied", "{kind: X, metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}}", "{kind: X, metadata: {name: a}}"},
		{"other annotations stay", "{kind: X, metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: x, k: v}}}", "{kind: X, metadata: {name: a, annotations: {k: v}}}"},
		{"a status", "{kind: X, metadata: {name: a}, status: {s: 1}}", "{kind: X, metadata: {name: a}}"},
		{"the use of a quota stays", "{kind: ResourceQuota, metadata: {name: a}, status: {hard: {pods: '3'}, used: {pods: '1'}}}", "{kind: ResourceQuota, metadata: {name: a}, status: {used: {pods: '1'}}}"},
		{"the secrets of an account", "{kind: ServiceAccount, metadata: {name: a}, secrets: [{name: s}], imagePullSecrets: [{name: i}]}", "{kind: ServiceAccount, metadata: {name: a}, imagePullSecrets: [{name: i}]}"},
		{"a namespace", "{kind: Namespace, metadata: {name: a}, status: {phase: Active}}", "{kind: Namespace, metadata: {name: a}}"},
		{"a namespace that ends", "{kind: Namespace, metadata: {name: a}, status: {phase: Terminating, conditions: [{}]}}", "{kind: Namespace, metadata: {name: a}, status: {phase: Terminating}}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Cluster{Items: []map[string]any{item(t, tt.from)}}
			s.tidy()
			if diff := cmp.Diff(item(t, tt.want), s.Items[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	s := &Cluster{
		Items:  []map[string]any{item(t, "{apiVersion: b/v1, kind: A, metadata: {name: a}}"), item(t, "{apiVersion: v1, kind: B, metadata: {name: b}}"), item(t, "{apiVersion: v1, kind: B, metadata: {name: a}}")},
		Served: []Served{{APIVersion: "v1"}, {APIVersion: "apps/v1"}}, Unread: []Unread{{Resource: "b", Reason: "2"}, {Resource: "b", Reason: "1"}, {Resource: "a", Reason: "3"}},
	}
	s.tidy()
	var order []string
	for _, u := range s.Objects() {
		order = append(order, Key(u))
	}
	if diff := cmp.Diff([]string{" B  a", " B  b", "b A  a"}, order); diff != "" || s.Served[0].APIVersion != "apps/v1" || fmt.Sprint(s.Unread) != "[{a 3 []} {b 1 []} {b 2 []}]" {
		t.Errorf("order %q, %v, %v", order, s.Served, s.Unread)
	}
}

func TestDiscovered(t *testing.T) {
	resource := func(name, kind string) metav1.APIResource { return metav1.APIResource{Name: name, Kind: kind} }
	tk := &taker{versions: map[schema.GroupResource]schema.GroupVersionResource{}, kinds: map[schema.GroupVersionKind]schema.GroupVersionResource{}, namespaced: map[schema.GroupVersionResource]bool{}}
	s := &Cluster{}
	tk.discovered([]*metav1.APIResourceList{
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{resource("things", "Thing"), resource("others", "Other")}},
		{GroupVersion: "example.com/v1beta1", APIResources: []metav1.APIResource{resource("others", "Other")}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{resource("things", "Thing"), resource("things/scale", "Scale"), resource("again", "Thing")}},
		{GroupVersion: "empty.example.com/v1", APIResources: []metav1.APIResource{resource("x/status", "X")}},
		{GroupVersion: "a/b/c", APIResources: []metav1.APIResource{resource("x", "X")}},
	}, s)
	want := []Served{{"example.com/v2", []string{"Other", "Thing"}}, {"example.com/v1beta1", []string{"Other"}}, {"example.com/v1", []string{"Thing"}}}
	if diff := cmp.Diff(want, s.Served); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	for name, version := range map[string]string{"things": "v1", "others": "v2"} {
		if got := tk.versions[schema.GroupResource{Group: "example.com", Resource: name}].Version; got != version {
			t.Errorf("%s are listed in %q, want %s", name, got, version)
		}
	}
}

// The params that bindings refer to are read; secrets never are, and a resource that the caller may not read is listed
// once. S25.23: the params of bindings that are tried are read, too.
func TestParams(t *testing.T) {
	object := func(text string) *unstructured.Unstructured { return &unstructured.Unstructured{Object: item(t, text)} }
	policy := func(name, version, kind string) *unstructured.Unstructured {
		return object(fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %s}, spec: {paramKind: {apiVersion: %s, kind: %s}}}", name, version, kind))
	}
	binding := func(name, policy, ref string) *unstructured.Unstructured {
		return object(fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s, paramRef: %s}}", name, policy, ref))
	}
	resources := map[schema.GroupVersionKind]schema.GroupVersionResource{}
	lists := map[schema.GroupVersionResource]string{}
	for kind, resource := range map[string]string{"ConfigMap": "configmaps", "Secret": "secrets", "Limit": "limits"} {
		gv := schema.GroupVersion{Version: "v1"}
		if kind == "Limit" {
			gv.Group = "example.com"
		}
		resources[gv.WithKind(kind)], lists[gv.WithResource(resource)] = gv.WithResource(resource), kind+"List"
	}
	first := object("{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: shop}}")
	second := object("{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: m}}")
	for _, tt := range []struct {
		name         string
		objects      []*unstructured.Unstructured
		want, unread string
		tried        []*unstructured.Unstructured
	}{
		{"no binding", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap")}, "", "", nil},
		{"a binding without params", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), object("{kind: ValidatingAdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: p}}")}, "", "", nil},
		{"of a namespace", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), binding("b", "p", "{namespace: shop, selector: {}}")}, "shop/one", "", nil},
		{"of all namespaces", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), binding("b", "p", "{selector: {}}")}, "m/two shop/one", "", nil},
		{"each once", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), binding("b", "p", "{namespace: shop}"), binding("c", "p", "{namespace: shop}")}, "shop/one", "", nil},
		{"what there is already", []*unstructured.Unstructured{first, policy("p", "v1", "ConfigMap"), binding("b", "p", "{selector: {}}")}, "m/two", "", nil},
		{"a kind that is not served", []*unstructured.Unstructured{policy("p", "v2", "ConfigMap"), binding("b", "p", "{selector: {}}")}, "", "", nil},
		{"secrets", []*unstructured.Unstructured{policy("p", "v1", "Secret"), binding("b", "p", "{selector: {}}"), binding("c", "p", "{selector: {}}")}, "", "secrets: secrets are never read, and are params of ValidatingAdmissionPolicyBinding b", nil},
		{"what is forbidden", []*unstructured.Unstructured{policy("p", "example.com/v1", "Limit"), binding("b", "p", "{selector: {}}"), binding("c", "p", "{selector: {}}")}, "", "limits.example.com: limits.example.com is forbidden: no", nil},
		{"of a tried policy (incident params-of-a-new-policy)", nil, "m/two", "", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), binding("b", "p", "{name: two, parameterNotFoundAction: Deny}")}},
		{"of a tried binding", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap")}, "shop/one", "", []*unstructured.Unstructured{binding("b", "p", "{namespace: shop, selector: {}}")}},
		{"of both", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), binding("b", "p", "{namespace: m}")}, "m/two shop/one", "", []*unstructured.Unstructured{binding("c", "p", "{namespace: shop}")}},
		{"of a tried policy with another kind", []*unstructured.Unstructured{policy("p", "v1", "ConfigMap"), binding("b", "p", "{namespace: m}")}, "m/two", "limits.example.com: limits.example.com is forbidden: no", []*unstructured.Unstructured{policy("p", "example.com/v1", "Limit")}},
		{"that are tried themselves", nil, "", "", []*unstructured.Unstructured{second, policy("p", "v1", "ConfigMap"), binding("b", "p", "{name: two}")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, first.DeepCopy(), second.DeepCopy())
			client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
				name, named := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
				if !named {
					return false, nil, nil
				}
				list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMapList"}}
				for _, u := range []*unstructured.Unstructured{first, second} {
					if u.GetName() == name {
						list.Items = append(list.Items, *u.DeepCopy())
					}
				}
				return true, list, nil
			})
			client.PrependReactor("list", "limits", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "limits"}, "", fmt.Errorf("no"))
			})
			client.PrependReactor("*", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				t.Error("secrets are read")
				return false, nil, nil
			})
			found, unread, err := (&taker{objects: client, kinds: resources}).paramsOf(t.Context(), tt.objects, tt.tried)
			if err != nil {
				t.Fatal(err)
			}
			var got, not []string
			for _, u := range found {
				got = append(got, u.GetNamespace()+"/"+u.GetName())
			}
			for _, u := range unread {
				not = append(not, u.Resource+": "+u.Reason)
			}
			if strings.Join(got, " ") != tt.want || strings.Join(not, "; ") != tt.unread {
				t.Errorf("found %q, unread %q", got, not)
			}
		})
	}
}

// If the caller may not list a resource in all namespaces, the resource is read in the namespaces of the objects.
func TestWhoMayReadSomeNamespaces(t *testing.T) {
	quotas, namespaces, classes := schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, schema.GroupVersionResource{Version: "v1", Resource: "classes"}
	object := func(text string) *unstructured.Unstructured { return &unstructured.Unstructured{Object: item(t, text)} }
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{quotas: "ResourceQuotaList", namespaces: "NamespaceList", classes: "ClassList"},
		object("{apiVersion: v1, kind: ResourceQuota, metadata: {name: a, namespace: shop}}"), object("{apiVersion: v1, kind: ResourceQuota, metadata: {name: b, namespace: bank}}"),
		object("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"), object("{apiVersion: v1, kind: Namespace, metadata: {name: bank}}"))
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		own := a.GetNamespace() == "shop"
		if get, ok := a.(clienttesting.GetAction); ok {
			own = get.GetName() != "bank"
		}
		return !own, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", fmt.Errorf("no"))
	})
	tk := &taker{
		objects: client, namespaces: []string{"shop", "bank", "gone"}, namespaced: map[schema.GroupVersionResource]bool{quotas: true},
		versions: map[schema.GroupResource]schema.GroupVersionResource{quotas.GroupResource(): quotas, namespaces.GroupResource(): namespaces, classes.GroupResource(): classes},
	}
	found, unread, err := tk.list(t.Context(), []schema.GroupResource{namespaces.GroupResource(), quotas.GroupResource(), classes.GroupResource()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range found {
		got = append(got, u.GetKind()+" "+u.GetName())
	}
	for _, u := range unread {
		got = append(got, fmt.Sprint(u.Resource, u.Namespaces))
	}
	if diff := cmp.Diff([]string{"Namespace shop", "ResourceQuota a", "namespaces[shop gone]", "resourcequotas[shop]", "classes[]"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A file of definitions has the CRDs without descriptions, annotations and status. Properties may have these names.
func TestAFileOfDefinitions(t *testing.T) {
	dir := t.TempDir()
	const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {a: b}, labels: {a: b}}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, description: long, properties: {description: {type: string, description: long}, spec: {type: object, default: {description: kept}}}}}
status: {conditions: []}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
`
	if err := os.WriteFile(filepath.Join(dir, "crd.yaml"), []byte(crd), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OfDefinitions([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	want := item(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {description: {type: string}, spec: {type: object, default: {description: kept}}}}}}]}}`)
	if diff := cmp.Diff([]map[string]any{want}, s.Items); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	file := filepath.Join(dir, "defs.yaml")
	if err := s.Write(file); err != nil {
		t.Fatal(err)
	}
	if again, err := OfDefinitions([]string{file}); err != nil || len(again.Items) != 1 {
		t.Errorf("read again: %v", err)
	}
	if _, err := OfDefinitions([]string{t.TempDir()}); err == nil {
		t.Error("a folder without CRDs is taken")
	}
}
