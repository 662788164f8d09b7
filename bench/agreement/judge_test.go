package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointsrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	registrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/bench/internal/sides"
)

// side runs the requests of a world through Gatehouse or through upstream.
type side struct {
	chain    sides.Chain
	webhooks *webhooks
	upstream bool
	// asked is the request that is being evaluated.
	asked *request
}

// newSide starts a side, which ends with the context.
func newSide(ctx context.Context, w *world, upstream bool) (*side, error) {
	s := &side{webhooks: &webhooks{answers: w.answers}, upstream: upstream}
	made := sides.Gatehouse
	registered := w.registered()
	if upstream {
		made = sides.Upstream
		s.webhooks.translate = translate
		for i, c := range registered {
			registered[i] = forUpstream(c)
		}
	}
	n := listen(s.webhooks)
	context.AfterFunc(ctx, func() { n.server.Close() })
	o := sides.Options{
		Registrations: registered, Namespaces: w.namespaces, Authorizer: authorizer.AuthorizerFunc(rights), Dial: n.dial, Resolve: resolve,
		Live: func(name string) (*corev1.Namespace, error) { return s.live(w, name) }, Observed: true, Serial: true,
	}
	if w.first != "" {
		o.First = first(w.first)
	}
	var err error
	s.chain, err = made(ctx, o)
	return s, err
}

// resolve returns the address of a service, a host name in the network of the side.
func resolve(namespace, name string, port int32) (string, error) {
	if strings.HasPrefix(name, unresolved) {
		return "", errors.New("the service has no endpoints")
	}
	return net.JoinHostPort(name+"."+namespace+".svc", fmt.Sprint(port)), nil
}

// live reads a namespace that no watch has delivered yet.
func (s *side) live(w *world, name string) (*corev1.Namespace, error) {
	if name == broken {
		return nil, apierrors.NewServiceUnavailable("the store is down")
	}
	for _, n := range w.live {
		if n.Name == name {
			return n, nil
		}
	}
	if s.upstream {
		if n := storedNamespace(s.asked); n != nil && n.Name == name {
			return n, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource(namespaces), name)
}

// rights is the authorizer of match conditions.
func rights(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case a.GetUser().GetName() == "":
		return authorizer.DecisionNoOpinion, "", errors.New("the authorizer is down")
	case a.GetUser().GetName() == "alice" && a.GetVerb() == "get":
		return authorizer.DecisionAllow, "because", nil
	}
	return authorizer.DecisionDeny, "because", nil
}

// first is a plugin that changes objects before the webhooks.
type first string

func (first) Handles(o admission.Operation) bool { return o == create || o == update }

func (f first) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil
	}
	annotations := m.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if f == "always" {
		annotations["first"] += "x"
	} else {
		annotations["first"] = "x"
	}
	m.SetAnnotations(annotations)
	return nil
}

// pass is the observed result of one admission pass.
type pass struct {
	err         error
	object      runtime.Object
	received    []received
	annotations map[string]annotation
	warnings    []string
}

type annotation struct {
	level audit.Level
	value string
}

// attributes record annotations.
type attributes struct {
	admission.Attributes
	mu    sync.Mutex
	notes map[string]annotation
}

func (a *attributes) AddAnnotation(key, value string) error {
	return a.AddAnnotationWithLevel(key, value, audit.LevelMetadata)
}

func (a *attributes) AddAnnotationWithLevel(key, value string, level audit.Level) error {
	if err := a.Attributes.AddAnnotationWithLevel(key, value, level); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notes[key] = annotation{level, value}
	return nil
}

// recorder records warnings.
type recorder struct {
	mu   sync.Mutex
	list []string
}

func (r *recorder) AddWarning(agent, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, agent+text)
}

