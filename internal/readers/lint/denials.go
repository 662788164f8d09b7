package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// necessity is a group of requests that the cluster makes, and the effect of their rejection.
type necessity struct {
	level  report.Level
	effect string
	probes []*probe
	// byUsers is set if the objects exist only if the policy admits their CREATE.
	byUsers bool
}

// necessities returns the requests of the cluster that a policy could reject.
func (p *pass) necessities(e *snapshot.Entry) []necessity {
	core := func(kind, resource, sub, namespace, name string) target {
		return target{"", "v1", kind, resource, sub, namespace, name}
	}
	apps := func(kind, resource string) target {
		return target{"apps", "v1", kind, resource, "", "kube-system", "network"}
	}
	csr := target{group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest", resource: "certificatesigningrequests", name: "node-csr-1"}
	lease := func(o admission.Operation, namespace, name string, by user.Info) *probe {
		return request(o, target{"coordination.k8s.io", "v1", "Lease", "leases", "", namespace, name}, by, nil)
	}
	const rbac, flow, network = "rbac.authorization.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io"
	list := []necessity{
		{level: Error, effect: "nodes cannot join or stay", probes: []*probe{
			request(admission.Create, core("Node", "nodes", "", "", "node-1"), node, nil),
			request(admission.Update, core("Node", "nodes", "", "", "node-1"), controller("node-controller"), nil),
			request(admission.Update, core("Node", "nodes", "status", "", "node-1"), node, nil),
			request(admission.Create, csr, bootstrapping, nil),
			lease(admission.Create, "kube-node-lease", "node-1", node), lease(admission.Update, "kube-node-lease", "node-1", node),
		}},
		{level: Error, effect: "the control plane stops", probes: []*probe{
			lease(admission.Update, "kube-system", "kube-controller-manager", manager), lease(admission.Update, "kube-system", "kube-scheduler", scheduler),
			request(admission.Create, core("Binding", "pods", "binding", "default", "web-0"), scheduler, nil),
			request(admission.Update, core("Pod", "pods", "status", "default", "web-0"), node, nil),
		}},
		{level: Error, effect: "pods of the system are not replaced", probes: []*probe{
			pod("kube-system", "network", "DaemonSet", &corev1.PodTemplateSpec{}),
			request(admission.Delete, core("Pod", "pods", "", "kube-system", "network-0"), controller("daemon-set-controller"), nil),
			request(admission.Create, apps("ReplicaSet", "replicasets"), controller("deployment-controller"), nil),
			request(admission.Update, apps("ReplicaSet", "replicasets"), controller("deployment-controller"), nil),
			request(admission.Create, apps("ControllerRevision", "controllerrevisions"), controller("daemon-set-controller"), nil),
		}},
	}
	start := necessity{level: Warning, effect: "an API server that has to write them at its start does not become ready, or lacks them"}
	for _, t := range []target{
		{rbac, "v1", "ClusterRole", "clusterroles", "", "", "cluster-admin"}, {rbac, "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", "cluster-admin"},
		{"scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "", "", "system-node-critical"},
		{flow, "v1", "FlowSchema", "flowschemas", "", "", "system-nodes"}, {flow, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "", "node-high"},
		{network, "v1", "ServiceCIDR", "servicecidrs", "", "", "kubernetes"}, {network, "v1", "IPAddress", "ipaddresses", "", "", "10.96.0.1"},
		core("Namespace", "namespaces", "", "", "kube-system"), core("Endpoints", "endpoints", "", "default", "kubernetes"),
		{"discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "default", "kubernetes"},
	} {
		start.probes = append(start.probes, request(admission.Create, t, apiServer, nil))
	}
	start.probes = append(start.probes, lease(admission.Create, "kube-system", "apiserver-1", apiServer))
	ranges := necessity{level: Warning, effect: "a range of service addresses gets no finalizer, or keeps it for ever after its deletion", probes: []*probe{
		request(admission.Update, target{network, "v1", "ServiceCIDR", "servicecidrs", "", "", "kubernetes"}, controller("service-cidrs-controller"), nil),
	}}
	ends := necessity{level: Warning, effect: "a namespace with one is never gone after its deletion", byUsers: true}
	finalizers := necessity{level: Warning, effect: "owners that are deleted in the foreground, and orphans, stay for ever", byUsers: true}
	for i := range p.Resources {
		r := &p.Resources[i]
		t := target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", "", "one"}
		if !slices.ContainsFunc(e.Rules, func(rule registration.Rule) bool { return slices.Contains(rule.Resources, r.Resource) }) {
			continue
		}
		if r.Namespaced {
			t.namespace = "default"
			ends.probes = append(ends.probes, request(admission.Delete, t, controller("namespace-controller"), nil))
		}
		finalizers.probes = append(finalizers.probes, request(admission.Update, t, controller("generic-garbage-collector"), nil))
	}
	return append(list, start, ranges, ends, finalizers)
}

var policyStopsCluster = &Rule{
	ID: "policy-stops-cluster", Level: Error,
	Reads: []Part{Namespaces, Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Source != registration.ValidatingPolicies || len(p.denying(e)) == 0 {
			return
		}
		p.ownParams(e)
		for _, n := range p.necessities(e) {
			var rejected []string
			why := &reasons{}
			for _, q := range n.probes {
				what := q.what + " by " + q.request.User.GetName()
				if slices.Contains(rejected, what) {
					// Another version of the kind.
					continue
				}
				if reason := p.denied(e, q); reason != "" && !(n.byUsers && p.denied(e, creation(q)) != "") {
					rejected = append(rejected, what)
					why.add(what, reason)
				}
			}
			if len(rejected) > 0 {
				p.findsAs(n.level, at(e.Entry), "the policy %s rejects the %s, whatever the content: %s; %s", e, few(rejected), n.effect, why)
			}
		}
		if p.denied(e, systemPods()) == "" {
			p.stopsPods(e)
		}
	}),
}

// creation returns the request by any user that creates the object of a probe.
func creation(q *probe) *probe {
	created := &probe{request: q.request}
	created.request.Operation, created.request.User = admission.Create, nil
	return created
}

// stopsPods finds a policy that rejects well-known pods of kube-system because of their content.
func (p *pass) stopsPods(e *snapshot.Entry) {
	var rejected []string
	why := &reasons{}
	for _, q := range wellKnownPods() {
		changed := false
		p.eachHitOf([]registration.Source{registration.MutatingPolicies, registration.Mutating}, q, mayAct, func(hit) { changed = true })
		if reason := p.denied(e, q); reason != "" && !changed {
			rejected = append(rejected, q.what)
			why.add(q.what, reason)
		}
	}
	if len(rejected) > 0 {
		p.findsAs(Warning, at(e.Entry), "the policy %s rejects the CREATE of well-known pods in namespace kube-system: %s; no new node gets them, and lost ones do not come back; %s", e, and(rejected), why)
	}
}

// reasons are the reasons why requests are rejected, each with its requests.
type reasons struct {
	texts []string
	of    map[string][]string
}

func (r *reasons) add(request, reason string) {
	if r.of == nil {
		r.of = map[string][]string{}
	}
	if r.of[reason] == nil {
		r.texts = append(r.texts, reason)
	}
	r.of[reason] = append(r.of[reason], request)
}

// String names the requests of each reason, if there are several reasons.
func (r *reasons) String() string {
	if len(r.texts) == 1 {
		return r.texts[0]
	}
	var list []string
	for _, reason := range r.texts {
		list = append(list, reason+" for "+few(r.of[reason]))
	}
	return strings.Join(list, ", and ")
}

// denied returns the reason why a policy rejects a request for any object; empty if it may allow it.
func (p *pass) denied(e *snapshot.Entry, q *probe) string {
	if !p.certainly(e, q) || !slices.ContainsFunc(p.denying(e), func(b *snapshot.Entry) bool {
		return p.certainly(b, q) && (e.Entry.Policy.ParamKind == nil || b.Binding.ParamRef != nil) && b.Enforcement == nil
	}) || e.Enforcement != nil || e.Entry.Policy.ParamKind != nil && !p.hasParams(e) {
		return ""
	}
	s := p.settingOf(q)
	var list []*fact
	for _, f := range p.factsOf(e) {
		switch {
		case f.trials == nil, f.use == other:
		case f.use == validation:
			list = append(list, f)
		case f.use == condition && f.trials.Of(p.ctx, s).Value != types.True:
			return ""
		}
	}
	rest := *s
	rest.Known.Namespace = true
	for _, f := range list {
		trial := f.trials.Of(p.ctx, &rest)
		switch {
		case trial.Value == types.False:
			return fmt.Sprintf("the validation %q is false", f.text)
		case trial.Err != nil && len(trial.If) == 0 && failsClosed(e):
			return fmt.Sprintf("the validation %q fails: %s", f.text, oneLine(trial.Err.Error()))
		}
	}
	return ""
}

// hasParams reports whether a policy certainly has params for its requests.
func (p *pass) hasParams(e *snapshot.Entry) bool {
	return !slices.ContainsFunc(p.denying(e), func(b *snapshot.Entry) bool { return b.Binding.ParamRef == nil || !b.Binding.ParamRef.DenyMissing })
}

// certainly reports whether the rules and selectors of an entry match a request whatever the object is.
func (p *pass) certainly(e *snapshot.Entry, q *probe) bool {
	switch {
	case len(e.Rules) > 0 && !matchesAny(e.Rules, &q.request), matchesAny(e.Exclude, &q.request):
		return false
	case e.ObjectSelector != nil && !e.ObjectSelector.Empty():
		return false
	case e.NamespaceSelector == nil || e.NamespaceSelector.Empty():
		return true
	}
	namespace := q.request.Namespace
	if namespace == "" {
		return true
	}
	if !p.knows(namespace) && looksAt(e.NamespaceSelector, corev1.LabelMetadataName) {
		return false
	}
	return e.NamespaceSelector.Matches(labels.Set(p.labelsOf(namespace)))
}

// settingOf returns the setting of a probe, whose object may have any content except its name and kind.
func (p *pass) settingOf(q *probe) *expression.Setting {
	r := &q.request
	s := &expression.Setting{User: r.User, RequestNamespace: &r.Namespace, Version: &r.Resource.Version, Kind: &r.Kind.Kind}
	s.Operation, s.Group, s.Resource = string(r.Operation), &r.Resource.Group, &r.Resource.Resource
	if r.User == apiServer && r.Resource.Resource != "leases" || r.User == manager || r.User == scheduler && r.Resource.Resource == "leases" {
		// The other names are examples.
		s.RequestName = &r.Name
	}
	if q.content != nil {
		s.RequestName, s.Object = &r.Name, q.content
		return s
	}
	object := &expression.Partial{Fields: map[string]any{"kind": r.Kind.Kind, "apiVersion": r.Kind.GroupVersion().String()}}
	metadata := map[string]any{}
	if r.Namespace != "" && r.Resource.Resource != "namespaces" {
		metadata["namespace"] = r.Namespace
	}
	if s.RequestName != nil {
		metadata["name"] = r.Name
	}
	object.Fields["metadata"] = &expression.Partial{Fields: metadata}
	s.Object, s.Old = object, object
	return s
}

// ownParams finds a policy that rejects the objects that it needs itself: its params, or the CRD of their kind.
func (p *pass) ownParams(e *snapshot.Entry) {
	kind := e.Entry.Policy.ParamKind
	if kind == nil || !failsClosed(e) {
		return
	}
	definition := request(admission.Create, target{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "", "", "one"}, nil, nil)
	if strings.Contains(kind.Group, ".") && !p.builtinGroup(kind.Group) && p.needs(e, definition, func(*snapshot.Entry) bool { return true }) {
		p.findsAs(Warning, at(e.Entry), "the policy %s rejects the CREATE of customresourcedefinitions while the kind of its params is not served, and with it the definition of %s", e, kindText(*kind))
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		if r.Kind != *kind {
			continue
		}
		q := request(admission.Create, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", p.someNamespace(r), "one"}, nil, nil)
		if p.needs(e, q, func(b *snapshot.Entry) bool { return b.Binding.ParamRef != nil && b.Binding.ParamRef.DenyMissing }) {
			p.findsAs(Warning, at(e.Entry), "the policy %s rejects the CREATE of %s while it has no params, and these are its params: a lost one cannot be created again", e, r.Resource)
		}
	}
}

// needs reports whether a policy evaluates a request whatever the object and the user are, by a binding that satisfies
// want.
func (p *pass) needs(e *snapshot.Entry, q *probe, want func(*snapshot.Entry) bool) bool {
	if !p.certainly(e, q) || len(e.MatchConditions) > 0 {
		return false
	}
	return slices.ContainsFunc(p.denying(e), func(b *snapshot.Entry) bool { return p.certainly(b, q) && want(b) })
}

func (p *pass) builtinGroup(group string) bool {
	return slices.ContainsFunc(p.Resources, func(r Resource) bool { return r.Group == group && !r.Custom })
}

// immortal are the namespaces that an API server does not delete.
var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

var deleteOwnKind = &Rule{
	ID: "delete-own-kind", Level: Note, Advice: "avoid-dependency-loops",
	Reads: []Part{Namespaces, Kinds, Definitions},
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		name, inside := p.serviceOf(&e.ClientConfig)
		// An API server refuses to delete the namespaces of the system.
		if !inside || !failsClosed(e) || slices.Contains(immortal, name.Namespace) || p.Partial && name.Namespace == baseNamespace {
			return
		}
		for i := range p.Resources {
			r := &p.Resources[i]
			// Most programs are about objects in the namespaces of users.
			if !r.Custom || !r.Namespaced || p.Partial && !p.Kept[Kept{r.Kind.GroupKind(), name.Namespace}] {
				continue
			}
			q := request(admission.Delete, target{r.Group, r.Version, r.Kind.Kind, r.Resource, "", name.Namespace, "one"}, controller("namespace-controller"), nil)
			for _, h := range p.hits(q, func(other *snapshot.Entry) bool { return other == e }) {
				p.findsCause(p.rule.Level, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s fails closed and intercepts the DELETE of %s in namespace %s, in which its server runs: when that namespace is deleted, the server ends first, and the namespace is never gone if it has %s%s", e.Name, r.Resource, name.Namespace, r.Resource, unless(h.unsure))
				return
			}
		}
	}),
}

var urlInCluster = &Rule{
	ID: "url-in-cluster", Level: Warning,
	check: eachClient(func(p *pass, c *client) {
		if _, named := namedService(c.ClientConfig); named && c.Service == nil {
			c.finds(p, p.rule.Level, c.under("url"), addressOf(c.ClientConfig).String(), "%s has the url of a service of the cluster, %s: an API server resolves a url with its own DNS, which knows cluster names only if it runs in a pod of the cluster; name the service in clientConfig.service", c.what, addressOf(c.ClientConfig).Host)
		}
	}),
}

var storedVersionsOld = &Rule{
	ID: "stored-versions-old", Level: Warning,
	Reads: []Part{Definitions},
	check: func(p *pass) {
		for i := range p.Conversions {
			c := &p.Conversions[i]
			old := slices.DeleteFunc(slices.Clone(c.Stored), func(version string) bool { return version == c.Storage })
			if len(old) > 0 && p.wanted(c.Object) {
				p.finds(place{c.Object, []any{"spec", "conversion"}}, "objects of %s may be stored in version %s, and the storage version is %s: while the conversion webhook cannot be reached, they cannot be read, and lists of them fail", c.Name, and(old), c.Storage)
			}
		}
	},
}

// systemPods is the probe of a pod that the cluster needs.
func systemPods() *probe {
	return pod("kube-system", "network", "DaemonSet", &corev1.PodTemplateSpec{})
}

// paramsGone adds a finding for a policy whose kind of params is in no file, if it concerns pods of the system.
func (p *pass) paramsGone(e *snapshot.Entry, kind schema.GroupVersionKind) bool {
	if !failsClosed(e) || !p.needs(e, systemPods(), func(*snapshot.Entry) bool { return true }) {
		return false
	}
	p.findsAs(Warning, at(e.Entry, "paramKind"), "no file defines %s, the kind of the params of the policy %s: while it is not served, each request that the policy is about is rejected, also the CREATE of pods in namespace kube-system", kindText(kind), e)
	return true
}
