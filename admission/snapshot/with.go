package snapshot

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// With returns the snapshot as if some objects were stored, too. Each of them replaces the stored
// object of its kind and name. It is for plans with objects that are not stored, and for mutation
// tests.
func (s *Snapshot) With(objects []runtime.Object) *Snapshot {
	extra := Compile(Registrations{Objects: objects, Kubernetes: s.Kubernetes})
	out := *s
	out.Problems, out.sources = slices.Concat(s.Problems, extra.Problems), make([]Table, sources)
	copy(out.sources, s.sources)
	for _, d := range registration.Sources() {
		added, bindings := extra.Entries(d.Source), []*Entry(nil)
		if d.Policies {
			bindings = extra.Entries(d.Bindings)
		}
		if d.Binds || len(added)+len(bindings) == 0 {
			continue
		}
		of := map[string][]*Entry{}
		if d.Policies {
			before := s.Table(d.Bindings)
			all := replace(before.Entries()[before.manifests:], bindings)
			out.sources[d.Bindings] = Table{manifests: before.manifests, entries: slices.Concat(before.Entries()[:before.manifests], all)}
			for _, b := range all {
				of[b.Binding.PolicyName] = append(of[b.Binding.PolicyName], b)
			}
		}
		stored := s.Table(d.Source)
		t := Table{manifests: stored.manifests}
		for _, e := range stored.entries[:stored.manifests] {
			t.add(e, e.Bindings, &Table{})
		}
		for _, e := range arrange([]*compiled{{entries: replace(stored.entries[stored.manifests:], added)}}) {
			var b *Bindings
			if list := of[e.Configuration]; len(list) > 0 {
				b = newBindings(list)
			}
			t.add(e, b, &Table{})
		}
		t.file(&Table{})
		out.sources[d.Source] = t
	}
	return &out
}

// replace returns added and the entries with other names, sorted by name. Each entry is one object.
func replace(entries, added []*Entry) []*Entry {
	names := make(map[string]bool, len(added))
	for _, e := range added {
		names[e.Configuration] = true
	}
	out := slices.DeleteFunc(slices.Clone(entries), func(e *Entry) bool { return names[e.Configuration] })
	out = append(out, added...)
	slices.SortStableFunc(out, byName)
	return out
}
