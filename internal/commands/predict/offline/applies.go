package offline

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

// asked is the part of a request that policies of engines are matched against: kind, namespace, name and operation.
// Everything else, such as labels, may differ when the engine is called.
type asked struct {
	about *plan.About
	// mutating reports whether the engine is called in the mutating pass.
	mutating bool
	// generated are the kinds of objects that Gatekeeper generates from the request's object and evaluates, too.
	generated []string
}

// expand determines the kinds that Gatekeeper generates from the object, using the expansion templates of a cluster.
func (a *asked) expand(templates []policyObject) {
	a.generated = []string{a.about.Kind}
	for i := 0; i < len(a.generated); i++ {
		for _, t := range templates {
			kind, _ := object(t.spec["generatedGVK"])["kind"].(string)
			if kind == "" || slices.Contains(a.generated, kind) {
				continue
			}
			if slices.ContainsFunc(objectsOf(t.spec["applyTo"]), func(to map[string]any) bool { return slices.Contains(texts(to["kinds"]), a.generated[i]) }) {
				a.generated = append(a.generated, kind)
			}
		}
	}
	a.generated = a.generated[1:]
}

// reaches reports whether a policy of an engine can apply to a request. It is false only if the policy's kinds,
// namespaces, names or operations exclude the request.
func (a *asked) reaches(o *policyObject) bool {
	if o.namespace != "" && o.namespace != a.about.Namespace && !a.namespaceItself() {
		switch o.group {
		case kyverno, kyvernoPolicies:
			return false
		}
	}
	switch o.group {
	case kyverno:
		rules := objectsOf(o.spec["rules"])
		return len(rules) == 0 || slices.ContainsFunc(rules, func(rule map[string]any) bool { return a.rule(o, rule) })
	case kyvernoPolicies:
		return a.constraints(o)
	}
	return a.gatekeeper(o)
}

// namespaceItself reports whether the request is about a Namespace object: engines then match its name against
// namespaces.
func (a *asked) namespaceItself() bool {
	return a.about.Resource == "namespaces" && a.about.APIVersion == "v1"
}

// rule reports whether a rule of a ClusterPolicy or a Policy can apply.
func (a *asked) rule(o *policyObject, rule map[string]any) bool {
	changes := rule["mutate"] != nil || rule["verifyImages"] != nil
	judges := rule["validate"] != nil || rule["verifyImages"] != nil || rule["generate"] != nil || object(rule["mutate"])["targets"] != nil
	if (changes || judges) && (a.mutating && !changes || !a.mutating && !judges) {
		return false
	}
	can := func(filter map[string]any) bool { return a.filter(o, object(filter["resources"])) }
	match := object(rule["match"])
	if !can(match) {
		return false
	}
	if filters := objectsOf(match["any"]); len(filters) > 0 && !slices.ContainsFunc(filters, can) {
		return false
	}
	if slices.ContainsFunc(objectsOf(match["all"]), func(f map[string]any) bool { return !can(f) }) {
		return false
	}
	exclude := object(rule["exclude"])
	all := objectsOf(exclude["all"])
	return !a.certain(exclude) && !slices.ContainsFunc(objectsOf(exclude["any"]), a.certain) &&
		(len(all) == 0 || slices.ContainsFunc(all, func(f map[string]any) bool { return !a.certain(f) }))
}

// filter reports whether a rule's description of resources can match the request.
func (a *asked) filter(o *policyObject, resources map[string]any) bool {
	names := texts(resources["names"])
	if name, _ := resources["name"].(string); name != "" {
		names = append(names, name)
	}
	return a.anyOf(resources["kinds"], func(kind string) bool { return a.kind(kind) || a.ofTemplate(o, kind) }) &&
		(a.namespaceItself() || a.anyOf(resources["namespaces"], func(ns string) bool { return like(ns, a.about.Namespace) })) &&
		a.named(names) && a.anyOf(resources["operations"], a.operation)
}

// certain reports whether a filter of a rule's exclusion certainly matches the request. This requires that the filter
// contains only kinds, namespaces, names and operations.
func (a *asked) certain(filter map[string]any) bool {
	resources := object(filter["resources"])
	for key, value := range filter {
		if key != "resources" && key != "any" && key != "all" && value != nil {
			return false
		}
	}
	if len(resources) == 0 || a.namespaceItself() || a.about.Subresource != "" {
		return false
	}
	for key := range resources {
		given := texts(resources[key])
		ok := false
		switch key {
		case "kinds":
			ok = slices.ContainsFunc(given, func(kind string) bool {
				return kind == a.about.Kind || kind == a.about.APIVersion+"/"+a.about.Kind || kind == "*"
			})
		case "namespaces":
			ok = a.about.Namespace != "" && slices.ContainsFunc(given, func(ns string) bool { return like(ns, a.about.Namespace) })
		case "names":
			ok = a.about.Name != "" && slices.ContainsFunc(given, func(name string) bool { return like(name, a.about.Name) })
		case "operations":
			ok = slices.Contains(given, a.about.Operation)
		}
		if !ok {
			return false
		}
	}
	return true
}

