package lint

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// byAnother is a field that requests to a subresource change, too.
type byAnother struct {
	// fields are paths; * is any element of a list.
	fields []string
	sub    string
	level  report.Level
	// by is the usual request, with its effect.
	by string
}

// changedBy returns the fields of a resource that subresources change.
func changedBy(r *Resource) (list []byAnother) {
	for _, s := range r.Subresources {
		switch {
		case s.Name == "scale" && s.Kind.Kind == "Scale":
			list = append(list, byAnother{[]string{"spec.replicas"}, s.Name, Warning, "kubectl scale or an autoscaler changes it"})
		case s.Name == "status" && slices.Contains(labelled, r.GroupResource()):
			list = append(list, byAnother{[]string{"status"}, s.Name, Warning, "a controller changes it"}, byAnother{mutable, s.Name, Note, "a write of the status changes it"})
		case s.Name == "status":
			list = append(list, byAnother{[]string{"status"}, s.Name, Warning, "a controller changes it"})
		case r.GroupResource() == (schema.GroupResource{Resource: "pods"}) && s.Name == "resize":
			list = append(list, byAnother{[]string{"spec.containers.*.resources", "spec.initContainers.*.resources"}, s.Name, Warning, "a resize changes it"})
		case r.GroupResource() == (schema.GroupResource{Resource: "pods"}) && s.Name == "ephemeralcontainers":
			list = append(list, byAnother{[]string{"spec.ephemeralContainers"}, s.Name, Warning, "kubectl debug changes it"},
				byAnother{[]string{"spec.containers.*.image", "spec.containers.*.securityContext"}, s.Name, Note, "kubectl debug adds containers"})
		}
	}
	return list
}

var subresourceForgotten = &Rule{
	ID: "subresource-forgotten", Level: Warning,
	Reads: []Part{Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		p.evictions(e)
		p.everyResource(e)
		if e.Source != registration.ValidatingPolicies || p.spared(e)["UPDATE"] {
			return
		}
		reads, values := p.readsOf(e, (*expression.Trials).Reads), p.readsOf(e, (*expression.Trials).Values)
		for i := range e.Rules {
			for k := range p.Resources {
				r := &p.Resources[k]
				q := plan.Request{Operation: admission.Update, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
				if !slices.Contains(e.Rules[i].Resources, r.Resource) || !plan.RuleMatches(&e.Rules[i], &q) {
					continue
				}
				said := map[string]bool{}
				for _, c := range changedBy(r) {
					of := reads
					if c.sub == "resize" {
						// A resize removes no request and no limit.
						of = values
					}
					field := readsAny(of, c.fields)
					if field == "" || said[c.sub] || c.sub == "status" && (field == "status" && !onlyStatus(reads) || field != "status" && !p.guardsMetadata(e, reads)) || p.covers(r, c, field) {
						continue
					}
					said[c.sub] = true
					cause := ""
					if c.level == Note {
						cause = r.Resource + c.sub + field
					}
					p.findsCause(c.level, at(e.Entry, rulesPath(e.Entry, i)...), cause, "the policy "+e.String(), "the policy %s reads %s of %s, and %s through %s/%s, which no webhook or policy here covers",
						e, field, r.Resource, c.by, r.Resource, c.sub)
				}
			}
		}
	}),
}

// containers and initContainers are fields of pods and of their templates.
const containers, initContainers = "spec.containers.*.", "spec.initContainers"

var initContainersForgotten = &Rule{
	ID: "init-containers-forgotten", Level: Warning,
	Reads: []Part{Kinds, Definitions},
	check: eachFact(func(p *pass, f *fact) {
		e := f.entry
		if f.use != validation || f.trials == nil || e.Bindings != nil && len(p.denying(e)) == 0 || !strings.Contains(f.text, ".all(") {
			return
		}
		list, _ := p.subjects(e)
		for _, path := range f.trials.Reads() {
			before, field, _ := strings.Cut(strings.Join(path, "."), containers)
			before, ok := strings.CutPrefix(before, "object.")
			field, _, _ = strings.Cut(field, ".")
			i := slices.IndexFunc(list, func(s subject) bool {
				return s.kind == s.Kind && fieldOf(p.schemaOf(s.kind), strings.Split(before+initContainers, ".")) != nil
			})
			if !ok || i < 0 || field != "image" && field != "securityContext" {
				continue
			}
			r := list[i].Resource
			q := plan.Request{Operation: admission.Create, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
			if !p.validates(&q, func(other *snapshot.Entry) bool {
				return other.Policy == nil || readsAny(p.readsOf(other, (*expression.Trials).Reads), []string{before + initContainers}) != ""
			}) {
				p.findsCause(Warning, f.at(), e.String(), "the expression at "+pathText(f.at().path), "the policy %s checks the %s of containers of %s, and no webhook or policy here reads their initContainers: an init container may have what it forbids", e, field, r.Resource)
			}
			return
		}
	}),
}

// evictions finds an entry that may reject the DELETE of pods and does not receive evictions: an API server deletes an
// evicted pod without admission for DELETE.
func (p *pass) evictions(e *snapshot.Entry) {
	rejects := e.Source == registration.Validating && failsClosed(e) || e.Source == registration.ValidatingPolicies && len(p.denying(e)) > 0
	q := plan.Request{Operation: admission.Delete, Resource: podKind.GroupVersion().WithResource("pods"), Kind: podKind, Namespace: "default", Name: "one"}
	i := slices.IndexFunc(e.Rules, func(r registration.Rule) bool {
		// Rules that have CREATE, too, are about the content of pods.
		return slices.Contains(r.Resources, "pods") && plan.RuleMatches(&r, &q) && !slices.Contains(r.Operations, "CREATE") && !slices.Contains(r.Operations, "*")
	})
	evict := q
	evict.Operation, evict.Subresource, evict.Kind = admission.Create, "eviction", schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}
	// Policies about users are not about how a pod is deleted.
	if !rejects || i < 0 || p.mentions(e, "request.userInfo") || p.validates(&evict, func(*snapshot.Entry) bool { return true }) {
		return
	}
	p.findsCause(Note, at(e.Entry, rulesPath(e.Entry, i)...), "eviction", e.String(), "%s receives the DELETE of pods, and kubectl drain deletes them through pods/eviction, which no webhook or policy here covers: the API server sends no DELETE for admission then", e)
}

