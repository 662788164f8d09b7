package rejections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// refusing is admission that rejects everything.
type refusing struct{ err error }

func (r refusing) Handles(admission.Operation) bool { return true }

func (r refusing) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return r.err
}

func (r refusing) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return r.err
}

func TestWhoIsTold(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no hunter2 here"))
	yes := true
	owned := metav1.ObjectMeta{GenerateName: "web-", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "o", UID: "u", Controller: &yes}}}
	type request struct {
		operation             admission.Operation
		resource, subresource string
		object                metav1.ObjectMeta
		dryRun, gone          bool
		user                  string
		err                   error
	}
	replicaSet := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "o", UID: "u", Controller: &yes}}
	const account = "system:serviceaccount:kube-system:replicaset-controller"
	base := request{operation: admission.Create, resource: "pods", object: owned, err: denied}
	with := func(change func(*request)) request {
		r := base
		change(&r)
		return r
	}
	for _, c := range []struct {
		name string
		request
		want string
	}{
		{"a create that is rejected", base, `Create of Pod "web-*" was rejected: pods "web" is forbidden: no hunter2 here`},
		{"a create that fails", with(func(r *request) { r.err = errors.New("no answer") }), `Create of Pod "web-*" failed: no answer`},
		{"a long text", with(func(r *request) { r.err = errors.New(strings.Repeat("x", 2*maxMessage)) }), `Create of Pod "web-*" failed: x`},
		{"what webhooks say of secrets is not told", with(func(r *request) { r.resource = "secrets" }), `Create of Pod "web-*" was rejected: see the answer to the request`},
		{"the name that one try had is left out", with(func(r *request) {
			r.object.Name, r.err = "web-x7k2p", errors.New(`pods "web-x7k2p" is forbidden`)
		}), `Create of Pod "web-*" failed: pods "web-*" is forbidden`},
		{"a name that somebody chose stays", with(func(r *request) {
			r.object.Name, r.object.GenerateName, r.err = "web-0", "", errors.New(`pods "web-0" is forbidden`)
		}), `Create of Pod "web-0" failed: pods "web-0" is forbidden`},
		{"no event about what the controller reports", with(func(r *request) { r.object.OwnerReferences, r.user = replicaSet, account }), ""},
		{"no event about what a kube-controller-manager reports", with(func(r *request) { r.object.OwnerReferences, r.user = replicaSet, "system:kube-controller-manager" }), ""},
		{"somebody else makes the pod", with(func(r *request) { r.object.OwnerReferences, r.user = replicaSet, "alice" }), `Create of Pod "web-*" was rejected`},
		{"the controller reports pods only", with(func(r *request) { r.object.OwnerReferences, r.user, r.resource = replicaSet, account, "configmaps" }), `Create of Pod "web-*" was rejected`},
		{"the controller makes another kind of owner's pod", with(func(r *request) { r.user = account }), `Create of Pod "web-*" was rejected`},
		{"no event about what is let pass", with(func(r *request) { r.err = nil }), ""},
		{"no event about an update", with(func(r *request) { r.operation = admission.Update }), ""},
		{"no event about a subresource", with(func(r *request) { r.subresource = "eviction" }), ""},
		{"no event about a dry run", with(func(r *request) { r.dryRun = true }), ""},
		{"no event when the client left", with(func(r *request) { r.gone = true }), ""},
		{"an object without an owner", with(func(r *request) { r.object.OwnerReferences = nil }), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			teller := New(nil, nil)
			followed := trace.New()
			ctx, leave := context.WithCancel(trace.NewContext(t.Context(), followed))
			defer leave()
			if c.gone {
				leave()
			}
			a := admission.NewAttributesRecord(&corev1.Pod{ObjectMeta: c.object}, nil, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "shop", "",
				schema.GroupVersionResource{Version: "v1", Resource: c.resource}, c.subresource, c.operation, nil, c.dryRun, &user.DefaultInfo{Name: c.user})
			chain := teller.Around(refusing{c.err})
			for pass, run := range map[string]func(context.Context, admission.Attributes, admission.ObjectInterfaces) error{"mutating": chain.Admit, "validating": chain.Validate} {
				if err := run(ctx, a, nil); err != c.err {
					t.Fatalf("%s: got %v", pass, err)
				}
				var got rejection
				select {
				case got = <-teller.waiting:
				default:
				}
				if !strings.HasPrefix(got.message, c.want) || (c.want == "") != (got.message == "") || len(got.message) > maxMessage {
					t.Errorf("%s: the message is %q", pass, got.message)
				}
				if c.want != "" && (got.owner.UID != "u" || got.namespace != "shop" || got.trace != followed.ID) {
					t.Errorf("%s: got %+v", pass, got)
				}
			}
		})
	}
}

