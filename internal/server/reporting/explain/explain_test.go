package explain

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

func TestRequestsAreCompleted(t *testing.T) {
	pod := &runtime.RawExtension{Raw: []byte(`{"metadata":{"namespace":"shop","name":"web"}}`)}
	for _, tt := range []struct {
		name string
		spec v1alpha1.AdmissionExplanationSpec
		want string // NAMESPACE/NAME, or the fields that are wrong
	}{
		{"a create has the namespace of its object", v1alpha1.AdmissionExplanationSpec{Operation: "CREATE", Resource: pods, Object: pod}, "shop/"},
		{"an update has its name, too", v1alpha1.AdmissionExplanationSpec{Operation: "UPDATE", Resource: pods, Object: pod}, "shop/web"},
		{"what is said stands", v1alpha1.AdmissionExplanationSpec{Operation: "UPDATE", Resource: pods, Object: pod, Namespace: "here", Name: "it"}, "here/it"},
		{"a deletion needs no object", v1alpha1.AdmissionExplanationSpec{Operation: "DELETE", Resource: pods, Name: "it"}, "/it"},
		{"but a name", v1alpha1.AdmissionExplanationSpec{Operation: "DELETE", Resource: pods}, "spec.name"},
		{"a create needs an object", v1alpha1.AdmissionExplanationSpec{Operation: "CREATE", Resource: pods}, "spec.object"},
		{"an empty object is none", v1alpha1.AdmissionExplanationSpec{Operation: "CREATE", Resource: pods, Object: &runtime.RawExtension{}}, "spec.object"},
		{"an object that is no JSON", v1alpha1.AdmissionExplanationSpec{Operation: "CREATE", Resource: pods, Object: &runtime.RawExtension{Raw: []byte("{")}}, "spec.object"},
		{"an operation that there is not", v1alpha1.AdmissionExplanationSpec{Operation: "PATCH", Resource: pods, Object: pod}, "spec.operation"},
		{"no version", v1alpha1.AdmissionExplanationSpec{Operation: "CREATE", Resource: metav1.GroupVersionResource{Resource: "pods"}, Object: pod}, "spec.resource"},
		{"a name with a slash", v1alpha1.AdmissionExplanationSpec{Operation: "DELETE", Resource: pods, Name: "a/b"}, "spec.name"},
		{"a namespace that goes up", v1alpha1.AdmissionExplanationSpec{Operation: "DELETE", Resource: pods, Name: "a", Namespace: ".."}, "spec.namespace"},
		{"a subresource that is escaped", v1alpha1.AdmissionExplanationSpec{Operation: "DELETE", Resource: pods, Name: "a", Subresource: "%2f"}, "spec.subresource"},
		{"a resource with a slash", v1alpha1.AdmissionExplanationSpec{Operation: "DELETE", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "a/b"}, Name: "a"}, "spec.resource"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, err := range complete(&tt.spec) {
				got = append(got, err.Field)
			}
			if got == nil {
				got = []string{tt.spec.Namespace + "/" + tt.spec.Name}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// rights are the rights of a caller: "VERB RESOURCE", with a namespace and a name if the
// attributes have them.
type rights []string

func (r rights) may(a authorizer.AttributesRecord) (bool, error) {
	asked := strings.TrimRight(strings.Join([]string{a.Verb, a.Resource, a.Namespace, a.Name}, " "), " ")
	for _, right := range r {
		if right == "broken" {
			return false, errors.New("the authorizer is away")
		}
		if right == asked {
			return true, nil
		}
	}
	return false, nil
}

func TestImpersonation(t *testing.T) {
	caller := &user.DefaultInfo{Name: "ada", Groups: []string{"dev"}}
	for _, tt := range []struct {
		name   string
		user   string
		groups []string
		rights rights
		want   string // NAME GROUPS, or a part of the error
		code   int32
	}{
		{name: "the caller", want: "ada dev"},
		{name: "another user", user: "bob", rights: rights{"impersonate users  bob"}, want: "bob system:authenticated"},
		{name: "without the right", user: "bob", rights: rights{"impersonate users  eve"}, want: `needs the verb impersonate on users "bob"`, code: http.StatusForbidden},
		{name: "with groups", user: "bob", groups: []string{"ops"}, rights: rights{"impersonate users  bob", "impersonate groups  ops"}, want: "bob ops,system:authenticated"},
		{name: "without the right on a group", user: "bob", groups: []string{"ops"}, rights: rights{"impersonate users  bob"}, want: `needs the verb impersonate on groups "ops"`, code: http.StatusForbidden},
		{name: "groups alone", groups: []string{"ops"}, want: "spec.groups needs spec.user", code: http.StatusBadRequest},
		{name: "nobody in particular", user: "system:anonymous", rights: rights{"impersonate users  system:anonymous"}, want: "system:anonymous "},
		{name: "an authorizer that is away", user: "bob", rights: rights{"broken"}, want: "the authorizer is away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := impersonated(&v1alpha1.AdmissionExplanationSpec{User: tt.user, Groups: tt.groups}, caller, tt.rights.may)
			if err != nil {
				if status := apierrors.APIStatus(nil); !strings.Contains(err.Error(), tt.want) || tt.code != 0 && (!errors.As(err, &status) || status.Status().Code != tt.code) {
					t.Errorf("error %v", err)
				}
				return
			}
			if text := got.GetName() + " " + strings.Join(got.GetGroups(), ","); text != tt.want {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}

// A plan of a change of a stored object shows parts of that object.
func TestWhatACallerMustBeAllowedToGet(t *testing.T) {
	for _, tt := range []struct {
		name, operation, subresource string
		rights                       rights
		err                          string
	}{
		{name: "a create tells of nothing", operation: "CREATE"},
		{name: "a create of a subresource does", operation: "CREATE", subresource: "binding", err: `explain a change of pods "shop/web"`},
		{name: "an update does", operation: "UPDATE", err: `explain a change of pods "shop/web"`},
		{name: "a deletion does", operation: "DELETE", err: "allowed to get it"},
		{name: "who may get the object may know", operation: "DELETE", rights: rights{"get pods shop web"}},
		{name: "who may get another one may not", operation: "DELETE", rights: rights{"get pods shop other"}, err: "allowed to get it"},
		{name: "an authorizer that is away", operation: "DELETE", rights: rights{"broken"}, err: "the authorizer is away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := mayRead(&v1alpha1.AdmissionExplanationSpec{Operation: tt.operation, Subresource: tt.subresource, Resource: pods, Namespace: "shop", Name: "web"}, tt.rights.may)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// reads is a compiled-in plugin.
type reads struct{ list []admission.Read }

var _ admission.Described = reads{}

func (reads) Handles(apiadmission.Operation) bool   { return true }
func (reads) Concerns(apiadmission.Attributes) bool { return true }
func (reads) Changes() bool                         { return false }
func (reads) DependsOnOthers() bool                 { return false }
func (r reads) Reads(apiadmission.Attributes) []admission.Read {
	return r.list
}
func (reads) Validate(context.Context, apiadmission.Attributes, apiadmission.ObjectInterfaces) error {
	return nil
}

func TestWhatIsHidden(t *testing.T) {
	everything := rights{"get namespaces shop shop", "list quotas shop", "list classes", "get configmaps shop limits", "list configmaps shop"}
	for _, d := range registration.Sources() {
		everything = append(everything, "list "+d.Resource)
	}
	without := func(right string) rights {
		var list rights
		for _, r := range everything {
			if r != right {
				list = append(list, r)
			}
		}
		return list
	}
	e := New(Options{Chain: []admission.Plugin{
		{Name: "Quota", Interface: reads{[]admission.Read{{GroupResource: schema.GroupResource{Resource: "quotas"}, Namespaced: true}, {GroupResource: schema.GroupResource{Resource: "namespaces"}}}}},
		{Name: "Class", Interface: reads{[]admission.Read{{GroupResource: schema.GroupResource{Group: "example.com", Resource: "classes"}}}}},
	}})
	configMaps := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	for _, tt := range []struct {
		name   string
		rights rights
		want   string
	}{
		{"nothing from who may read all", everything, ""},
		{"a source", without("list mutatingwebhookconfigurations"), "MutatingWebhookConfiguration: may not list mutatingwebhookconfigurations"},
		{"what a plugin reads in the namespace", without("list quotas shop"), "Quota: may not list quotas"},
		{"what a plugin reads in the cluster", without("list classes"), "Class: may not list classes.example.com"},
		{"the namespace", without("get namespaces shop shop"), "namespace: may not get namespace shop"},
		{"a param", without("get configmaps shop limits"), "param: may not get configmaps shop/limits"},
		{"the params of a selector", without("list configmaps shop"), "params: may not list configmaps shop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o admission.PlanOptions
			if err := e.hide(&v1alpha1.AdmissionExplanationSpec{Namespace: "shop"}, &o, tt.rights.may); err != nil {
				t.Fatal(err)
			}
			var got []string
			for source, why := range o.Hidden {
				got = append(got, source.String()+": "+why)
			}
			for plugin, why := range o.Unread {
				got = append(got, plugin+": "+why)
			}
			for what, why := range map[string]string{"namespace": o.NamespaceHidden, "param": o.ParamHidden(configMaps, "shop", "limits"), "params": o.ParamHidden(configMaps, "shop", "")} {
				if why != "" {
					got = append(got, what+": "+why)
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
	if err := e.hide(&v1alpha1.AdmissionExplanationSpec{}, new(admission.PlanOptions), rights{"broken"}.may); err == nil {
		t.Error("an authorizer that is away hides nothing")
	}
}

func TestRequestsOfOtherServers(t *testing.T) {
	spec := &v1alpha1.AdmissionExplanationSpec{
		Operation: "CREATE", Resource: metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "paintings"}, Namespace: "shop",
		Object: &runtime.RawExtension{Raw: []byte(`{"kind":"Painting","metadata":{"name":"one"}}`)},
	}
	p := elsewhere(spec, &user.DefaultInfo{Name: "ada"}, "https://gallery")
	if p.Request.Kind != "Painting" || p.Request.Name != "one" || p.Request.APIVersion != "example.com/v1" || p.Request.User != "ada" || len(p.Steps) != 0 {
		t.Errorf("the request is %+v", p.Request)
	}
	if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "it is passed on to https://gallery") {
		t.Errorf("the notes are %q", p.Notes)
	}
}