// everyResource finds a policy about users that receives the writes of every resource and of no subresource.
func (p *pass) everyResource(e *snapshot.Entry) {
	i := slices.IndexFunc(e.Rules, func(r registration.Rule) bool {
		return slices.Equal(r.Resources, []string{"*"}) && slices.Contains(r.APIGroups, "*") && (slices.Contains(r.Operations, "UPDATE") || slices.Contains(r.Operations, "*"))
	})
	q := plan.Request{Operation: admission.Update, Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Subresource: "scale",
		Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Namespace: "default", Name: "one"}
	if i < 0 || len(p.denying(e)) == 0 || p.spared(e)["UPDATE"] || !p.mentions(e, "request.userInfo") || len(p.readsOf(e, (*expression.Trials).Reads)) > 0 ||
		p.validates(&q, func(*snapshot.Entry) bool { return true }) {
		return
	}
	p.findsCause(Note, at(e.Entry, rulesPath(e.Entry, i)...), "every resource", e.String(), "the policy %s decides about users and every resource, and * names no subresource: it does not receive kubectl scale, kubectl exec or a write of a status; */* has them", e)
}

// mutable are fields that an UPDATE can change in objects of any kind, mutableOfPods in pods.
var mutable, mutableOfPods = []string{"metadata.labels", "metadata.annotations"}, []string{"spec.containers.*.image", "spec.initContainers.*.image"}

var updateForgotten = &Rule{
	ID: "update-forgotten", Level: Note,
	Reads: []Part{Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Source != registration.ValidatingPolicies || len(p.denying(e)) == 0 {
			return
		}
		reads := p.readsOf(e, (*expression.Trials).Reads)
		for i := range e.Rules {
			for k := range p.Resources {
				r := &p.Resources[k]
				q := plan.Request{Operation: admission.Create, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
				update := q
				update.Operation = admission.Update
				if !slices.Contains(e.Rules[i].Resources, r.Resource) || !plan.RuleMatches(&e.Rules[i], &q) || p.validates(&update, mayAct) {
					continue
				}
				fields := mutable
				if r.Kind == podKind {
					fields = append(slices.Clip(fields), mutableOfPods...)
				}
				if field := readsOnly(reads, fields); field != "" {
					p.findsAs(Note, at(e.Entry, rulesPath(e.Entry, i)...), "the policy %s checks %s of %s under CREATE alone, and an UPDATE can change it", e, field, r.Resource)
					return
				}
			}
		}
	}),
}

// readsOnly returns the first of the fields that is read; empty if other fields are read, except the kind and the name of
// the object.
func readsOnly(reads, fields []string) (found string) {
	for _, path := range reads {
		field := readsAny([]string{path}, fields)
		if field == "" && !slices.Contains([]string{"kind", "metadata.name", "metadata.namespace", "spec.containers", "spec.initContainers"}, path) {
			return ""
		}
		found = cmp.Or(found, field)
	}
	return found
}

// readsOf returns the fields of object among the paths of the validations of a policy, without the variable.
func (p *pass) readsOf(e *snapshot.Entry, paths func(*expression.Trials) [][]string) (list []string) {
	for _, f := range p.factsOf(e) {
		if f.use != validation || f.trials == nil {
			continue
		}
		for _, path := range paths(f.trials) {
			if len(path) > 1 && path[0] == "object" {
				list = append(list, strings.Join(path[1:], "."))
			}
		}
	}
	return list
}

