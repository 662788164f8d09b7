package question

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

func TestRequestsAreCompleted(t *testing.T) {
	pod := &runtime.RawExtension{Raw: []byte(`{"metadata":{"namespace":"shop","name":"web"}}`)}
	for _, tt := range []struct {
		name string
		spec Question
		want string // NAMESPACE/NAME, or the fields that are wrong
	}{
		{"a create has the namespace of its object", Question{Operation: "CREATE", Resource: pods, Object: pod}, "shop/"},
		{"an update has its name, too", Question{Operation: "UPDATE", Resource: pods, Object: pod}, "shop/web"},
		{"what is said stands", Question{Operation: "UPDATE", Resource: pods, Object: pod, Namespace: "here", Name: "it"}, "here/it"},
		{"a deletion needs no object", Question{Operation: "DELETE", Resource: pods, Name: "it"}, "/it"},
		{"but a name", Question{Operation: "DELETE", Resource: pods}, "spec.name"},
		{"a create needs an object", Question{Operation: "CREATE", Resource: pods}, "spec.object"},
		{"an empty object is none", Question{Operation: "CREATE", Resource: pods, Object: &runtime.RawExtension{}}, "spec.object"},
		{"an object that is no JSON", Question{Operation: "CREATE", Resource: pods, Object: &runtime.RawExtension{Raw: []byte("{")}}, "spec.object"},
		{"an operation that there is not", Question{Operation: "PATCH", Resource: pods, Object: pod}, "spec.operation"},
		{"no version", Question{Operation: "CREATE", Resource: metav1.GroupVersionResource{Resource: "pods"}, Object: pod}, "spec.resource"},
		{"a name with a slash", Question{Operation: "DELETE", Resource: pods, Name: "a/b"}, "spec.name"},
		{"a namespace that goes up", Question{Operation: "DELETE", Resource: pods, Name: "a", Namespace: ".."}, "spec.namespace"},
		{"a subresource that is escaped", Question{Operation: "DELETE", Resource: pods, Name: "a", Subresource: "%2f"}, "spec.subresource"},
		{"a resource with a slash", Question{Operation: "DELETE", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "a/b"}, Name: "a"}, "spec.resource"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, err := range tt.spec.Complete() {
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
			got, err := (&Question{User: tt.user, Groups: tt.groups}).Who(caller, tt.rights.may)
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

// A plan for a change of a stored object contains parts of that object.
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
			err := (&Question{Operation: tt.operation, Subresource: tt.subresource, Resource: pods, Namespace: "shop", Name: "web"}).MayRead(tt.rights.may)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}