// judge runs a request through both passes, as the handlers of a server do. If the first pass rejects the request,
// there is only one pass.
func (s *side) judge(ctx context.Context, r *request) []pass {
	s.asked = r
	o := interfaces(r.custom())
	resource := r.resource
	if s.upstream {
		resource = renamed(resource)
	}
	ctx = endpointsrequest.WithReceivedTimestamp(ctx, time.Now())
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	if r.gone > 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		defer leave()
		defer time.AfterFunc(r.gone, leave).Stop()
	}
	object, name := copied(r.object), r.name
	record := func() admission.Attributes {
		return admission.NewAttributesRecord(object, copied(r.old), r.kind, r.namespace, name, resource, r.subresource,
			r.operation, copied(r.options), r.dryRun, r.user)
	}
	run := func(a admission.Attributes, judge func(context.Context, admission.Attributes, admission.ObjectInterfaces) error) pass {
		noted := &attributes{Attributes: a, notes: map[string]annotation{}}
		warnings := &recorder{}
		p := pass{err: judge(warning.WithWarningRecorder(ctx, warnings), noted, o)}
		synctest.Wait()
		p.object, p.received, p.annotations, p.warnings = copied(a.GetObject()), s.webhooks.take(), noted.notes, warnings.list
		return p
	}
	a := record()
	passes := []pass{run(a, s.chain.Admit)}
	if passes[0].err != nil {
		return passes
	}
	if r.operation == create {
		store(object)
	}
	if r.operation != joined {
		if m, err := meta.Accessor(object); err == nil && name == "" && r.operation == create {
			name = m.GetName()
		}
		a = record()
	}
	return append(passes, run(a, s.chain.Validate))
}

// store changes a new object as a server does between the passes.
func store(object runtime.Object) {
	m, err := meta.Accessor(object)
	if err != nil {
		return
	}
	m.SetUID("5a4ee4cc-0000-4000-8000-000000000002")
	m.SetCreationTimestamp(metav1.Unix(2e9, 0))
	if m.GetName() == "" {
		m.SetName(m.GetGenerateName() + "x7k2p")
	}
}

func copied(o runtime.Object) runtime.Object {
	if o == nil {
		return nil
	}
	return o.DeepCopyObject()
}

// forUpstream returns a configuration as upstream's plugins expect it: in v1, as the scheme of kube-apiserver
// converts it, and with renamed resources.
func forUpstream(c runtime.Object) runtime.Object {
	internal := must(legacyscheme.Scheme.ConvertToVersion(c, runtime.InternalGroupVersioner))
	v1 := must(legacyscheme.Scheme.ConvertToVersion(internal, registrationv1.SchemeGroupVersion))
	switch c := v1.(type) {
	case *registrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			renameIn(c.Webhooks[i].Rules)
		}
	case *registrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			renameIn(c.Webhooks[i].Rules)
		}
	default:
		panic(fmt.Sprintf("%T", v1))
	}
	return v1
}

// realms replaces the resource name "namespaces" of custom resources for upstream.
const realms = "realms"

// renamed returns the name of a resource for upstream, which treats every resource named namespaces as the core
// resource (S2.10).
func renamed(r schema.GroupVersionResource) schema.GroupVersionResource {
	if r.Group != "" && r.Resource == namespaces {
		r.Resource = realms
	}
	return r
}

// renameIn adds the replaced resource names to rules.
func renameIn(rules []registrationv1.RuleWithOperations) {
	for i := range rules {
		r := &rules[i]
		for _, entry := range slices.Clone(r.Resources) {
			if resource, _, _ := strings.Cut(entry, "/"); resource == namespaces {
				r.Resources = append(r.Resources, realms+strings.TrimPrefix(entry, namespaces))
			}
		}
	}
}

// storedNamespace returns the stored Namespace that a request is about; nil for the create or update of a Namespace,
// and for other requests.
func storedNamespace(r *request) *corev1.Namespace {
	if r == nil || r.old == nil || r.resource != corev1.SchemeGroupVersion.WithResource(namespaces) {
		return nil
	}
	return must(versioned(r.old, r.kind)).(*corev1.Namespace)
}

// jsonOf returns a value in JSON, for comparisons and for people.
func jsonOf(v any) string { return string(must(json.MarshalIndent(v, "", "  "))) }
