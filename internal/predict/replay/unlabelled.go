package replay

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/predict/requestlog"
	"github.com/gatehouse-dev/gatehouse/internal/predict/stage"
)

// Unknown is a policy or webhook that asks for labels of namespaces which are not known: whether it
// concerns some requests is not known, either.
type Unknown struct {
	By         string  `json:"by"`
	Count      int     `json:"count"`
	Namespaces []Share `json:"namespaces"`
	// First is where the first of the requests is.
	First string `json:"first,omitempty"`

	namespaces map[string]int
}

// unlabelled finds out who asks for labels that are not known. The namespaces are those of each world, and
// asking has the registrations that ask for labels.
type unlabelled struct {
	worlds     []*stage.Stage
	namespaces [2]map[string]bool
	asking     [2]*concerned
}

// newUnlabelled takes the objects of each world.
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

// asksForLabels reports whether a part of a registration asks for labels of namespaces.
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

// by names who asks for the labels of the namespace of a request.
func (u *unlabelled) by(ctx context.Context, q *requestlog.Request) []string {
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
			// A request that cannot be planned cannot be judged.
			continue
		}
		for s := range p.Each() {
			if s.Effect != plan.Undecided || s.Entry == nil || s.Reason == nil || !strings.Contains(s.Reason.Message, stage.UnknownLabels) {
				continue
			}
			d := stage.Decider{Policy: s.Entry.Configuration}
			if s.Entry.Name != "" {
				d = stage.Decider{Webhook: s.Entry.Configuration + "/" + s.Entry.Name}
			}
			list = append(list, d.Name())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// addUnknown counts a request that asks for labels that are not known.
func (g *gathering) addUnknown(q *requestlog.Request, by []string) {
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
