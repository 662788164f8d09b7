package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// owners creates objects with owner references, with the garbage collector running.
type owners struct {
	*testing.T
	server *harness.Server
	client *kubernetes.Clientset
	ns     string
}

func newOwners(t *testing.T, s *harness.Server) *owners {
	return &owners{T: t, server: s, client: harness.Client(t, s.Admin), ns: s.Namespace(t)}
}

func ownedBy(owners ...*corev1.ConfigMap) []metav1.OwnerReference {
	var list []metav1.OwnerReference
	for _, o := range owners {
		list = append(list, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: new(true)})
	}
	return list
}

func (o *owners) make(name string, refs []metav1.OwnerReference, finalizers ...string) *corev1.ConfigMap {
	o.Helper()
	made, err := o.client.CoreV1().ConfigMaps(o.ns).Create(harness.Context(o), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: refs, Finalizers: finalizers},
	}, metav1.CreateOptions{})
	if err != nil {
		o.Fatal(err)
	}
	return made
}

func (o *owners) delete(name string, policy metav1.DeletionPropagation) {
	o.Helper()
	if err := o.client.CoreV1().ConfigMaps(o.ns).Delete(harness.Context(o), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		o.Fatal(err)
	}
}

func (o *owners) get(name string) *corev1.ConfigMap {
	o.Helper()
	found, err := o.client.CoreV1().ConfigMaps(o.ns).Get(harness.Context(o), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		o.Fatal(err)
	}
	return found
}

func (o *owners) gone(names ...string) {
	o.Helper()
	for _, name := range names {
		harness.Eventually(o, name+" is gone", func() error {
			if o.get(name) != nil {
				return errors.New("it is there")
			}
			return nil
		})
	}
}

// collected waits until the garbage collector has processed all earlier events: it has, when it has collected
// a new object that needs the same informer.
func (o *owners) collected() {
	o.Helper()
	last := o.make("last-owner", nil)
	o.make("last", ownedBy(last))
	o.delete("last-owner", metav1.DeletePropagationBackground)
	o.gone("last")
}

// cycle creates three objects in a cycle: c owns a, b owns c, and a owns b.
func (o *owners) cycle() {
	o.Helper()
	a := o.make("a", nil)
	b := o.make("b", ownedBy(a))
	o.own("a", ownedBy(o.make("c", ownedBy(b))))
	o.there("a", "b", "c")
}

func (o *owners) there(names ...string) {
	o.Helper()
	o.collected()
	for _, name := range names {
		if o.get(name) == nil {
			o.Errorf("%s is gone", name)
		}
	}
}

