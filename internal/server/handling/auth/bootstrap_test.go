package auth

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// requests counts the requests for roles and bindings, by verb.
func requests(client *fake.Clientset) map[string]int {
	count := map[string]int{}
	for _, a := range client.Actions() {
		if a.GetResource().Group == rbacv1.GroupName {
			count[a.GetVerb()]++
		}
	}
	return count
}

func TestBootstrapAddsWhatIsMissing(t *testing.T) {
	own := rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"things"}, Verbs: []string{"get"}}
	const name = "system:discovery"
	client := fake.NewClientset(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}},
		Rules:      []rbacv1.PolicyRule{own},
	})
	if err := Bootstrap(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if has := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Equal(r.Resources, own.Resources) }); !has || len(role.Rules) < 2 {
		t.Errorf("%s has the rules %v, want those of a cluster and %v", name, role.Rules, own)
	}
	client.ClearActions()
	if err := Bootstrap(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if got := requests(client); len(got) != 1 || got["list"] > 8 {
		t.Errorf("when everything is there: requests %v, want a few lists", got)
	}
}

// system:public-info-viewer was a part of system:discovery. After an upgrade its binding has the
// subjects that an administrator gave the older one, as with upstream.
func TestBindingsAreSplit(t *testing.T) {
	alice := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}
	binding := func(name, update string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}, Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: update}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   subjects,
		}
	}
	const older, newer = "system:discovery", "system:public-info-viewer"
	for name, c := range map[string]struct {
		there []runtime.Object
		want  []string
	}{
		"narrowed, and not updated":   {[]runtime.Object{binding(older, "false", alice)}, []string{"alice"}},
		"widened":                     {[]runtime.Object{binding(older, "true", alice)}, []string{"alice", "system:authenticated", "system:unauthenticated"}},
		"the newer one is there, too": {[]runtime.Object{binding(older, "false", alice), binding(newer, "false")}, nil},
		"nothing is there":            {nil, []string{"system:authenticated", "system:unauthenticated"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(c.there...)
			if err := Bootstrap(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			got, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), newer, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var subjects []string
			for _, s := range got.Subjects {
				subjects = append(subjects, s.Name)
			}
			if slices.Sort(subjects); !slices.Equal(subjects, c.want) {
				t.Errorf("%s has the subjects %q, want %q", newer, subjects, c.want)
			}
		})
	}
}

// It is not an error that another server makes objects after the roles were listed.
func TestBootstrapOfTwoServersAtOnce(t *testing.T) {
	client := fake.NewClientset()
	raced := map[string]bool{}
	client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		obj := a.(clienttesting.CreateAction).GetObject().(metav1.Object)
		key := a.GetResource().Resource + " " + obj.GetNamespace() + "/" + obj.GetName()
		if a.GetResource().Group != rbacv1.GroupName || raced[key] {
			return false, nil, nil
		}
		raced[key] = true
		if err := client.Tracker().Create(a.GetResource(), obj.(runtime.Object), a.GetNamespace()); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewAlreadyExists(a.GetResource().GroupResource(), obj.GetName())
	})
	if err := Bootstrap(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if got := requests(client); got["get"] < len(raced) || len(raced) < 50 {
		t.Errorf("%d objects were made by somebody else; requests %v, want a read of each", len(raced), got)
	}
}
