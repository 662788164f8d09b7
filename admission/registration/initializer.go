package registration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// Initializer is one initializer as registered, complete with defaults. It is
// immutable after conversion.
type Initializer struct {
	// Configuration is the metadata.name of the registration object.
	Configuration string
	// ConfigurationUID and ConfigurationVersion are its uid and resourceVersion.
	ConfigurationUID     types.UID
	ConfigurationVersion string
	// Index is the position in the registration object's list, from 0.
	Index int
	// Name is the initializer's own name, as in metadata.initializers.pending.
	Name string

	// Rules say which resources it is for; any may match (S11.7). Operations are
	// empty, and Scope is "*".
	Rules []Rule
	// FailurePolicy says what happens when it does not act in time; never empty.
	FailurePolicy FailurePolicy
	// After and Before name initializers that act earlier and later than this one.
	After  []string
	Before []string
	// Parallel tells that it may act at the same time as its neighbours.
	Parallel bool
}

// String names the initializer as messages do: configuration/name.
func (i *Initializer) String() string { return i.Configuration + "/" + i.Name }

// Initializers returns the initializers that an object registers, in its order.
// Only an InitializerConfiguration, typed or unstructured, has any. They share
// memory with the object. The error says that the object cannot be read.
func Initializers(obj runtime.Object) ([]*Initializer, error) {
	obj, err := typed(obj)
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*v1alpha1.InitializerConfiguration)
	if !ok {
		return nil, nil
	}
	return initializers(&c.ObjectMeta, c.Initializers), nil
}

func initializers(meta *metav1.ObjectMeta, list []v1alpha1.Initializer) []*Initializer {
	out := make([]*Initializer, len(list))
	for i := range list {
		in := &list[i]
		out[i] = &Initializer{
			Configuration:        meta.Name,
			ConfigurationUID:     meta.UID,
			ConfigurationVersion: meta.ResourceVersion,
			Index:                i,
			Name:                 in.Name,
			Rules: each(in.Rules, func(r *v1alpha1.Rule) Rule {
				return Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources, Scope: "*"}
			}),
			FailurePolicy: FailurePolicy(or(in.FailurePolicy, v1alpha1.Ignore)),
			After:         in.After,
			Before:        in.Before,
			Parallel:      in.Parallel,
		}
	}
	return out
}