// The rules of garbage collection in Kubernetes' end-to-end tests, and deletions that it must not do.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--controllers", "*")
	for _, tc := range []struct {
		name string
		run  func(*owners)
	}{
		{"background: the owner goes at once, its dependents after it", func(o *owners) {
			owner := o.make("owner", nil)
			child := o.make("child", ownedBy(owner))
			o.make("grandchild", ownedBy(child))
			o.delete("owner", metav1.DeletePropagationBackground)
			if o.get("owner") != nil {
				o.Error("the owner waits")
			}
			o.gone("child", "grandchild")
		}},
		{"foreground: the owner waits for its dependents", func(o *owners) {
			owner := o.make("owner", nil)
			o.make("child", ownedBy(owner), "example.com/wait")
			o.delete("owner", metav1.DeletePropagationForeground)
			harness.Eventually(o, "the child is being deleted", func() error {
				if c := o.get("child"); c == nil || c.DeletionTimestamp == nil {
					return fmt.Errorf("%v", c)
				}
				return nil
			})
			if waiting := o.get("owner"); waiting == nil || !slices.Contains(waiting.Finalizers, metav1.FinalizerDeleteDependents) {
				o.Fatalf("the owner does not wait: %v", waiting)
			}
			if _, err := o.client.CoreV1().ConfigMaps(o.ns).Patch(harness.Context(o), "child", types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				o.Fatal(err)
			}
			o.gone("child", "owner")
		}},
		{"foreground: the owner does not wait for whom does not block it", func(o *owners) {
			owner := o.make("owner", nil)
			refs := ownedBy(owner)
			refs[0].BlockOwnerDeletion = new(false)
			o.make("child", refs, "example.com/wait")
			o.delete("owner", metav1.DeletePropagationForeground)
			o.gone("owner")
			if o.get("child") == nil {
				o.Error("the finalizer did not keep the child")
			}
		}},
		{"orphan: the dependents stay, without the owner", func(o *owners) {
			owner := o.make("owner", nil)
			o.make("child", ownedBy(owner))
			o.delete("owner", metav1.DeletePropagationOrphan)
			o.gone("owner")
			o.there("child")
			if refs := o.get("child").OwnerReferences; len(refs) > 0 {
				o.Errorf("it still has owners: %v", refs)
			}
		}},
		{"with another owner that lives, a dependent stays and forgets the first", func(o *owners) {
			one, other := o.make("one", nil), o.make("other", nil)
			o.make("child", ownedBy(one, other))
			o.delete("one", metav1.DeletePropagationBackground)
			harness.Eventually(o, "the reference is gone", func() error {
				if c := o.get("child"); c == nil || len(c.OwnerReferences) != 1 {
					return fmt.Errorf("%v", c)
				}
				return nil
			})
			o.there("child", "other")
		}},
		{"an owner that was never there", func(o *owners) {
			o.make("child", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "11111111-2222-3333-4444-555555555555"}})
			o.gone("child")
		}},
		{"an owner of the same name, made anew, is another one", func(o *owners) {
			owner := o.make("owner", nil)
			o.delete("owner", metav1.DeletePropagationBackground)
			o.make("owner", nil)
			o.make("child", ownedBy(owner))
			o.gone("child")
			o.there("owner")
		}},
		{"foreground: the owner goes when a dependent does not block it any more", func(o *owners) {
			owner := o.make("owner", nil)
			o.make("child", ownedBy(owner), "example.com/wait")
			o.delete("owner", metav1.DeletePropagationForeground)
			o.collected()
			if o.get("owner") == nil {
				o.Fatal("the owner did not wait")
			}
			refs := ownedBy(owner)
			refs[0].BlockOwnerDeletion = nil
			o.own("child", refs)
			o.gone("owner")
			if o.get("child") == nil {
				o.Error("the finalizer did not keep the child")
			}
		}},
		{"foreground: a dependent with another owner stays, and does not block", func(o *owners) {
			one, other := o.make("one", nil), o.make("other", nil)
			o.make("child", ownedBy(one, other))
			o.delete("one", metav1.DeletePropagationForeground)
			o.gone("one")
			o.there("child", "other")
			if refs := o.get("child").OwnerReferences; len(refs) != 1 || refs[0].UID != other.UID {
				o.Errorf("its owners: %v", refs)
			}
		}},
		{"an owner in another namespace is not there, and an event on the dependent says so", func(o *owners) {
			elsewhere := newOwners(o.T, o.server)
			owner := elsewhere.make("owner", nil)
			elsewhere.collected()
			child := o.make("child", ownedBy(owner))
			o.gone("child")
			elsewhere.there("owner")
			harness.Eventually(o, "the event", func() error {
				events, err := o.client.CoreV1().Events(o.ns).List(harness.Context(o), metav1.ListOptions{FieldSelector: "reason=OwnerRefInvalidNamespace"})
				if err == nil && (len(events.Items) != 1 || events.Items[0].InvolvedObject.UID != child.UID || events.Items[0].Type != corev1.EventTypeWarning) {
					err = fmt.Errorf("%v", events.Items)
				}
				return err
			})
		}},
		{"with an owner in another namespace and one that lives, a dependent stays", func(o *owners) {
			elsewhere := newOwners(o.T, o.server)
			owner, lives := elsewhere.make("owner", nil), o.make("lives", nil)
			o.make("child", ownedBy(owner, lives))
			o.cleared("child", lives.UID)
			o.there("child", "lives")
			elsewhere.there("owner")
		}},
		{"an owner without a namespace owns in all namespaces, and none in a namespace owns it", func(o *owners) {
			classes := o.client.SchedulingV1().PriorityClasses()
			class := func(name string, refs []metav1.OwnerReference) *schedulingv1.PriorityClass {
				made, err := classes.Create(harness.Context(o), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: o.ns + name, OwnerReferences: refs}}, metav1.CreateOptions{})
				if err != nil {
					o.Fatal(err)
				}
				return made
			}
			owner := class("-owner", nil)
			refs := []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass", Name: owner.Name, UID: owner.UID}}
			o.make("child", refs)
			class("-child", refs)
			inside := o.make("inside", nil)
			outside := class("-outside", ownedBy(inside))
			o.there("child")
			o.delete("inside", metav1.DeletePropagationBackground)
			if err := classes.Delete(harness.Context(o), owner.Name, metav1.DeleteOptions{}); err != nil {
				o.Fatal(err)
			}
			o.gone("child")
			harness.Eventually(o, "the child without a namespace is gone", func() error {
				_, err := classes.Get(harness.Context(o), o.ns+"-child", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("it is there: %v", err)
			})
			if _, err := classes.Get(harness.Context(o), outside.Name, metav1.GetOptions{}); err != nil {
				o.Error(err)
			}
		}},
		{"a binding of a policy owns, and goes in the foreground when its dependents have gone", func(o *owners) {
			bindings := o.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
			owner, err := bindings.Create(harness.Context(o), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: o.ns + "-owner"},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: "nobody", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				o.Fatal(err)
			}
			// No object names it as an owner yet.
			o.collected()
			refs := []metav1.OwnerReference{{
				APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding", Name: owner.Name, UID: owner.UID,
				BlockOwnerDeletion: new(true),
			}}
			o.make("child", refs, "example.com/wait")
			o.there("child")
			foreground := metav1.DeletePropagationForeground
			if err := bindings.Delete(harness.Context(o), owner.Name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
				o.Fatal(err)
			}
			harness.Eventually(o, "the child is being deleted", func() error {
				if c := o.get("child"); c == nil || c.DeletionTimestamp == nil {
					return fmt.Errorf("%v", c)
				}
				return nil
			})
			if _, err := bindings.Get(harness.Context(o), owner.Name, metav1.GetOptions{}); err != nil {
				o.Errorf("the owner did not wait: %v", err)
			}
			if _, err := o.client.CoreV1().ConfigMaps(o.ns).Patch(harness.Context(o), "child", types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				o.Fatal(err)
			}
			o.gone("child")
			harness.Eventually(o, "the owner has gone", func() error {
				_, err := bindings.Get(harness.Context(o), owner.Name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("it is there: %v", err)
			})
		}},
		{"foreground: a cycle goes as a whole", func(o *owners) {
			o.cycle()
			o.delete("a", metav1.DeletePropagationForeground)
			o.gone("a", "b", "c")
		}},
		{"background: a cycle goes as a whole", func(o *owners) {
			o.cycle()
			o.delete("a", metav1.DeletePropagationBackground)
			o.gone("a", "b", "c")
		}},
		{"orphan: the others of a cycle stay", func(o *owners) {
			o.cycle()
			o.delete("a", metav1.DeletePropagationOrphan)
			o.gone("a")
			o.there("b", "c")
			if refs := o.get("b").OwnerReferences; len(refs) > 0 {
				o.Errorf("the first still has owners: %v", refs)
			}
		}},
		{"an owner of a kind that nobody serves leaves its dependents alone", func(o *owners) {
			o.make("child", []metav1.OwnerReference{{APIVersion: "nobody.example.com/v1", Kind: "Nothing", Name: "n", UID: "11111111-2222-3333-4444-666666666666"}})
			o.there("child")
		}},
		{"an owner that lives keeps everything", func(o *owners) {
			owner := o.make("owner", nil)
			o.make("child", ownedBy(owner))
			o.there("owner", "child")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.run(newOwners(t, s))
		})
	}
}