// No goroutine writes events here, and the requests continue all the same.
func TestNoRequestWaitsForAnEvent(t *testing.T) {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: &yes}}}}
	a := admission.NewAttributesRecord(pod, nil, schema.GroupVersionKind{}, "shop", "", schema.GroupVersionResource{}, "", admission.Create, nil, false, &user.DefaultInfo{})
	teller := New(nil, nil)
	denied := errors.New("denied")
	for range 2 * maxWaiting {
		if err := teller.Around(refusing{denied}).Admit(t.Context(), a, nil); err != denied {
			t.Fatal(err)
		}
	}
	if len(teller.waiting) != maxWaiting {
		t.Errorf("%d rejections wait", len(teller.waiting))
	}
}

// S11.66: the owner of an object that an initializer rejects gets an event, unless its controller
// writes one.
func TestOwnersHearWhatInitializersReject(t *testing.T) {
	yes := true
	pods := schema.GroupResource{Resource: "pods"}
	made := func(apiVersion, kind string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "web-", Name: "web-x7k2p", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: kind, Name: "o", UID: "u", Controller: &yes},
		}}}
	}
	shared := made("apps/v1", "ReplicaSet")
	for i := range 2 * maxOwners {
		shared.OwnerReferences = append(shared.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Shop", Name: fmt.Sprint(i), UID: "u"})
	}
	for _, c := range []struct {
		name     string
		resource schema.GroupResource
		object   *corev1.Pod
		want     string
	}{
		{"S11.69 every owner", pods, shared, `Create of pods "web-*" was rejected by initializer "a.example.com": no room for web-*`},
		{"an owner of a kind that no controller here knows", pods, made("example.com/v1", "Shop"), `Create of pods "web-*" was rejected by initializer "a.example.com": no room for web-*`},
		{"an event has nothing of secrets", schema.GroupResource{Resource: "secrets"}, made("example.com/v1", "Shop"), `Create of secrets "web-*" was rejected by initializer "a.example.com": see the answer to the request`},
		{"an owner whose controller reports it", pods, made("apps/v1", "ReplicaSet"), ""},
		{"another object of such an owner", schema.GroupResource{Resource: "configmaps"}, made("apps/v1", "ReplicaSet"), `Create of configmaps "web-*" was rejected by initializer "a.example.com": no room for web-*`},
		{"no owner", pods, &corev1.Pod{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			teller := New(nil, nil)
			teller.Initializer(c.resource, c.object, `"a.example.com"`, errors.New("no room for web-x7k2p"))
			queued := len(c.object.OwnerReferences)
			switch {
			case c.object == shared:
				// The controller of the first owner reports itself, and the number is bounded.
				queued = maxOwners - 1
			case c.want == "":
				queued = 0
			}
			if n := len(teller.waiting); n != queued {
				t.Errorf("%d events, want %d", n, queued)
			}
			var got rejection
			select {
			case got = <-teller.waiting:
			default:
			}
			if got.message != c.want || c.want != "" && (got.owner.UID != "u" || got.namespace != "shop") {
				t.Errorf("got %+v", got)
			}
		})
	}
}
