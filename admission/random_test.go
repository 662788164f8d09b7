package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// random generates registrations and requests. The same seed generates the same ones.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 11))} }

// in returns true with probability 1/n.
func (r random) in(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r random, list ...T) T { return list[r.IntN(len(list))] }

// some returns one to three elements of a list; in half of the cases it returns the wildcard.
func some[T ~string](r random, list ...T) []T {
	if r.in(2) {
		return []T{"*"}
	}
	var out []T
	for range 1 + r.IntN(3) {
		if one := pick(r, list...); !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

func maybe[T any](r random, n int, value T) *T {
	if r.in(n) {
		return nil
	}
	return &value
}

// conditions are expressions that are true, false, fail, do not compile, and depend on everything
// that differs between kinds, objects and requests.
var conditions = []string{
	`true`, `true`, `true`, `false`, `object.none == 1`, `object ==`,
	`object.apiVersion == "apps/v1"`, `object.apiVersion == "extensions/v1beta1"`, `object.kind == "Scale"`,
	`object == null || object.metadata.?labels.?team.orValue("") == "red"`, `object.metadata.labels.team == "red"`,
	`oldObject == null`, `oldObject.metadata.name != ""`,
	`request.kind.version == "v1"`, `request.resource.group == ""`, `request.operation == "CREATE"`, `request.dryRun`,
	`has(object.big)`, `has(object.size)`, `object.?metadata.?initializers.hasValue()`,
	`has(object.metadata.annotations) && "stamp" in object.metadata.annotations`,
	`authorizer.group("").resource("pods").namespace("shop").check("get").allowed()`,
	`request.userInfo.username == "alice"`,
}

func (r random) conditions() []v1.MatchCondition {
	if !r.in(4) {
		return nil
	}
	var list []v1.MatchCondition
	for i := range 1 + r.IntN(2) {
		list = append(list, v1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: pick(r, conditions...)})
	}
	return list
}

func (r random) selector() *metav1.LabelSelector {
	switch r.IntN(16) {
	case 0, 1, 2:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(r, "red", "blue")}}
	case 3:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	case 4:
		// The selector cannot be parsed. Validation rejects it, but it may still be stored.
		if r.in(6) {
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Near"}}}
		}
	case 5:
		if r.in(2) {
			return nil
		}
	}
	return &metav1.LabelSelector{}
}

func (r random) groups() []string {
	return some(r, "", "apps", "extensions", "example.com", "policy", "tenants.example.com")
}

func (r random) resources() []string {
	list := []string{"*", "*/*", "pods", "pods/*", "pods/exec", "*/status", "*/scale", "deployments", "deployments/*", "namespaces", "widgets", "gadgets", "oddities", "bindings"}
	if r.in(3) {
		return []string{"*/*"}
	}
	return some(r, list...)
}

func (r random) rules() []v1.RuleWithOperations {
	var rules []v1.RuleWithOperations
	for range 1 + r.IntN(3) {
		rules = append(rules, v1.RuleWithOperations{
			Operations: some(r, v1.Create, v1.Update, v1.Delete, v1.Connect),
			Rule: v1.Rule{
				APIGroups: r.groups(), APIVersions: some(r, "v1", "v2", "v1beta1"), Resources: r.resources(),
				Scope: maybe(r, 2, pick(r, v1.AllScopes, v1.AllScopes, v1.NamespacedScope, v1.ClusterScope)),
			},
		})
	}
	if r.in(40) {
		return nil
	}
	return rules
}

// webhook returns a webhook at a path of a server. Names repeat, as v1beta1 allows.
func (r random) webhook(base string, ca []byte, path string) v1.MutatingWebhook {
	url := base + "/" + path
	w := v1.MutatingWebhook{
		Name:                    fmt.Sprintf("h%d.example.com", r.IntN(maxHooks)),
		ClientConfig:            v1.WebhookClientConfig{URL: &url, CABundle: ca},
		Rules:                   r.rules(),
		FailurePolicy:           maybe(r, 4, pick(r, v1.Fail, v1.Ignore)),
		MatchPolicy:             maybe(r, 4, pick(r, v1.Equivalent, v1.Equivalent, v1.Exact)),
		NamespaceSelector:       r.selector(),
		ObjectSelector:          r.selector(),
		SideEffects:             maybe(r, 16, pick(r, "None", "None", "None", "None", "None", "NoneOnDryRun", v1.SideEffectClassSome, v1.SideEffectClassUnknown)),
		TimeoutSeconds:          maybe(r, 3, int32(5+r.IntN(26))),
		AdmissionReviewVersions: pick(r, []string{"v1"}, []string{"v1beta1"}, []string{"v1", "v1beta1"}, []string{"v7", "v1beta1", "v1"}, []string{"v1"}, []string{"v1"}),
		MatchConditions:         r.conditions(),
		ReinvocationPolicy:      maybe(r, 3, pick(r, v1.NeverReinvocationPolicy, v1.IfNeededReinvocationPolicy, v1.IfNeededReinvocationPolicy)),
	}
	if r.in(30) {
		w.AdmissionReviewVersions = []string{"v7"}
	}
	return w
}

