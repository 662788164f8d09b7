package registration

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

func parseInitializers(obj runtime.Object) []*Entry {
	c := obj.(*v1alpha1.InitializerConfiguration)
	entries := make([]*Entry, len(c.Initializers))
	seen := make(map[string]int, len(entries))
	for i := range c.Initializers {
		in := &c.Initializers[i]
		e := newEntry(Initializing, &c.ObjectMeta, i, in.Name, seen)
		e.Rules = each(in.Rules, creating)
		e.NamespaceSelector, e.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
		e.FailurePolicy = FailurePolicy(or(in.FailurePolicy, v1alpha1.Ignore))
		e.Initializer = &Initializer{Parallel: in.Parallel, Finalizer: in.Finalizer}
		if len(in.After)+len(in.Before) > 0 {
			e.Order = &Order{After: in.After, Before: in.Before}
		}
		entries[i] = e
	}
	return entries
}

// creating converts an initializer's rule to a rule for the creation of main resources, because
// initializers apply to nothing else (S11.7, S11.15). An entry with a slash never matches an
// initializer, except "*/*", an alternative to "*".
func creating(r *v1alpha1.Rule) Rule {
	out := Rule{Operations: []string{"CREATE"}, APIGroups: r.APIGroups, APIVersions: r.APIVersions, Scope: "*"}
	for _, entry := range r.Resources {
		switch {
		case entry == "*/*":
			out.Resources = append(out.Resources, "*")
		case !strings.Contains(entry, "/"):
			out.Resources = append(out.Resources, entry)
		}
	}
	return out
}
