package lint

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var paramsMissing = &Rule{
	ID: "params-missing", Level: Error,
	Reads: []Part{Kinds, Params},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if p.Params == nil {
			return
		}
		switch {
		case e.Entry.Policy != nil && e.Entry.Policy.ParamKind != nil:
			p.paramKind(e)
		case e.Binding != nil && e.Binding.ParamRef != nil && p.Snapshot.Bound(e) != nil:
			p.paramRef(e, p.Snapshot.Bound(e))
		}
	}),
}

func (p *pass) paramKind(e *snapshot.Entry) {
	kind := *e.Entry.Policy.ParamKind
	_, served, err := p.Params.Scope(p.ctx, kind)
	switch {
	case errors.Is(err, plan.ErrUnknown) && p.paramsGone(e, kind):
	case errors.Is(err, plan.ErrUnknown):
		p.misses("%v: params of policy %s", err, e)
	case err == nil && !served && e.Bindings != nil && failsClosed(e):
		p.finds(at(e.Entry, "paramKind"), "the policy %s has params of kind %s, which is not served: each request that it is about is rejected", e, kindText(kind))
	case err == nil && !served:
		p.findsAs(Warning, at(e.Entry, "paramKind"), "the policy %s has params of kind %s, which is not served", e, kindText(kind))
	}
}

func (p *pass) paramRef(e, policy *snapshot.Entry) {
	kind, ref := policy.Entry.Policy.ParamKind, e.Binding.ParamRef
	if kind == nil {
		p.findsAs(Warning, at(e.Entry, "paramRef"), "the binding %s refers to params, and the policy %s has none", e, policy)
		return
	}
	namespaced, served, err := p.Params.Scope(p.ctx, *kind)
	if err != nil || !served || namespaced && ref.Namespace == "" {
		// Without a namespace, the params are in the namespace of each request.
		return
	}
	found, elsewhere := 0, ""
	if ref.Name != "" {
		if _, err = p.Params.Get(p.ctx, *kind, ref.Namespace, ref.Name); err == nil {
			found = 1
		}
	} else if e.ParamSelector != nil {
		list, failure := p.Params.List(p.ctx, *kind, ref.Namespace, e.ParamSelector)
		found, err = len(list), failure
	}
	switch {
	case found > 0:
		return
	case p.Partial:
		// An object that is in no file may exist in the cluster, unless the files have other
		// objects of its kind.
		others, _ := p.Params.List(p.ctx, *kind, ref.Namespace, labels.Everything())
		if elsewhere = p.paramElsewhere(*kind, ref.Name); len(others) == 0 && elsewhere == "" {
			p.misses("params of binding %s: no file has them", e)
			return
		}
	case err != nil && !apierrors.IsNotFound(err):
		p.misses("params of binding %s: %v", e, err)
		return
	}
	level, follows := Warning, "the policy decides nothing"
	if ref.DenyMissing {
		level, follows = Error, "each request that the policy is about is rejected"
		if !failsClosed(policy) {
			level, follows = Warning, "the policy decides nothing, because it has failurePolicy Ignore"
		}
	}
	what := ref.Name
	if what == "" && e.ParamSelector != nil {
		what = "selected by " + e.ParamSelector.String()
	}
	if p.Partial {
		level = Warning
	}
	if elsewhere != "" {
		follows = "the files have it in namespace " + elsewhere + ", and " + follows
	}
	p.findsAs(level, at(e.Entry, "paramRef"), "there is no %s %s in namespace %q for the binding %s: %s", kind.Kind, what, ref.Namespace, e, follows)
}

// paramElsewhere returns a namespace in which the files have a param of a name; empty if there is none, and if a
// kustomization may change the namespaces.
func (p *pass) paramElsewhere(kind schema.GroupVersionKind, name string) (namespace string) {
	for k := range p.Kept {
		if p.Kustomized || k.GroupKind != kind.GroupKind() || k.Namespace == "" || namespace != "" && namespace < k.Namespace {
			continue
		}
		if _, err := p.Params.Get(p.ctx, kind, k.Namespace, name); err == nil {
			namespace = k.Namespace
		}
	}
	return namespace
}

func kindText(k schema.GroupVersionKind) string { return k.Kind + " of " + k.GroupVersion().String() }

var paramsPerNamespaceDeny = &Rule{
	ID: "params-per-namespace-deny", Level: Warning,
	Reads: []Part{Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if p.Params == nil {
			return
		}
		if e.Binding == nil || e.Binding.ParamRef == nil || !e.Binding.ParamRef.DenyMissing || e.Binding.ParamRef.Namespace != "" {
			return
		}
		policy := p.Snapshot.Bound(e)
		if policy == nil || policy.Entry.Policy.ParamKind == nil || !failsClosed(policy) {
			return
		}
		// A namespace that is deleted takes no new objects anyway.
		if !slices.ContainsFunc(policy.Rules, func(r registration.Rule) bool {
			return slices.ContainsFunc(r.Operations, func(operation string) bool { return operation != "CREATE" && operation != "CONNECT" })
		}) {
			return
		}
		if namespaced, _, err := p.Params.Scope(p.ctx, *policy.Entry.Policy.ParamKind); err == nil && namespaced {
			p.findsCause(p.rule.Level, at(e.Entry, "paramRef", "parameterNotFoundAction"), policy.String(), "the binding "+e.String(), "the binding %s rejects all writes that its policy matches in a namespace whose params are gone, also while the namespace is deleted", e)
		}
	}),
}