// constraints reports whether the match constraints of a policy of policies.kyverno.io can match the request. Only
// resources are compared, and not groups, because equivalent resources match, too.
func (a *asked) constraints(o *policyObject) bool {
	rules := objectsOf(object(o.spec["matchConstraints"])["resourceRules"])
	return len(rules) == 0 || slices.ContainsFunc(rules, func(rule map[string]any) bool {
		return a.anyOf(rule["resources"], a.resource) && a.named(texts(rule["resourceNames"])) && a.anyOf(rule["operations"], a.operation)
	})
}

// resource reports whether a rule's resource can match the request, or matches pods of which the request's object has a
// template.
func (a *asked) resource(resource string) bool {
	name, sub, _ := strings.Cut(resource, "/")
	return name == "*" || name == a.about.Resource && (a.about.Subresource == "" || sub == a.about.Subresource || sub == "*") ||
		name == "pods" && slices.Contains(templated, a.about.Kind)
}

// gatekeeper reports whether the match field of a Gatekeeper constraint or mutator can match the request.
func (a *asked) gatekeeper(o *policyObject) bool {
	match := object(o.spec["match"])
	group := ""
	if gv, err := schema.ParseGroupVersion(a.about.APIVersion); err == nil {
		group = gv.Group
	}
	ofKind := func(groups string) func(map[string]any) bool {
		return func(k map[string]any) bool {
			return a.about.Subresource != "" ||
				a.anyOf(k[groups], func(g string) bool { return g == "*" || g == group }) &&
					a.anyOf(k["kinds"], func(kind string) bool { return kind == "*" || kind == a.about.Kind }) ||
				groups == "apiGroups" && slices.ContainsFunc(texts(k["kinds"]), func(kind string) bool { return slices.Contains(a.generated, kind) })
		}
	}
	if kinds := objectsOf(match["kinds"]); len(kinds) > 0 && !slices.ContainsFunc(kinds, ofKind("apiGroups")) {
		return false
	}
	if kinds := objectsOf(o.spec["applyTo"]); len(kinds) > 0 && !slices.ContainsFunc(kinds, ofKind("groups")) {
		return false
	}
	if name, _ := match["name"].(string); name != "" && !a.named([]string{name}) {
		return false
	}
	if a.namespaceItself() {
		return true
	}
	switch scope, _ := match["scope"].(string); {
	case scope == "Cluster" && a.about.Namespace != "", scope == "Namespaced" && a.about.Namespace == "":
		return false
	case a.about.Namespace == "":
		return true
	}
	inNamespace := func(ns string) bool { return like(ns, a.about.Namespace) }
	return a.anyOf(match["namespaces"], inNamespace) && !slices.ContainsFunc(texts(match["excludedNamespaces"]), inNamespace)
}

// templated lists the kinds for which Kyverno generates rules from rules for pods.
var templated = []string{"DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet", "CronJob"}

// autogen is the annotation that lists the kinds for which Kyverno generates such rules.
const autogen = "pod-policies.kyverno.io/autogen-controllers"

// ofTemplate reports whether Kyverno generates a rule for the request's kind from a rule for kind.
func (a *asked) ofTemplate(o *policyObject, kind string) bool {
	if !slices.Contains(templated, a.about.Kind) || !strings.Contains(kind, "Pod") {
		return false
	}
	controllers, ok := o.annotations[autogen]
	return !ok || slices.ContainsFunc(strings.Split(controllers, ","), func(c string) bool { return strings.TrimSpace(c) == a.about.Kind })
}

// kind reports whether a kind in a Kyverno rule, [[GROUP/]VERSION/]KIND[/SUBRESOURCE], can match the request. Only the
// kind is compared.
func (a *asked) kind(pattern string) bool {
	if a.about.Subresource != "" {
		return true
	}
	for _, part := range strings.Split(pattern, "/") {
		if part != "" && part[0] >= 'A' && part[0] <= 'Z' {
			part, _, _ = strings.Cut(part, ".")
			return like(part, a.about.Kind)
		}
	}
	// The pattern names no kind.
	return true
}

func (a *asked) operation(o string) bool { return o == "*" || o == a.about.Operation }

// named reports whether a name can match the object, which may get its name later.
func (a *asked) named(names []string) bool {
	return len(names) == 0 || a.about.Name == "" || slices.ContainsFunc(names, func(name string) bool { return like(name, a.about.Name) })
}

// anyOf reports whether a string in a list passes. A missing list passes.
func (a *asked) anyOf(list any, passes func(string) bool) bool {
	given := texts(list)
	return len(given) == 0 || slices.ContainsFunc(given, passes)
}

// like matches a name against a pattern of * and ?. An invalid pattern matches every name.
func like(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok || err != nil
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func objectsOf(v any) []map[string]any {
	list, _ := v.([]any)
	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// policyOf keeps the parts of a policy that are needed for matching.
func policyOf(kind schema.GroupKind, u *unstructured.Unstructured) policyObject {
	return policyObject{
		group: kind.Group, kind: kind.Kind, namespace: u.GetNamespace(), name: u.GetName(),
		annotations: u.GetAnnotations(), spec: object(u.Object["spec"]),
	}
}