// readsAny returns the first of the fields that is read, in whole or in part; empty if none is.
func readsAny(reads, fields []string) string {
	for _, field := range fields {
		if slices.ContainsFunc(reads, func(path string) bool { return path == field || strings.HasPrefix(path, field+".") }) {
			return field
		}
	}
	return ""
}

// labelled are resources whose labels and annotations a write of the status changes.
var labelled = []schema.GroupResource{{Resource: "pods"}, {Resource: "namespaces"}}

// guardsMetadata reports whether a policy is about changes of labels or annotations alone.
func (p *pass) guardsMetadata(e *snapshot.Entry, reads []string) bool {
	return p.mentions(e, "oldObject") && len(p.denying(e)) > 0 && !slices.ContainsFunc(reads, func(path string) bool { return !strings.HasPrefix(path, "metadata.") })
}

// onlyStatus reports whether a policy is about the status: other policies read it to decide about other fields.
func onlyStatus(reads []string) bool {
	return !slices.ContainsFunc(reads, func(path string) bool {
		return path != "status" && !strings.HasPrefix(path, "status.") && !strings.HasPrefix(path, "metadata.")
	})
}

// covers reports whether an entry of the validating pass receives the updates of a subresource: a webhook, or a policy that
// reads the field. Debug containers have the same fields as containers.
func (p *pass) covers(r *Resource, c byAnother, field string) bool {
	q := plan.Request{Operation: admission.Update, Resource: r.GroupVersionResource, Subresource: c.sub, Kind: r.kindOf(c.sub), Namespace: p.someNamespace(r), Name: "one"}
	fields := []string{field, strings.Replace(field, "spec.containers.", "spec.ephemeralContainers.", 1)}
	return p.validates(&q, func(e *snapshot.Entry) bool {
		reads := p.readsOf(e, (*expression.Trials).Reads)
		return len(reads) == 0 || readsAny(reads, fields) != ""
	})
}

// validates reports whether an entry of the validating pass for which want is true matches a request. The selectors and
// conditions of the entry are not evaluated.
func (p *pass) validates(q *plan.Request, want func(*snapshot.Entry) bool) bool {
	for _, source := range []registration.Source{registration.Validating, registration.External, registration.ValidatingPolicies} {
		if slices.ContainsFunc(p.Snapshot.Entries(source), func(e *snapshot.Entry) bool { return matchesAny(e.Rules, q) && want(e) }) {
			return true
		}
	}
	return false
}

var selectorOnSubresource = &Rule{
	ID: "selector-on-subresource", Level: Error,
	Reads: []Part{Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.ObjectSelector == nil || e.ObjectSelector.Matches(labels.Set{}) || e.Binding != nil && len(e.Rules) == 0 {
			return
		}
		for i := range e.Rules {
			for _, named := range e.Rules[i].Resources {
				resource, sub, ok := strings.Cut(named, "/")
				if !ok || sub == "*" || resource == "*" {
					continue
				}
				r, kind := p.subresource(&e.Rules[i], resource, sub)
				if r == nil {
					continue
				}
				connects := strings.HasSuffix(kind.Kind, "Options")
				if !connects && !slices.Contains([]string{"Eviction", "Binding", "Scale", "TokenRequest"}, kind.Kind) {
					continue
				}
				operation := admission.Create
				if connects {
					operation = admission.Connect
				} else if kind.Kind == "Scale" {
					operation = admission.Update
				}
				q := plan.Request{Operation: operation, Resource: r.GroupVersionResource, Subresource: sub, Kind: kind, Namespace: p.someNamespace(r), Name: "one"}
				if !plan.RuleMatches(&e.Rules[i], &q) || p.validates(&q, func(other *snapshot.Entry) bool {
					return other.ObjectSelector == nil || other.ObjectSelector.Matches(labels.Set{})
				}) {
					continue
				}
				where := append(rulesPath(e.Entry, i)[:len(rulesPath(e.Entry, i))-2:len(rulesPath(e.Entry, i))-2], "objectSelector")
				if connects {
					p.finds(at(e.Entry, where...), "the objectSelector of %s is compared with the %s of %s, which have no labels: %s never applies to them", e, kind.Kind, named, kindOf(e))
				} else {
					p.findsAs(Warning, at(e.Entry, where...), "the objectSelector of %s is compared with the %s that clients send to %s, which has no labels unless a client sets some, and not with the object of %s", e, kind.Kind, named, resource)
				}
			}
		}
	}),
}

// subresource returns the resource that a rule names, and the kind of a subresource of it; nil if it is not known.
func (p *pass) subresource(rule *registration.Rule, resource, sub string) (*Resource, schema.GroupVersionKind) {
	for i := range p.Resources {
		r := &p.Resources[i]
		if r.Resource == resource && (slices.Contains(rule.APIGroups, r.Group) || slices.Contains(rule.APIGroups, "*")) {
			if kind := r.kindOf(sub); !kind.Empty() {
				return r, kind
			}
		}
	}
	return nil, schema.GroupVersionKind{}
}
