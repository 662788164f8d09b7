package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
)

// Engines names the policies behind the webhooks of the policy engines Kyverno and Gatekeeper. One webhook of such an
// engine represents many policies, which are objects of their own. It is safe for concurrent use.
type Engines struct {
	objects dynamic.Interface
	kinds   *Kinds

	mu sync.Mutex
	// known caches the objects of listed resources.
	known map[schema.GroupResource]listed
}

// listed has the objects of a resource, or the reason why they cannot be listed.
type listed struct {
	objects []policyObject
	hidden  string
}

// policyObject is a policy with the fields needed for matching.
type policyObject struct {
	group, kind, namespace, name string
	annotations                  map[string]string
	spec                         map[string]any
}

func (o *policyObject) String() string {
	if o.namespace != "" {
		return o.kind + " " + o.namespace + "/" + o.name
	}
	return o.kind + " " + o.name
}

// NewEngines returns the Engines of a cluster, whose kinds were discovered.
func NewEngines(config *rest.Config, kinds *Kinds) (*Engines, error) {
	objects, err := dynamic.NewForConfig(config)
	return &Engines{objects: objects, kinds: kinds}, err
}

// Annotate adds notes to the steps of a plan that call webhooks of policy engines. It reads the policies, as far as the
// caller may list them.
func (e *Engines) Annotate(ctx context.Context, p *plan.Plan) {
	for s := range p.Acting() {
		s.Notes = append(s.Notes, e.notes(ctx, &p.Request, s)...)
	}
}

// stands describes the policies behind a webhook: the objects of the resources for which meant is true.
type stands struct {
	what  string
	meant func(schema.GroupResource) bool
	// only, if set, limits them to one policy, as NAME or NAMESPACE-NAME.
	only string
}

const (
	kyverno         = "kyverno.io"
	kyvernoPolicies = "policies.kyverno.io"
	// gatekeeper is the webhook that evaluates constraints.
	gatekeeper = "validation.gatekeeper.sh"
)

// engineOf returns the policies behind a webhook, by the webhook name that the engine uses. ok is false for a webhook
// without policies, such as the webhook that validates the policies themselves.
func engineOf(webhook string) (s stands, ok bool) {
	switch webhook {
	case gatekeeper:
		return stands{what: "Gatekeeper constraints", meant: func(r schema.GroupResource) bool { return r.Group == "constraints.gatekeeper.sh" }}, true
	case "mutation.gatekeeper.sh":
		return stands{what: "Gatekeeper mutators", meant: func(r schema.GroupResource) bool { return r.Group == "mutations.gatekeeper.sh" }}, true
	}
	// [KIND.]validate.kyverno.svc-fail[-finegrained-POLICY], or mutate, or ignore.
	kind, rest, ok := strings.Cut(webhook, ".kyverno.svc")
	if !ok {
		return s, false
	}
	s.what = "Kyverno policies"
	if at := strings.LastIndexByte(kind, '.'); at < 0 {
		kind, ok = "", kind == "validate" || kind == "mutate"
	} else {
		kind, ok = kind[:at], kind[at+1:] == "validate" || kind[at+1:] == "mutate"
	}
	_, s.only, _ = strings.Cut(rest, "-finegrained-")
	if kind == "" {
		s.meant = func(r schema.GroupResource) bool {
			return r.Group == kyverno && (r.Resource == "clusterpolicies" || r.Resource == "policies")
		}
		return s, ok
	}
	resource := map[string]string{
		"vpol": "validatingpolicies", "mpol": "mutatingpolicies", "ivpol": "imagevalidatingpolicies", "gpol": "generatingpolicies", "dpol": "deletingpolicies",
	}[strings.TrimPrefix(kind, "n")]
	s.meant = func(r schema.GroupResource) bool {
		if r.Group != kyvernoPolicies {
			return false
		}
		if resource == "" {
			return strings.HasSuffix(r.Resource, "policies")
		}
		return r.Resource == resource || r.Resource == "namespaced"+resource
	}
	return s, ok
}

// most bounds the policies named in a note.
const most = 20

// notes names, in one sentence, the policies behind the webhook of a step that can apply to the request; nil if the
// webhook does not belong to a policy engine.
func (e *Engines) notes(ctx context.Context, about *plan.About, step *plan.Step) []string {
	behind, ok := engineOf(step.Entry.Name)
	if !ok {
		return nil
	}
	var found []policyObject
	var hidden []string
	var templates []policyObject
	seen := map[schema.GroupResource]bool{}
	for _, k := range e.kinds.list {
		r := k.Resource.GroupResource()
		expands := r.Group == "expansion.gatekeeper.sh" && k.Kind.Kind == "ExpansionTemplate" && step.Entry.Name == gatekeeper
		if !behind.meant(r) && !expands || seen[r] {
			continue
		}
		seen[r] = true
		l := e.list(ctx, k)
		if expands {
			templates = l.objects
		} else {
			found = append(found, l.objects...)
		}
		if l.hidden != "" {
			hidden = append(hidden, fmt.Sprintf("%s: %s", r, l.hidden))
		}
	}
	if behind.only != "" {
		if i := slices.IndexFunc(found, func(o policyObject) bool {
			return behind.only == o.name || behind.only == o.namespace+"-"+o.name
		}); i >= 0 {
			found, hidden = found[i:i+1], nil
		}
	}
	a := &asked{about: about, mutating: step.Pass == registration.MutatingPass.String()}
	a.expand(templates)
	all := len(found)
	found = slices.DeleteFunc(found, func(o policyObject) bool { return !a.reaches(&o) })
	names := make([]string, 0, min(len(found), most)+1)
	for i := range found[:min(len(found), most)] {
		names = append(names, found[i].String())
	}
	if len(found) > most {
		names = append(names, fmt.Sprintf("%d more", len(found)-most))
	}
	text := behind.what + ": "
	switch {
	case len(names) > 0:
		text += strings.Join(names, ", ")
	case len(hidden) == 0:
		text += "none"
	}
	switch others := all - len(found); {
	case others > 0 && len(names) > 0:
		text += fmt.Sprintf(" (%d more cannot apply to this request)", others)
	case others > 0:
		text += fmt.Sprintf(" (%d cannot apply to this request)", others)
	}
	if len(hidden) > 0 {
		text = strings.TrimSuffix(text, " ") + " (unknown: " + strings.Join(hidden, "; ") + ")"
	}
	return []string{text}
}

// list returns the objects of a kind.
func (e *Engines) list(ctx context.Context, k *Kind) listed {
	r := k.Resource.GroupResource()
	e.mu.Lock()
	defer e.mu.Unlock()
	if l, ok := e.known[r]; ok {
		return l
	}
	var l listed
	found, err := clustersnapshot.All(ctx, e.objects.Resource(k.Resource), metav1.ListOptions{})
	if err != nil {
		l.hidden = unreadable(err)
	}
	for _, u := range found {
		l.objects = append(l.objects, policyOf(k.Kind.GroupKind(), u))
	}
	if e.known == nil {
		e.known = map[schema.GroupResource]listed{}
	}
	e.known[r] = l
	return l
}

// unreadable returns the reason why the objects of a kind cannot be read.
func unreadable(err error) string {
	if apierrors.IsForbidden(err) {
		return "may not list them"
	}
	return err.Error()
}
