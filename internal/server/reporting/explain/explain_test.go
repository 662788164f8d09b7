package explain

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// rights are the permissions of a caller: "VERB RESOURCE", with a namespace and a name if the
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

// reads is a built-in admission plugin.
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
	chain := []admission.Plugin{
		{Name: "Quota", Interface: reads{[]admission.Read{{GroupResource: schema.GroupResource{Resource: "quotas"}, Namespaced: true}, {GroupResource: schema.GroupResource{Resource: "namespaces"}}}}},
		{Name: "Class", Interface: reads{[]admission.Read{{GroupResource: schema.GroupResource{Group: "example.com", Resource: "classes"}}}}},
	}
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
			if err := o.Hide(chain, "shop", tt.rights.may); err != nil {
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
	if err := new(admission.PlanOptions).Hide(chain, "", rights{"broken"}.may); err == nil {
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
