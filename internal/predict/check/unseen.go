package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// Unseen is a part of the cluster that was not read.
type Unseen struct {
	// Resource is PLURAL or PLURAL.GROUP, or names an object; Reason says why it was not read.
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	// Missing says what did not take part in the verdicts because of it.
	Missing string `json:"missing,omitempty"`
	// Objects is how many objects may have another verdict because of it. Allowed reports whether
	// Options.AllowUnseen accepts that.
	Objects int  `json:"objects"`
	Allowed bool `json:"allowed,omitempty"`

	// LeftOut is the object of the snapshot that the server does not take, and Why is what the server
	// says; nil for what was not read.
	LeftOut *unstructured.Unstructured `json:"-"`
	Why     string                     `json:"-"`
	// concerns reports whether it can change the verdict on an object.
	concerns func(*task) bool
}

// EverythingUnseen is the element of Options.AllowUnseen that stands for all resources.
const EverythingUnseen = "*"

// Text says what was not seen and what follows.
func (u *Unseen) Text() string {
	s := u.Resource + ": " + u.Reason
	if u.Missing != "" {
		s += "; " + u.Missing
	}
	return s
}

// finding returns the message of a finding: what follows for the verdicts, and what to do.
func (u *Unseen) finding() string {
	objects := "1 object"
	if u.Objects != 1 {
		objects = fmt.Sprintf("%d objects", u.Objects)
	}
	return fmt.Sprintf("%s: the verdict on %s may be another one; let the reader list them, or accept it with --allow-unseen=%s", u.Text(), objects, u.Resource)
}

// blind lists, by resource, the default plugins that read a resource that the snapshot does not
// have. They would refuse objects because that resource was not read.
func blind(s *clustersnapshot.Snapshot) map[string][]*plugins.Plugin {
	blinded := map[string][]*plugins.Plugin{}
	for _, p := range plugins.All() {
		for _, read := range p.Reads {
			_, ok := s.HasNot(read.GroupResource)
			if !ok || !p.Default && p.Name != serviceAccountPlugin || read.Resource == "namespaces" || read.Resource == "pods" {
				continue
			}
			blinded[read.GroupResource.String()] = append(blinded[read.GroupResource.String()], &p)
			break
		}
	}
	return blinded
}

// unseen lists the parts of the cluster that the snapshot does not have.
func (r *run) unseen() []*Unseen {
	var list []*Unseen
	blinded := blind(r.Snapshot)
	for _, not := range r.Snapshot.Unread {
		resource := schema.ParseGroupResource(not.Resource)
		u := &Unseen{Resource: not.Resource, Reason: not.Reason, concerns: everyObject}
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
			u.concerns = func(t *task) bool {
				return slices.ContainsFunc(blinded[not.Resource], func(p *plugins.Plugin) bool { return judges(p, t) })
			}
		case source >= 0 && registration.Sources()[source].Policies:
			u.Missing = "admission policies did not judge"
		case source >= 0:
			u.Missing = "what is registered there is not known"
		case resource == schema.GroupResource{Resource: "namespaces"}:
			u.Missing = "every namespace was taken to exist and to have no labels, also for PodSecurity"
			u.concerns = func(t *task) bool { return t.namespace != "" }
		case resource.Group == extensions:
			u.Missing = "custom resources are not known"
			u.concerns = func(t *task) bool { return t.kind == nil || t.kind.Guessed }
		case resource.Group == rbac:
			u.Missing = "the rights of users are not known"
			u.concerns = func(*task) bool { return r.As != "" }
		case resource.Resource == "volumeattributesclasses":
			// No plugin reads these objects.
			u.concerns = func(*task) bool { return false }
		case resource.Resource == "servicecidrs":
			u.Missing = "the cluster IPs of services were taken to come from " + serviceRange
			u.concerns = func(t *task) bool { return t.stage == fixed }
		case resource.Group == "resource.k8s.io":
			u.concerns = func(t *task) bool { return t.kind != nil && t.kind.Resource.Group == "resource.k8s.io" }
		case not.Resource == "discovery":
			u.concerns = func(t *task) bool { return t.kind == nil || t.kind.Guessed }
		}
		list = append(list, u)
	}
	return list
}

func everyObject(*task) bool { return true }

// judges reports whether a plugin may change or refuse the operation on an object.
func judges(p *plugins.Plugin, t *task) bool {
	if t.kind == nil || t.unchanged {
		return false
	}
	operation := apiadmission.Create
	switch {
	case t.removed:
		operation = apiadmission.Delete
	case t.stored:
		operation = apiadmission.Update
	}
	is := func(pattern, name string) bool { return pattern == "*" || pattern == name }
	return slices.ContainsFunc(p.About, func(a plugins.About) bool {
		return is(a.Group, t.kind.Resource.Group) && is(a.Resource, t.kind.Resource.Resource) && (a.Subresource == "" || a.Subresource == "*") &&
			(a.Operations == nil || slices.Contains(a.Operations, operation)) &&
			(!a.Namespaced || t.namespace != "")
	})
}

// leftOut notes an object of the snapshot that this server does not take.
func (r *run) leftOut(u *unstructured.Unstructured, why string) {
	r.report.Unseen = append(r.report.Unseen, &Unseen{
		Resource: title(u.GetKind(), u.GetNamespace(), u.GetName()), Reason: "the snapshot's was left out: " + why, LeftOut: u, Why: why,
		concerns: func(t *task) bool { return u.GetNamespace() == "" || t.namespace == u.GetNamespace() },
	})
}

// weighUnseen counts for each unseen part how many objects it concerns, after all objects are
// judged. It reports the parts that concern any object.
func (r *run) weighUnseen() {
	for _, u := range r.report.Unseen {
		for _, t := range slices.Concat(r.tasks, r.removed) {
			if t.result.Verdict != NotJudged && u.concerns(t) {
				u.Objects++
			}
		}
		u.Allowed = slices.ContainsFunc(r.AllowUnseen, func(allowed string) bool {
			return allowed == EverythingUnseen || strings.EqualFold(allowed, u.Resource) || strings.EqualFold(allowed, strings.Split(u.Resource, ".")[0])
		})
		if u.Objects > 0 && !u.Allowed {
			r.report.Findings = append(r.report.Findings, report.Finding{Level: report.Error, Rule: ruleUnseen, Message: u.finding()})
		}
	}
	slices.SortFunc(r.report.Unseen, func(a, b *Unseen) int { return cmp.Compare(a.Resource, b.Resource) })
}
