package lint

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// probe is a request that the cluster itself makes. Rules check which webhooks would be called for
// it.
type probe struct {
	// what describes the request, such as "CREATE of pods in namespace kube-system".
	what    string
	request plan.Request
	// object is the written object, old the stored one; both may be nil.
	object, old *unstructured.Unstructured
	// workload is the workload whose pod is created; nil for another request.
	workload *Workload
	// content is the known part of object, if expressions may depend on it; otherwise nil.
	content *expression.Partial
	// vague is the reason why the labels of the object are a guess; empty if they are known.
	vague string
}

// Users of the control plane, as the API sees them.
var (
	apiServer     = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	scheduler     = &user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}
	manager       = &user.DefaultInfo{Name: user.KubeControllerManager, Groups: []string{user.AllAuthenticated}}
	node          = &user.DefaultInfo{Name: "system:node:node-1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	bootstrapping = &user.DefaultInfo{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", user.AllAuthenticated}}
	somebody      = &user.DefaultInfo{Name: "somebody", Groups: []string{user.AllAuthenticated}}
)

// controller returns the service account of a controller of kube-controller-manager.
func controller(name string) user.Info {
	return &user.DefaultInfo{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated},
	}
}

// target is the object of a probe.
type target struct {
	group, version, kind, resource, sub string
	namespace, name                     string
}

// request returns the probe of a request. The content is merged into the object.
func request(operation admission.Operation, t target, by user.Info, content map[string]any) *probe {
	gv := schema.GroupVersion{Group: t.group, Version: t.version}
	p := &probe{request: plan.Request{
		Operation: operation, Resource: gv.WithResource(t.resource), Subresource: t.sub, Kind: gv.WithKind(t.kind),
		Namespace: t.namespace, Name: t.name, User: by,
	}}
	p.what = fmt.Sprintf("%s of %s", operation, strings.TrimSuffix(t.resource+"/"+t.sub, "/"))
	switch {
	case t.resource == "namespaces" && t.group == "":
		p.request.Namespace = t.name
		p.what = fmt.Sprintf("%s of namespace %s", operation, t.name)
	case t.namespace != "":
		p.what += " in namespace " + t.namespace
	}
	made := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
		if u.Object == nil {
			u.Object = map[string]any{}
		}
		u.SetGroupVersionKind(p.request.Kind)
		u.SetName(t.name)
		if t.resource != "namespaces" {
			u.SetNamespace(t.namespace)
		}
		return u
	}
	switch operation {
	case admission.Create:
		p.object, p.request.Options = made(), &metav1.CreateOptions{TypeMeta: options("CreateOptions")}
	case admission.Update:
		p.object, p.old, p.request.Options = made(), made(), &metav1.UpdateOptions{TypeMeta: options("UpdateOptions")}
	case admission.Delete:
		p.old, p.request.Options = made(), &metav1.DeleteOptions{TypeMeta: options("DeleteOptions")}
	}
	return p
}

func options(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind}
}

// pod returns the probe of the creation of a pod from a template, by the controller of its
// workload.
func pod(namespace, name, kind string, template *corev1.PodTemplateSpec) *probe {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	if err != nil {
		content = map[string]any{}
	}
	by := "replicaset-controller"
	switch kind {
	case "DaemonSet":
		by = "daemon-set-controller"
	case "StatefulSet":
		by = "statefulset-controller"
	}
	p := request(admission.Create, target{version: "v1", kind: "Pod", resource: "pods", namespace: namespace, name: name + "-0"}, controller(by), content)
	p.object.SetLabels(template.Labels)
	return p
}

//go:embed pods.yaml
var podsText string

// wellKnownPods returns the probes of the pods in pods.yaml. An annotation has the kind of their creator.
var wellKnownPods = sync.OnceValue(func() (list []*probe) {
	for _, text := range strings.Split(podsText, "\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			panic("lint: pods.yaml: " + err.Error())
		}
		by := u.GetAnnotations()["by"]
		q := pod(metav1.NamespaceSystem, "", by, &corev1.PodTemplateSpec{})
		if q.what, q.request.Name = u.GetAnnotations()["what"], u.GetName(); by == "Node" {
			q.request.User = node
		}
		q.object.SetLabels(u.GetLabels())
		spec, _ := withUnknown(u.Object["spec"]).(map[string]any)
		metadata := map[string]any{"name": u.GetName(), "namespace": metav1.NamespaceSystem, "labels": withUnknown(u.Object["metadata"].(map[string]any)["labels"])}
		q.content = &expression.Partial{Fields: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": &expression.Partial{Fields: metadata}, "spec": spec,
		}}
		list = append(list, q)
	}
	return list
})

// withUnknown returns a value of JSON in which the text ? is an unknown value, for expressions.
func withUnknown(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = withUnknown(value[key])
		}
	case []any:
		for i := range value {
			value[i] = withUnknown(value[i])
		}
	case float64:
		return int64(value)
	case string:
		if value == "?" {
			return expression.Unknown
		}
	}
	return value
}

