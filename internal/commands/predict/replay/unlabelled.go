package replay

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
)

// Unknown is a policy or webhook that selects by labels of namespaces that are not known, so that it is not known
// either whether it matches some requests.
type Unknown struct {
	By         string  `json:"by"`
	Count      int     `json:"count"`
	Namespaces []Share `json:"namespaces"`
	// First is the position of the first of the requests.
	First string `json:"first,omitempty"`

	namespaces map[string]int
}

// unlabelled finds policies and webhooks that select by unknown labels of namespaces. namespaces are the namespaces
// with unknown labels on each side, and asking has the registrations that use labels of namespaces.
type unlabelled struct {
	worlds     []*stage.Stage
	namespaces [2]map[string]bool
	asking     [2]*concerned
}

// newUnlabelled takes the objects of each side.
func newUnlabelled(worlds []*stage.Stage, namespaces [2]map[string]bool, sides [2][]*unstructured.Unstructured) *unlabelled {
	u := &unlabelled{worlds: worlds, namespaces: namespaces}
	for i, objects := range sides {
		worlds[i].Unlabelled(namespaces[i])
		u.asking[i] = &concerned{changed: changed{registrations: map[string]bool{}}, worlds: worlds[i : i+1]}
		for _, o := range objects {
			if d := registered(o); d != nil && asksForLabels(o.Object) {
				u.asking[i].registrations[configured(o, d)] = true
			}
		}
	}
	return u
}

// asksForLabels reports whether a part of a registration uses labels of namespaces.
func asksForLabels(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if selector, ok := value.(map[string]any); key == "namespaceSelector" && ok && len(selector) > 0 || asksForLabels(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, asksForLabels)
	case string:
		return strings.Contains(v, "namespaceObject")
	}
	return false
}

// by names the policies and webhooks that need the labels of a request's namespace, if these are unknown.
func (u *unlabelled) by(ctx context.Context, q *requestlog.Entry) []string {
	var list []string
	for i, w := range u.worlds {
		kind := w.Kinds().At(q.GVR())
		if kind == nil || !u.namespaces[i][q.Namespace] || !u.asking[i].by(ctx, q) {
			continue
		}
		in := planned(kind, q)
		in.Old = cmp.Or(in.Old, decoded(q.Stored), in.Object)
		if q.Apply != nil {
			in.Object = decoded(q.Apply.Configuration)
		}
		p, err := w.Plan(ctx, in)
		if err != nil {
			// A request that cannot be planned cannot be evaluated.
			continue
		}
		for s := range p.Each() {
			if s.Effect != plan.Undecided || s.Entry == nil || s.Reason == nil || !strings.Contains(s.Reason.Message, stage.UnknownLabels) {
				continue
			}
			d := rejection.Decider{Policy: s.Entry.Configuration}
			if s.Entry.Name != "" {
				d = rejection.Decider{Webhook: s.Entry.Configuration + "/" + s.Entry.Name}
			}
			list = append(list, d.Name())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// addUnknown counts a request for which labels are unknown.
func (g *gathering) addUnknown(q *requestlog.Entry, by []string) {
	if len(by) > 0 {
		g.Undecided++
	}
	for _, name := range by {
		o := g.unknown[name]
		if o == nil {
			if len(g.unknown) >= maxKept {
				continue
			}
			o = &Unknown{By: name, First: q.Place, namespaces: map[string]int{}}
			g.unknown[name] = o
		}
		o.Count++
		if _, ok := o.namespaces[q.Namespace]; ok || len(o.namespaces) < maxNames {
			o.namespaces[q.Namespace]++
		}
	}
}
