package admission

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/objects"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Predictor is a compiled-in plugin that can say what it would reject a request with, nil
// if it would not, without any effect but, in the mutating pass, on the object. The
// verdict of other compiled-in plugins is not part of a plan, and neither is one that is
// ErrNotPredicted.
type Predictor interface {
	Predict(ctx context.Context, pass registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error
}

// ErrNotPredicted is what Predict returns when the plugin cannot judge without an effect.
var ErrNotPredicted = errors.New("the verdict cannot be predicted")

// Described is a compiled-in plugin that can tell what it is about. A plan and a trace
// leave out its steps on other requests.
type Described interface {
	// Concerns reports whether the plugin may change or refuse a request. It must not be
	// false for one that it does.
	Concerns(a admission.Attributes) bool
	// Changes reports whether the plugin may change the object of a request that it is
	// concerned with. Where it does, a plan and a trace tell what changed.
	Changes() bool
	// Reads is what the plugin reads to judge requests.
	Reads() []Read
}

// Read is a resource that a plugin reads: in the namespace of the request if Namespaced,
// and otherwise in the cluster.
type Read struct {
	schema.GroupResource
	Namespaced bool
}

// concerns reports whether a plugin may have an opinion on a request.
func concerns(p admission.Interface, a admission.Attributes) bool {
	d, ok := p.(Described)
	return !ok || d.Concerns(a)
}

// mayChange reports whether a plugin may change the object of a request that it is
// concerned with.
func mayChange(p admission.Interface, a admission.Attributes) bool {
	d, ok := p.(Described)
	return ok && d.Changes() && a.GetObject() != nil
}

// watched tells what compiled-in plugins change of one object. The copy that one plugin's
// work is compared with serves the next one, too, unless something else came between.
type watched struct {
	before runtime.Object
	// since is how many plugins of other kinds had been there when the copy was made.
	since int
}

type watchedKey struct{}

// watching returns a context in which the changes of one object are watched.
func watching(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchedKey{}, &watched{})
}

// remember notes how the object is before a plugin runs.
func (w *watched) remember(a admission.Attributes, since int) {
	if w.before == nil || w.since != since {
		w.before, w.since = a.GetObject().DeepCopyObject(), since
	}
}

// changed returns what the plugin changed since, as a JSON patch; nil for nothing. It
// cannot fail the request: a change that cannot be shown is none.
func (w *watched) changed(a admission.Attributes, o admission.ObjectInterfaces) []byte {
	patch, err := objects.Difference(w.before, a.GetObject(), a.GetKind(), o)
	if err != nil || patch != nil {
		w.before = nil
	}
	return patch
}