// hit is an entry that applies to a probe.
type hit struct {
	*snapshot.Entry
	// unsure names the unseen part that decides whether the entry applies; empty if it certainly
	// applies.
	unsure string
}

// decision is the result for entries with the same selectors and conditions.
type decision struct {
	applies bool
	unsure  string
}

// hooks are the sources that call webhooks.
var hooks = []registration.Source{registration.Mutating, registration.Validating, registration.External}

// hits returns the webhooks that apply to a probe and satisfy want.
func (p *pass) hits(q *probe, want func(*snapshot.Entry) bool) []hit {
	var list []hit
	p.eachHit(q, want, func(h hit) { list = append(list, h) })
	return list
}

// eachHit calls found for each webhook that applies to a probe. It calls want right before it
// checks a webhook, and skips the webhook if want returns false.
func (p *pass) eachHit(q *probe, want func(*snapshot.Entry) bool, found func(hit)) {
	p.eachHitOf(hooks, q, want, found)
}

// eachHitOf is eachHit for entries of other sources, too. A policy applies only if one of its
// bindings does; eachHitOf does not check bindings.
func (p *pass) eachHitOf(sources []registration.Source, q *probe, want func(*snapshot.Entry) bool, found func(hit)) {
	decided := map[decisionKey]decision{}
	for _, source := range sources {
		for _, c := range plan.Candidates(p.Snapshot, source, &q.request, p.Equivalents) {
			if p.patched(c.Entry) || !want(c.Entry) {
				continue
			}
			key := decisionKey{p.filter(c.Entry), c.Kind}
			d, known := decided[key]
			if !known {
				d = p.decide(&c, q)
				decided[key] = d
			}
			if d.applies {
				found(hit{c.Entry, d.unsure})
			}
		}
	}
}

type decisionKey struct {
	filter int
	kind   schema.GroupVersionKind
}

// filter returns a number for the selectors and conditions of an entry. If the rules of two entries
// match a request and their numbers are equal, either both apply or neither does.
func (p *pass) filter(e *snapshot.Entry) int {
	if n, ok := p.filters[e]; ok {
		return n
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v\x00%v\x00%v", e.NamespaceSelector, e.ObjectSelector, e.FailurePolicy)
	for _, c := range e.MatchConditions {
		b.WriteByte(0)
		b.WriteString(c.Expression)
	}
	n, ok := p.filterNumbers[b.String()]
	if !ok {
		n = len(p.filterNumbers)
		p.filterNumbers[b.String()] = n
	}
	p.filters[e] = n
	return n
}

// decide reports whether a candidate applies to a probe.
func (p *pass) decide(c *plan.Candidate, q *probe) decision {
	d := c.Decide(p.ctx, &q.request, p.input(q))
	switch {
	case d.Unknown:
		return decision{true, d.Reason.String()}
	case d.Err != nil && d.Reason.Code == plan.ConditionFailed:
		// The request is rejected, as by a webhook that fails.
		return decision{applies: true}
	case !d.Applies:
		return decision{}
	}
	if ns := q.request.Namespace; ns != "" && !p.knows(ns) && q.request.Resource.Resource != "namespaces" && looksAt(c.Entry.NamespaceSelector, corev1.LabelMetadataName) {
		return decision{true, "the labels of namespace " + ns}
	}
	if q.vague != "" && c.Entry.ObjectSelector != nil && !c.Entry.ObjectSelector.Empty() {
		return decision{true, q.vague}
	}
	return decision{applies: true}
}

// input returns the part of a probe that selectors and conditions see.
func (p *pass) input(q *probe) *plan.Input {
	in := &plan.Input{Objects: plan.AsWritten(object(q.object), object(q.old)), RightsUnknown: "the rights of the user are unknown"}
	in.NamespaceLabels = func(_ context.Context, name string) (map[string]string, error) { return p.labelsOf(name), nil }
	in.Namespace = func(_ context.Context, name string) (*corev1.Namespace, error) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: p.labelsOf(name)}}, nil
	}
	return in
}

// object keeps a nil pointer from becoming a non-nil interface.
func object(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}

// knows reports whether the labels of a namespace are known.
func (p *pass) knows(namespace string) bool {
	_, ok := p.Namespaces[namespace]
	return ok
}

// labelsOf returns the labels of a namespace. If they are unknown, it returns the labels that every
// namespace has.
func (p *pass) labelsOf(namespace string) map[string]string {
	if found, ok := p.Namespaces[namespace]; ok {
		return found
	}
	return map[string]string{corev1.LabelMetadataName: namespace}
}

// looksAt reports whether a selector requires labels other than those in besides.
func looksAt(s labels.Selector, besides ...string) bool {
	if s == nil {
		return false
	}
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return !slices.Contains(besides, r.Key()) })
}