// hookPath is the path of the webhook of an entry.
func hookPath(prefix, kind, configuration string, index int) string {
	return fmt.Sprintf("%s/%s/%s/%d", prefix, kind, configuration, index)
}

// The configurations of random registrations, and the maximum number of webhooks in each.
var configurations = []string{"a", "b", "c"}

const maxHooks = 4

// registrations returns a set of registrations of all sources and versions, as a server stores
// them.
func (r random) registrations(base string, ca []byte, prefix string) []runtime.Object {
	var list []runtime.Object
	add := func(o runtime.Object, version string) {
		o, err := registration.Convert(o, version)
		if err != nil {
			panic(err)
		}
		if !r.in(20) {
			registration.Default(o)
		}
		list = append(list, o)
	}
	for _, name := range configurations {
		if !r.in(3) {
			c := &v1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for i := range r.IntN(maxHooks + 1) {
				c.Webhooks = append(c.Webhooks, r.webhook(base, ca, hookPath(prefix, registration.MutatingKind, name, i)))
			}
			add(c, pick(r, "v1", "v1", "v1beta1"))
		}
		if !r.in(3) {
			c := &v1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for i := range r.IntN(maxHooks + 1) {
				w := r.webhook(base, ca, hookPath(prefix, registration.ValidatingKind, name, i))
				c.Webhooks = append(c.Webhooks, v1.ValidatingWebhook{
					Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
					NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
					TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
				})
			}
			add(c, pick(r, "v1", "v1", "v1beta1"))
		}
	}
	for _, name := range configurations[:2] {
		if r.in(2) {
			list = append(list, r.external(ca, prefix, name))
		}
		if r.in(2) {
			list = append(list, r.initializers(name))
		}
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (r random) external(ca []byte, prefix, name string) runtime.Object {
	c := &v1alpha1.ExternalAdmissionHookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range r.IntN(3) {
		path := "/" + hookPath(prefix, registration.ExternalKind, name, i)
		h := v1alpha1.ExternalAdmissionHook{
			Name:              fmt.Sprintf("e%d.example.com", r.IntN(4)),
			ClientConfig:      v1alpha1.AdmissionHookClientConfig{Service: v1alpha1.ServiceReference{Namespace: "default", Name: "hooks"}, URLPath: &path, CABundle: ca},
			FailurePolicy:     maybe(r, 3, pick(r, v1alpha1.Fail, v1alpha1.Ignore)),
			NamespaceSelector: r.selector(),
		}
		for _, rule := range r.rules() {
			h.Rules = append(h.Rules, v1alpha1.RuleWithOperations{
				Operations: recastAll[v1alpha1.OperationType](rule.Operations),
				Rule:       v1alpha1.Rule{APIGroups: rule.APIGroups, APIVersions: rule.APIVersions, Resources: rule.Resources},
			})
		}
		c.ExternalAdmissionHooks = append(c.ExternalAdmissionHooks, h)
	}
	registration.Default(c)
	return c
}

func recastAll[To, From ~string](in []From) []To {
	out := make([]To, len(in))
	for i := range in {
		out[i] = To(in[i])
	}
	return out
}

func (r random) initializers(name string) runtime.Object {
	c := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	names := []string{"i0.example.com", "i1.example.com", "i2.example.com", "i3.example.com"}
	for range r.IntN(3) {
		in := v1alpha1.Initializer{Name: pick(r, names...)}
		if r.in(3) {
			in.After = []string{pick(r, names...)}
		}
		for _, rule := range r.rules() {
			in.Rules = append(in.Rules, v1alpha1.Rule{APIGroups: rule.APIGroups, APIVersions: rule.APIVersions, Resources: rule.Resources})
		}
		c.Initializers = append(c.Initializers, in)
	}
	registration.Default(c)
	return c
}

// randomNamespaces are the namespaces of requests: some are in the cache, one is only stored, one
// is being deleted, one cannot be read; no others exist.
type randomNamespaces struct{}

func (randomNamespaces) Cached(name string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	switch name {
	case "shop":
		ns.Labels = map[string]string{"team": "red"}
	case "office":
		ns.Labels = map[string]string{"team": "blue"}
	case "plain":
	case "ending":
		ns.Status.Phase = corev1.NamespaceTerminating
	default:
		return nil
	}
	return ns
}

func (n randomNamespaces) Live(_ context.Context, name string) (*corev1.Namespace, error) {
	switch name {
	case "new":
		ns := n.Cached("shop").DeepCopy()
		ns.Name = name
		return ns, nil
	case "unreadable":
		return nil, errors.New("the storage does not answer")
	}
	if ns := n.Cached(name); ns != nil {
		return ns, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

// alice may read pods and write uninitialized objects; no other user may.
type alice struct{}

func (alice) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() != nil && a.GetUser().GetName() == "alice" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// attributes returns a request.
func (r random) attributes() (admission.Attributes, error) {
	s := pick(r, catalogue...)
	for len(s.operations) == 0 {
		s = pick(r, catalogue...)
	}
	operation := pick(r, s.operations...)
	if r.in(4) {
		// The engine has learned about these webhooks, and may call them ahead of turn.
		s, operation = catalogue[0], admission.Create
	}
	name := pick(r, "web", "web", "web", "x", "y", "shop", "default", "forbidden")
	namespace := ""
	if s.namespaced {
		namespace = pick(r, "shop", "shop", "shop", "shop", "office", "office", "plain", "plain", "new", "new", "ending", "gone", "unreadable")
	}
	var content, old map[string]any
	switch operation {
	case admission.Create:
		content = r.content(namespace, name, true)
		if s.subresource == "" && s.kind.Kind != "Namespace" && r.in(8) {
			metadata := content["metadata"].(map[string]any)
			delete(metadata, "name")
			metadata["generateName"] = name + "-"
			name = ""
		}
	case admission.Update:
		content, old = r.content(namespace, name, true), r.content(namespace, name, false)
	case admission.Delete:
		if old = r.content(namespace, name, false); r.in(10) {
			// A collection, represented by its first object.
			old, name = nil, ""
		}
	case admission.Connect:
		content = map[string]any{"command": []any{"sh"}}
	}
	if s.resource.Resource == "namespaces" && !s.namespaced {
		// As in k8s.io/apiserver.
		namespace = name
	}
	object, err := s.held(content)
	if err != nil {
		return nil, err
	}
	oldObject, err := s.held(old)
	if err != nil {
		return nil, err
	}
	if content != nil && operation != admission.Connect && s.subresource == "" {
		r.preset(object, 12)
		if oldObject != nil {
			r.preset(oldObject, 6)
		}
	}
	dryRun := operation != admission.Connect && r.in(10)
	return admission.NewAttributesRecord(object, oldObject, s.kind, namespace, name, s.resource, s.subresource, operation,
		optionsOf(operation, dryRun), dryRun, &user.DefaultInfo{Name: pick(r, "alice", "bob", "carol")}), nil
}

// optionsOf returns the options that a server passes to admission.
func optionsOf(operation admission.Operation, dryRun bool) runtime.Object {
	var all []string
	if dryRun {
		all = []string{metav1.DryRunAll}
	}
	kind := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind} }
	switch operation {
	case admission.Create:
		return &metav1.CreateOptions{TypeMeta: kind("CreateOptions"), DryRun: all}
	case admission.Update:
		return &metav1.UpdateOptions{TypeMeta: kind("UpdateOptions"), DryRun: all}
	case admission.Delete:
		return &metav1.DeleteOptions{TypeMeta: kind("DeleteOptions"), DryRun: all}
	}
	return nil
}

// content returns the content of an object, as a user writes it.
func (r random) content(namespace, name string, mayBreak bool) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	if r.in(2) {
		metadata["labels"] = map[string]any{"team": pick(r, "red", "blue", "green")}
	}
	annotations := map[string]any{}
	if r.in(10) {
		annotations["kubernetes.io/config.mirror"] = "x"
	}
	if mayBreak && r.in(40) {
		annotations["broken"] = "yes"
	}
	if r.in(4) {
		annotations["stamped"] = "please"
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	content := map[string]any{"metadata": metadata}
	if r.in(2) {
		content["size"] = int64(r.IntN(5))
	}
	return content
}

// preset writes a list of initializers with probability 1/n, as a client may.
func (r random) preset(object runtime.Object, n int) {
	if _, ok := object.(metav1.Object); !ok || !r.in(n) {
		return
	}
	list := &initializers.Initializers{}
	for i := range r.IntN(3) {
		list.Pending = append(list.Pending, initializers.Initializer{Name: fmt.Sprintf("i%d.example.com", i)})
	}
	if r.in(6) {
		list.Pending = append(list.Pending, initializers.Initializer{Name: "not a name"})
	}
	initializers.Set(object, list)
}