const gadgets = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.gc.example.com}, spec: {
	group: gc.example.com, scope: Namespaced, names: {kind: Gadget, plural: gadgets, singular: gadget},
	versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`

// The garbage collector handles a custom kind as soon as the kind is served, even after it was removed and
// created again: its objects can be owners and dependents.
func TestGarbageCollectionOfCustomResources(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "*", "--initializer-timeout", "10m")
	o := newOwners(t, s)
	dynamic := harness.Dynamic(t, s.Admin)
	definitions := dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	resources := dynamic.Resource(schema.GroupVersionResource{Group: "gc.example.com", Version: "v1", Resource: "gadgets"}).Namespace(o.ns)
	for round := range 2 {
		definition := &unstructured.Unstructured{}
		if err := definition.UnmarshalJSON([]byte(toJSON(strings.ReplaceAll(gadgets, "\t", " ")))); err != nil {
			t.Fatal(err)
		}
		if _, err := definitions.Create(harness.Context(t), definition, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		create := func(name string, refs []metav1.OwnerReference) *unstructured.Unstructured {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gc.example.com/v1", "kind": "Gadget"}}
			object.SetName(name)
			object.SetOwnerReferences(refs)
			var made *unstructured.Unstructured
			harness.Eventually(t, "the kind is served", func() (err error) {
				made, err = resources.Create(harness.Context(t), object, metav1.CreateOptions{})
				return err
			})
			return made
		}
		began := time.Now()
		owner := create("owner", nil)
		refs := []metav1.OwnerReference{{APIVersion: "gc.example.com/v1", Kind: "Gadget", Name: "owner", UID: owner.GetUID(), BlockOwnerDeletion: new(true)}}
		o.make("child", refs)
		grandchildren := ownedBy(o.get("child"))
		create("grandchild", grandchildren)
		if err := resources.Delete(harness.Context(t), "owner", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
			t.Fatal(err)
		}
		o.gone("child")
		harness.Eventually(t, "the owner and the grandchild are gone", func() error {
			list, err := resources.List(harness.Context(t), metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%d are there", len(list.Items))
			}
			return err
		})
		// Upstream runs discovery every 30 s.
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("round %d took %s", round, took)
		}
		// Objects owned by an object of the kind are deleted with the kind.
		last := create("last", nil)
		o.make("left", []metav1.OwnerReference{{APIVersion: "gc.example.com/v1", Kind: "Gadget", Name: "last", UID: last.GetUID()}})
		o.collected()
		if err := definitions.Delete(harness.Context(t), "gadgets.gc.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		o.gone("left")
		harness.Eventually(t, "the definition is gone", func() error {
			_, err := definitions.Get(harness.Context(t), "gadgets.gc.example.com", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there: %v", err)
		})
	}
}

// Every namespace has its ServiceAccount and the certificate of the server, and they are restored after a
// deletion.
func TestWhatEveryNamespaceHas(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "*", "--initializer-timeout", "10m")
	client, ns := harness.Client(t, s.Admin), s.EmptyNamespace(t)
	accounts, configMaps := client.CoreV1().ServiceAccounts(ns), client.CoreV1().ConfigMaps(ns)
	for range 2 {
		harness.Eventually(t, "the ServiceAccount", func() error {
			_, err := accounts.Get(harness.Context(t), "default", metav1.GetOptions{})
			return err
		})
		harness.Eventually(t, "the certificate", func() error {
			found, err := configMaps.Get(harness.Context(t), "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && found.Data["ca.crt"] != string(s.Admin.CAData) {
				err = fmt.Errorf("it is %q", found.Data["ca.crt"])
			}
			return err
		})
		// kubectl create token, and requests with the token.
		token, err := accounts.CreateToken(harness.Context(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := whoIs(t, s, token.Status.Token); got != "system:serviceaccount:"+ns+":default" {
			t.Errorf("the token is that of %q", got)
		}
		if err := accounts.Delete(harness.Context(t), "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := configMaps.Delete(harness.Context(t), "kube-root-ca.crt", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := whoIs(t, s, token.Status.Token); got != "" {
			t.Errorf("the token is good after its ServiceAccount is gone: %q", got)
		}
	}
}

// A Secret for a ServiceAccount gets a token, and is deleted with the ServiceAccount.
func TestTokensInSecrets(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "*", "--initializer-timeout", "10m")
	client, ns := harness.Client(t, s.Admin), s.Namespace(t)
	if _, err := client.CoreV1().ServiceAccounts(ns).Create(harness.Context(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets(ns)
	if _, err := secrets.Create(harness.Context(t), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var token string
	harness.Eventually(t, "a token in the secret", func() error {
		found, err := secrets.Get(harness.Context(t), "robot", metav1.GetOptions{})
		if err == nil && len(found.Data[corev1.ServiceAccountTokenKey]) == 0 {
			err = errors.New("there is none")
		}
		if err == nil {
			token = string(found.Data[corev1.ServiceAccountTokenKey])
		}
		return err
	})
	if got := whoIs(t, s, token); got != "system:serviceaccount:"+ns+":robot" {
		t.Errorf("the token is that of %q", got)
	}
	if err := client.CoreV1().ServiceAccounts(ns).Delete(harness.Context(t), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the secret is gone", func() error {
		if _, err := secrets.Get(harness.Context(t), "robot", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// The status of a quota contains its limits and its use, including custom kinds.
func TestTheStatusOfQuotas(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "*", "--initializer-timeout", "10m")
	o := newOwners(t, s)
	definitions := harness.Dynamic(t, s.Admin).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	gadget := harness.Dynamic(t, s.Admin).Resource(schema.GroupVersionResource{Group: "gc.example.com", Version: "v1", Resource: "gadgets"}).Namespace(o.ns)
	o.make("one", nil)
	quotas := o.client.CoreV1().ResourceQuotas(o.ns)
	used := func(name, resource, want string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("%s of %s in quota %s", want, resource, name), func() error {
			q, err := quotas.Get(harness.Context(t), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, ok := q.Status.Used[corev1.ResourceName(resource)]; !ok || got.String() != want || len(q.Status.Hard) == 0 {
				return fmt.Errorf("got %v of %v", q.Status.Used, q.Status.Hard)
			}
			return nil
		})
	}
	quota := func(name string, resources ...corev1.ResourceName) {
		t.Helper()
		hard := corev1.ResourceList{}
		for _, r := range resources {
			hard[r] = resource.MustParse("10")
		}
		if _, err := quotas.Create(harness.Context(t), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The certificate of the server is a ConfigMap and counts, too.
	harness.Eventually(t, "the certificate", func() error {
		_, err := o.client.CoreV1().ConfigMaps(o.ns).Get(harness.Context(t), "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	quota("first", corev1.ResourceConfigMaps, corev1.ResourcePods)
	used("first", "configmaps", "2")
	used("first", "pods", "0")
	o.delete("one", metav1.DeletePropagationBackground)
	used("first", "configmaps", "1")
	// Uninitialized objects count (S11.36).
	s.HTTP(t, nil).Must(http.StatusAccepted, "POST", "/api/v1/namespaces/"+o.ns+"/pods?includeUninitialized=true",
		`{"metadata":{"name":"hidden","initializers":{"pending":[{"name":"slow.example.com"}]}},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	// A wrong status, like the result of a count without the latest objects.
	if _, err := quotas.Patch(harness.Context(t), "first", types.MergePatchType, []byte(`{"status":{"used":{"configmaps":"0","pods":"7"}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	used("first", "configmaps", "1")
	used("first", "pods", "1")
	// A kind created after the start of the controller.
	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON([]byte(toJSON(strings.ReplaceAll(gadgets, "\t", " ")))); err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Create(harness.Context(t), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the kind is served", func() error {
		_, err := gadget.Create(harness.Context(t), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gc.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "g"},
		}}, metav1.CreateOptions{})
		return err
	})
	quota("second", "count/gadgets.gc.example.com")
	used("second", "count/gadgets.gc.example.com", "1")
	if err := gadget.Delete(harness.Context(t), "g", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	used("second", "count/gadgets.gc.example.com", "0")
}

// With their controllers and fake nodes, workloads become available, and their services have endpoints.
func TestWorkloadsOnFakeNodes(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "+deployment,+replicaset,+job", "--fake-nodes", "2")
	client, ns := harness.Client(t, s.Admin), s.Namespace(t)
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := client.AppsV1().Deployments(ns).Create(harness.Context(t), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services(ns).Create(harness.Context(t), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	template.Labels, template.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
	if _, err := client.BatchV1().Jobs(ns).Create(harness.Context(t), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testHostPorts(t, client, s.Namespace(t))
	harness.Eventually(t, "the deployment is available", func() error {
		d, err := client.AppsV1().Deployments(ns).Get(harness.Context(t), "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 3 {
			err = fmt.Errorf("%+v", d.Status)
		}
		return err
	})
	harness.Eventually(t, "the service has endpoints", func() error {
		e, err := client.CoreV1().Endpoints(ns).Get(harness.Context(t), "web", metav1.GetOptions{})
		if err == nil && (len(e.Subsets) != 1 || len(e.Subsets[0].Addresses) != 3) {
			err = fmt.Errorf("%+v", e.Subsets)
		}
		return err
	})
	harness.Eventually(t, "the job is complete", func() error {
		j, err := client.BatchV1().Jobs(ns).Get(harness.Context(t), "job", metav1.GetOptions{})
		if err == nil && j.Status.Succeeded != 1 {
			err = fmt.Errorf("%+v", j.Status)
		}
		return err
	})
	// Deleted pods disappear, although only a node can confirm it.
	if err := client.AppsV1().Deployments(ns).Delete(harness.Context(t), "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the deployment and its pods are gone", func() error {
		pods, err := client.CoreV1().Pods(ns).List(harness.Context(t), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
}

// Two pods with the same host port get different nodes, and become ready after the initial delay of their
// probes.
func testHostPorts(t *testing.T, client *kubernetes.Clientset, ns string) {
	t.Helper()
	pods := client.CoreV1().Pods(ns)
	start := func(name string, port, delay int32) {
		t.Helper()
		container := corev1.Container{Name: "c", Image: "i"}
		if port > 0 {
			container.Ports = []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}
		}
		if delay > 0 {
			container.ReadinessProbe = &corev1.Probe{InitialDelaySeconds: delay, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}
		if _, err := pods.Create(harness.Context(t), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(name string) (pod *corev1.Pod) {
		t.Helper()
		harness.Eventually(t, name+" is ready", func() (err error) {
			if pod, err = pods.Get(harness.Context(t), name, metav1.GetOptions{}); err != nil {
				return err
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("%+v", pod.Status)
		})
		return pod
	}
	start("delayed", 0, 2)
	start("first", 5555, 0)
	start("second", 5555, 0)
	if one, other := ready("first").Spec.NodeName, ready("second").Spec.NodeName; one == other {
		t.Errorf("both pods are on %s", one)
	}
	start("third", 5555, 0)
	start("free", 0, 0)
	ready("free")
	third, err := pods.Get(harness.Context(t), "third", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if third.Spec.NodeName != "" {
		t.Errorf("the third pod is on %s, too", third.Spec.NodeName)
	}
	if err := pods.Delete(harness.Context(t), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ready("third")
	pod := ready("delayed")
	began := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	for _, c := range pod.Status.Conditions {
		if took := c.LastTransitionTime.Sub(began.Time); c.Type == corev1.PodReady && took < 2*time.Second {
			t.Errorf("it is ready after %s", took)
		}
	}
}

// Fake nodes handle pods like kubelets and a scheduler, as far as the API shows it.
func TestPodsOnFakeNodes(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--controllers", "+deployment,+replicaset,+job", "--fake-nodes", "2")
	client, ns := harness.Client(t, s.Admin), s.Namespace(t)
	f := &fakePods{t, client, ns}
	t.Run("images", f.images)
	t.Run("resizes", f.resizes)
	t.Run("ephemeral containers", f.ephemeralContainers)
	t.Run("jobs", f.jobs)
	// Last, because it closes the nodes to other pods.
	t.Run("taints", f.taints)
}

type fakePods struct {
	*testing.T
	client *kubernetes.Clientset
	ns     string
}

func (f *fakePods) create(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	change(pod)
	if _, err := f.client.CoreV1().Pods(f.ns).Create(harness.Context(t), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// await returns a pod for which holds returns true and whose status reflects its current spec.
func (f *fakePods) await(t *testing.T, name, what string, holds func(*corev1.Pod) bool) (pod *corev1.Pod) {
	t.Helper()
	harness.Eventually(t, name+" "+what, func() (err error) {
		if pod, err = f.client.CoreV1().Pods(f.ns).Get(harness.Context(t), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !holds(pod) || (pod.Spec.NodeName != "" && pod.Status.ObservedGeneration != pod.Generation) {
			return fmt.Errorf("generation %d: %+v", pod.Generation, pod.Status)
		}
		return nil
	})
	return pod
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// patch patches a pod or a subresource of the pod.
func (f *fakePods) patch(t *testing.T, name, patch string, subresources ...string) {
	t.Helper()
	if _, err := f.client.CoreV1().Pods(f.ns).Patch(harness.Context(t), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		t.Fatal(err)
	}
}

func (f *fakePods) images(t *testing.T) {
	f.create(t, "image", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "registry.example/non-existent:1" })
	pod := f.await(t, "image", "waits for its image", func(pod *corev1.Pod) bool {
		list := pod.Status.ContainerStatuses
		return len(list) == 1 && list[0].State.Waiting != nil && list[0].State.Waiting.Reason == "ImagePullBackOff"
	})
	if pod.Status.Phase != corev1.PodPending {
		t.Errorf("it is %s", pod.Status.Phase)
	}
	f.patch(t, "image", `{"spec": {"containers": [{"name": "c", "image": "there"}]}}`)
	f.await(t, "image", "runs", isRunning)
	f.patch(t, "image", `{"spec": {"containers": [{"name": "c", "image": "other"}]}}`)
	f.await(t, "image", "runs the other image", func(pod *corev1.Pod) bool {
		c := pod.Status.ContainerStatuses[0]
		return c.Image == "other" && c.RestartCount == 1 && c.State.Running != nil
	})
}

func (f *fakePods) resizes(t *testing.T) {
	f.create(t, "resize", func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}
		c.ResizePolicy = []corev1.ContainerResizePolicy{
			{ResourceName: "cpu", RestartPolicy: corev1.NotRequired}, {ResourceName: "memory", RestartPolicy: corev1.RestartContainer},
		}
	})
	is := func(name corev1.ResourceName, want string, restarts int32) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources == nil {
				return false
			}
			c := pod.Status.ContainerStatuses[0]
			quantity, allocated := c.Resources.Requests[name], c.AllocatedResources[name]
			return quantity.String() == want && allocated.String() == want && c.RestartCount == restarts && isRunning(pod)
		}
	}
	f.await(t, "resize", "has what it asked for", is("cpu", "100m", 0))
	f.patch(t, "resize", `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}}`, "resize")
	f.await(t, "resize", "has more without a restart", is("cpu", "200m", 0))
	f.patch(t, "resize", `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "128Mi"}}}]}}`, "resize")
	f.await(t, "resize", "has more after a restart", is("memory", "128Mi", 1))
}

func (f *fakePods) ephemeralContainers(t *testing.T) {
	f.create(t, "debugged", func(*corev1.Pod) {})
	f.await(t, "debugged", "runs", isRunning)
	f.patch(t, "debugged", `{"spec": {"ephemeralContainers": [{"name": "debugger", "image": "i"}]}}`, "ephemeralcontainers")
	f.await(t, "debugged", "has an ephemeral container", func(pod *corev1.Pod) bool {
		list := pod.Status.EphemeralContainerStatuses
		return len(list) == 1 && list[0].Name == "debugger" && list[0].State.Running != nil
	})
}

func (f *fakePods) jobs(t *testing.T) {
	jobs := f.client.BatchV1().Jobs(f.ns)
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		is          func(*batchv1.Job) bool
	}{
		{"fails", map[string]string{"gatehouse.dev/fake-outcome": "Failed"}, func(j *batchv1.Job) bool { return j.Status.Failed == 1 && hasCondition(j, batchv1.JobFailed) }},
		{"stays", map[string]string{"gatehouse.dev/fake-outcome": "Running"}, func(j *batchv1.Job) bool {
			return j.Status.Active == 1 && j.Status.Ready != nil && *j.Status.Ready == 1
		}},
		{"takes-time", map[string]string{"gatehouse.dev/fake-runtime": "2s"}, func(j *batchv1.Job) bool {
			return hasCondition(j, batchv1.JobComplete) && j.Status.CompletionTime.Sub(j.Status.StartTime.Time) >= 2*time.Second
		}},
	} {
		if _, err := jobs.Create(harness.Context(t), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Spec: batchv1.JobSpec{
			BackoffLimit: new(int32),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the job "+tc.name, func() error {
			j, err := jobs.Get(harness.Context(t), tc.name, metav1.GetOptions{})
			if err == nil && !tc.is(j) {
				err = fmt.Errorf("%+v", j.Status)
			}
			return err
		})
	}
}

func hasCondition(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

func (f *fakePods) taints(t *testing.T) {
	tolerate := func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "closed", Operator: corev1.TolerationOpExists}}
	}
	nodes := func(patch string) {
		t.Helper()
		for _, name := range []string{"fake-node-0", "fake-node-1"} {
			if _, err := f.client.CoreV1().Nodes().Patch(harness.Context(t), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.create(t, "before", func(*corev1.Pod) {})
	f.await(t, "before", "runs", isRunning)
	nodes(`{"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}}`)
	// The scheduler observes taints with a delay.
	harness.Eventually(t, "a pod has no node", func() error {
		pod, err := f.client.CoreV1().Pods(f.ns).Create(harness.Context(t), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		f.await(t, pod.Name, "is looked at", func(now *corev1.Pod) bool { pod = now; return len(now.Status.Conditions) > 0 })
		if pod.Spec.NodeName != "" {
			return fmt.Errorf("it is on %s", pod.Spec.NodeName)
		}
		return nil
	})
	f.create(t, "repelled", func(*corev1.Pod) {})
	f.create(t, "tolerant", tolerate)
	f.await(t, "tolerant", "runs", isRunning)
	f.await(t, "repelled", "is unschedulable", func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
	})
	f.await(t, "before", "still runs", isRunning)
	nodes(`{"spec": {"taints": [{"key": "closed", "effect": "NoExecute"}]}}`)
	harness.Eventually(t, "the pod is evicted", func() error {
		_, err := f.client.CoreV1().Pods(f.ns).Get(harness.Context(t), "before", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
	f.await(t, "tolerant", "still runs", isRunning)
	nodes(`{"spec": {"taints": null}}`)
	f.await(t, "repelled", "runs when the taints are gone", isRunning)
}

// With all controllers off, the server changes nothing by itself: a kube-controller-manager can run the
// controllers.
func TestNoControllers(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--controllers", "-*")
	o := newOwners(t, s)
	o.make("child", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "11111111-2222-3333-4444-555555555555"}})
	// A kube-controller-manager's own writes: its leases, ServiceAccounts as clients.
	if _, err := o.client.CoreV1().ServiceAccounts(s.EmptyNamespace(t)).Create(harness.Context(t), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("somebody else made it: %v", err)
	}
	if o.get("child") == nil || o.get("kube-root-ca.crt") != nil {
		t.Error("a controller runs")
	}
}

// Controllers authenticate as their ServiceAccounts, and their requests pass admission like all others.
func TestControllersAreWhoTheyAreInACluster(t *testing.T) {
	t.Parallel()
	hook := harness.NewWebhookServer(t, nil).Hook("/", harness.Allow)
	s := harness.Sole(t, "--controllers", "*", "--initializer-timeout", "10m")
	h := s.HTTP(t, nil)
	h.Must(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"metadata": {"name": "who"}, "webhooks": [{
		"name": "who.example.com", "clientConfig": {"url": %q, "caBundle": %q}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
		"rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "serviceaccounts"]}]}]}`, hook.URL(), hook.CABundle()))
	s.EmptyNamespace(t)
	o := newOwners(t, s)
	owner := o.make("owner", nil)
	o.make("child", ownedBy(owner))
	o.delete("owner", metav1.DeletePropagationBackground)
	o.gone("child")
	wanted := []string{
		"CREATE serviceaccounts system:serviceaccount:kube-system:service-account-controller",
		"CREATE configmaps system:serviceaccount:kube-system:root-ca-cert-publisher",
		"DELETE configmaps system:serviceaccount:kube-system:generic-garbage-collector",
	}
	harness.Eventually(t, "the reviews", func() error {
		var got []string
		for _, r := range hook.Reviews() {
			got = append(got, fmt.Sprint(r.Request("operation"), " ", r.Request("resource", "resource"), " ", r.Request("userInfo", "username")))
		}
		for _, w := range wanted {
			if !slices.Contains(got, w) {
				return fmt.Errorf("%s: not in %q", w, got)
			}
		}
		return nil
	})
}

// One of two servers runs the controllers. When it is killed, the other server takes over and no event is
// lost; a hanging webhook for leases does not prevent that.
func TestAnotherServerTakesTheControllersOver(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t)
	start := func() *harness.Server { return harness.Start(t, "--etcd-servers", etcd.URL, "--controllers", "*") }
	one := start()
	holder := func(s *harness.Server) string {
		lease, err := harness.Client(t, s.Admin).CoordinationV1().Leases("kube-system").Get(harness.Context(t), "gatehouse-controllers", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	var first string
	harness.Eventually(t, "a server has the lease", func() error {
		if first = holder(one); first == "" {
			return errors.New("nobody has")
		}
		return nil
	})
	two := start()
	hook := harness.NewWebhookServer(t, nil).Hook("/", harness.Hang)
	two.HTTP(t, nil).Must(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"metadata": {"name": "hangs"}, "webhooks": [{
		"name": "hangs.example.com", "clientConfig": {"url": %q, "caBundle": %q}, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
		"rules": [{"operations": ["*"], "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"]}]}]}`, hook.URL(), hook.CABundle()))
	o := newOwners(t, two)
	owner := o.make("owner", nil)
	o.make("child", ownedBy(owner))
	o.collected()
	leaving := two.Namespace(t)
	one.Kill(t)
	// No server runs controllers now: events wait for the next leader.
	o.delete("owner", metav1.DeletePropagationBackground)
	came := two.EmptyNamespace(t)
	if err := o.client.CoreV1().Namespaces().Delete(harness.Context(t), leaving, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.client.CoreV1().ResourceQuotas(o.ns).Create(harness.Context(t), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("9")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	for o.get("child") != nil {
		select {
		case <-ctx.Done():
			t.Fatalf("the child is there, and %q has the lease", holder(two))
		case <-time.After(100 * time.Millisecond):
		}
	}
	harness.Eventually(t, "a new namespace is furnished, a deleted one is gone, and a quota is counted", func() error {
		if _, err := o.client.CoreV1().ServiceAccounts(came).Get(harness.Context(t), "default", metav1.GetOptions{}); err != nil {
			return err
		}
		if _, err := o.client.CoreV1().ConfigMaps(came).Get(harness.Context(t), "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
			return err
		}
		if _, err := o.client.CoreV1().Namespaces().Get(harness.Context(t), leaving, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %v", leaving, err)
		}
		q, err := o.client.CoreV1().ResourceQuotas(o.ns).Get(harness.Context(t), "q", metav1.GetOptions{})
		if err == nil && q.Status.Used.Name(corev1.ResourceConfigMaps, resource.DecimalSI).Value() != 1 {
			err = fmt.Errorf("used: %v", q.Status.Used)
		}
		return err
	})
	if now := holder(two); now == first || now == "" {
		t.Errorf("%q has the lease, and %q had it", now, first)
	}
}
