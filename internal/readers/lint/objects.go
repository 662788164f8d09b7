package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var invalid = &Rule{
	ID: "invalid", Level: Error,
	check: func(p *pass) {
		for o, w := range p.Written {
			for _, i := range w.Invalid {
				if !strings.Contains(i.Field, "xpression") {
					p.finds(place{o, parsePath(i.Field)}, "an API server would refuse %s: %s", o, oneLine(i.Message))
				}
			}
		}
	},
}

var unknownField = &Rule{
	ID: "unknown-field", Level: Error,
	check: func(p *pass) {
		for o, w := range p.Written {
			for _, u := range w.Unknown {
				p.finds(place{o, parsePath(u.Field)}, "%s has the unknown field %s%s: kubectl refuses it, and an API server drops it for clients that do not validate", o, u.Field, u.Message)
			}
		}
	},
}

// oneLine joins the lines of a text to one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// parsePath parses the path of a field in an error, such as webhooks[0].rules[1].
func parsePath(text string) []any {
	var path []any
	for _, step := range strings.FieldsFunc(text, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if n, err := strconv.Atoi(step); err == nil {
			path = append(path, n)
		} else {
			path = append(path, step)
		}
	}
	return path
}

var registrationOld = &Rule{
	ID: "registration-old", Level: Warning,
	check: func(p *pass) {
		for _, o := range slices.SortedFunc(maps.Keys(p.Written), compareObjects) {
			version := strings.TrimPrefix(p.Written[o].APIVersion, registration.GroupName+"/")
			i := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool { return d.Kind == o.Kind })
			if version == "" || i < 0 {
				continue
			}
			newest, served := registration.Sources()[i].Versions[0], p.servesNewest(&registration.Sources()[i])
			switch where := (place{o, []any{"apiVersion"}}); {
			case version != newest && served:
				since := ""
				if strings.HasPrefix(o.Kind, "MutatingAdmissionPolicy") {
					since = ", which API servers serve from Kubernetes 1.36 on, and " + version + " only if it is turned on"
				}
				p.findsCause(p.rule.Level, where, "written "+version, o.String(), "%s is written as %s; write it as %s%s", o, version, newest, since)
			case version == newest && !served:
				p.findsCause(p.rule.Level, where, "written "+version, o.String(), "%s is written as %s, which this release of Kubernetes does not serve", o, version)
			}
		}
		p.webhooks(func(e *snapshot.Entry) {
			if e.Source != registration.External && !slices.Contains(e.ReviewVersions, "v1") && !p.byOldDefault(e.Entry, "admissionReviewVersions") {
				p.findsCause(p.rule.Level, at(e.Entry, "admissionReviewVersions"), and(e.ReviewVersions), "the webhook "+e.Name, "the webhook %s takes reviews of version %s only, not of v1", e.Name, and(e.ReviewVersions))
			}
		})
	},
}

// servesNewest reports whether the API serves registrations of a kind in v1, if their newest version is v1.
func (p *pass) servesNewest(d *registration.Descriptor) bool {
	return d.Versions[0] != "v1" || !p.sees(Kinds) || slices.ContainsFunc(p.Resources, func(r Resource) bool {
		return r.Group == registration.GroupName && r.Resource == d.Resource && r.Version == d.Versions[0]
	})
}

var registrationWritable = &Rule{
	ID: "registration-writable", Level: Error, Advice: "limit-edit-access",
	Reads: []Part{Access},
	check: func(p *pass) {
		servers := map[string]string{}
		for _, source := range hooks {
			for _, e := range p.Snapshot.Entries(source) {
				if name, inside := p.serviceOf(&e.ClientConfig); inside && servers[name.Namespace] == "" {
					servers[name.Namespace] = e.String()
				}
			}
		}
		for i := range p.Grants {
			g := &p.Grants[i]
			if !slices.Contains(everybody, g.Group) {
				continue
			}
			where := place{g.Binding, []any{"subjects"}}
			if g.Binding.Namespace == "" {
				if resource := writableRegistration(g.Rules); resource != "" {
					p.finds(where, "the group %s may change %s, by %s and the role %s", g.Group, resource, g.Binding, g.Role)
				}
				continue
			}
			if hook := servers[g.Binding.Namespace]; hook != "" && writesPods(g.Rules) {
				p.finds(where, "the group %s may change what runs in namespace %s, where the server of the webhook %s is, by %s and the role %s",
					g.Group, g.Binding.Namespace, hook, g.Binding, g.Role)
			}
		}
	},
}

// everybody are the users and groups that include many users, such as all authenticated ones.
var everybody = []string{"system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccounts"}

var writes = []string{"*", "create", "update", "patch", "delete", "deletecollection"}

func writesAny(r *rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(r.Verbs, func(v string) bool { return slices.Contains(writes, v) })
}

// writableRegistration returns a kind of registration that the rules allow to write.
func writableRegistration(rules []rbacv1.PolicyRule) string {
	for i := range rules {
		r := &rules[i]
		if !writesAny(r) || !slices.Contains(r.APIGroups, "*") && !slices.Contains(r.APIGroups, registration.GroupName) {
			continue
		}
		for _, d := range registration.Sources() {
			if slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, d.Resource) {
				return d.Resource
			}
		}
	}
	return ""
}

// writesPods reports whether the rules allow to write pods or workloads.
func writesPods(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return writesAny(&r) && slices.ContainsFunc(r.Resources, func(resource string) bool {
			return slices.Contains([]string{"*", "pods", "deployments", "daemonsets", "statefulsets", "replicasets"}, resource)
		})
	})
}

var duplicate = &Rule{
	ID: "duplicate", Level: Warning, Advice: "design-admission-webhooks-low-latency",
	check: func(p *pass) {
		first := map[string]*snapshot.Entry{}
		for _, d := range registration.Sources() {
			for _, e := range p.Snapshot.Entries(d.Source) {
				key := essence(e)
				if key == "" || p.patched(e) {
					continue
				}
				other := first[key]
				if other == nil {
					first[key] = e
					continue
				}
				p.finds(at(e.Entry), "%s %s says the same as %s", kindOf(e), e, other)
			}
		}
	},
}

// kindOf returns a word for the kind of an entry.
func kindOf(e *snapshot.Entry) string {
	switch {
	case e.Binding != nil:
		return "the binding"
	case e.Entry.Policy != nil:
		return "the policy"
	case e.Initializer != nil:
		return "the initializer"
	}
	return "the webhook"
}

// essence returns a text of an entry's matching and effect, without its name, to find duplicates.
// It is empty for an entry that may exist twice.
func essence(e *snapshot.Entry) string {
	var does any
	switch {
	case e.Webhook != nil && len(e.Rules) > 0:
		// A webhook without rules receives no requests, and its program may set them.
		does = e.ClientConfig
	case e.Binding != nil:
		does = e.Binding
	default:
		return ""
	}
	text, err := json.Marshal([]any{e.Match, does})
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %s", e.Source, text)
}
