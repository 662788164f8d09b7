package stage

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// Unseen is a part of the cluster that a Stage does not have.
type Unseen struct {
	// Resource is PLURAL or PLURAL.GROUP, or names an object; Reason is the reason why the Stage does not have it.
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	// Missing describes the plugins or objects that verdicts therefore ignore, or the facts that they assume.
	Missing string `json:"missing,omitempty"`

	// concerns reports whether the missing part can change the verdict on a request.
	concerns func(*About) bool
}

// About describes a request for an object in a phase.
type About struct {
	Kind      *offline.Kind
	Namespace string
	Phase     order.Phase
	// Operation is empty for an object that does not change.
	Operation apiadmission.Operation
	// Authorized reports whether the user's rights matter.
	Authorized bool
}

// Concerns reports whether the missing part could change the verdict on a request.
func (u *Unseen) Concerns(a *About) bool { return u.concerns(a) }

// Text describes the missing part and the consequences.
func (u *Unseen) Text() string {
	text := u.Resource + ": " + u.Reason
	if u.Missing != "" {
		text += "; " + u.Missing
	}
	return text
}

// LeftOut describes an object of a snapshot that the server rejected.
func LeftOut(r *Refused) Unseen {
	namespace := r.Object.GetNamespace()
	return Unseen{
		Resource: report.Title(r.Object.GetKind(), namespace, r.Object.GetName()), Reason: "the snapshot's was left out: " + r.Status.Message,
		concerns: func(a *About) bool { return namespace == "" || a.Namespace == namespace },
	}
}

// blind lists, by resource, the default plugins that read a resource missing from the snapshot. They would reject
// objects because the resource was not read.
func blind(s *clustersnapshot.Cluster) map[string][]*plugins.Plugin {
	blinded := map[string][]*plugins.Plugin{}
	for _, p := range plugins.All() {
		for _, read := range p.Reads {
			not := s.Missing(read.GroupResource)
			if not == nil || len(not.Namespaces) > 0 || !p.Default && p.Name != serviceAccountPlugin || read.Resource == "namespaces" || read.Resource == "pods" {
				continue
			}
			blinded[read.GroupResource.String()] = append(blinded[read.GroupResource.String()], &p)
			break
		}
	}
	return blinded
}

// Unseen lists the parts of the cluster that the snapshot does not have.
func (s *Stage) Unseen() []Unseen {
	if s.Snapshot == nil {
		return nil
	}
	var list []Unseen
	blinded := blind(s.Snapshot)
	for _, not := range s.Snapshot.Unread {
		resource := schema.ParseGroupResource(not.Resource)
		u := Unseen{Resource: not.Resource, Reason: not.Reason, concerns: everyObject}
		source := slices.IndexFunc(registration.Sources(), func(d registration.Descriptor) bool {
			return resource == schema.GroupResource{Group: registration.GroupName, Resource: d.Resource}
		})
		switch {
		case len(blinded[not.Resource]) > 0:
			var names []string
			for _, p := range blinded[not.Resource] {
				names = append(names, p.Name)
			}
			u.Missing = strings.Join(names, ", ") + " did not run"
			u.concerns = func(a *About) bool {
				return slices.ContainsFunc(blinded[not.Resource], func(p *plugins.Plugin) bool { return judges(p, a) })
			}
		case source >= 0 && registration.Sources()[source].Policies:
			u.Missing = "admission policies were not evaluated"
		case source >= 0:
			u.Missing = "registrations there are not known"
		case resource == schema.GroupResource{Resource: "namespaces"}:
			u.Missing = "every namespace was taken to exist and to have no labels, also for PodSecurity"
			u.concerns = func(a *About) bool { return a.Namespace != "" }
		case resource.Group == order.Extensions:
			u.Missing = "custom resources are not known"
			u.concerns = func(a *About) bool { return a.Kind == nil || a.Kind.Guessed }
		case resource.Group == order.RBAC:
			u.Missing = "the rights of users are not known"
			u.concerns = func(a *About) bool { return a.Authorized }
		case resource.Resource == "volumeattributesclasses":
			// No plugin reads these objects.
			u.concerns = func(*About) bool { return false }
		case resource.Resource == "servicecidrs":
			u.Missing = "the cluster IPs of services were taken to come from " + ServiceRange.String()
			u.concerns = func(a *About) bool { return a.Phase == order.Fixed }
		case resource.Group == "resource.k8s.io":
			u.concerns = func(a *About) bool { return a.Kind != nil && a.Kind.Resource.Group == "resource.k8s.io" }
		case not.Resource == "discovery":
			u.concerns = func(a *About) bool { return a.Kind == nil || a.Kind.Guessed }
		}
		if in := not.Namespaces; len(in) > 0 {
			concerns := u.concerns
			u.Missing = "only namespace " + strings.Join(in, ", ") + " is known"
			u.concerns = func(a *About) bool { return a.Namespace != "" && !slices.Contains(in, a.Namespace) && concerns(a) }
		}
		list = append(list, u)
	}
	return list
}

func everyObject(*About) bool { return true }

// judges reports whether a plugin may change or reject a request.
func judges(p *plugins.Plugin, q *About) bool {
	if q.Kind == nil || q.Operation == "" {
		return false
	}
	is := func(pattern, name string) bool { return pattern == "*" || pattern == name }
	return slices.ContainsFunc(p.About, func(a plugins.About) bool {
		return is(a.Group, q.Kind.Resource.Group) && is(a.Resource, q.Kind.Resource.Resource) && (a.Subresource == "" || a.Subresource == "*") &&
			(a.Operations == nil || slices.Contains(a.Operations, q.Operation)) &&
			(!a.Namespaced || q.Namespace != "")
	})
}
