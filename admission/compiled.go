package admission

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
)

// Predictor is a compiled-in plugin that can predict its verdict. Predict returns the error
// with which the plugin would reject the request, nil if it would admit it. Predict has no
// effect, except that it may change the object in the mutating pass. A plan has no verdict of a
// plugin that does not implement Predictor, or whose Predict returns ErrNotPredicted.
type Predictor interface {
	Predict(ctx context.Context, pass registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error
}

// ErrNotPredicted is the error of Predict when the plugin cannot judge the request without an
// effect.
var ErrNotPredicted = errors.New("the verdict cannot be predicted")

// Described is a compiled-in plugin that says which requests concern it. A plan and a trace
// leave out its steps on other requests.
type Described interface {
	// Concerns reports whether the plugin may change or refuse a request. Concerns must be true
	// for every request that the plugin does change or refuse.
	Concerns(a admission.Attributes) bool
	// Changes reports whether the plugin may change the object of a request that concerns it.
	// If it may, a plan and a trace show what changed.
	Changes() bool
	// Reads lists the resources that the plugin reads to judge a request; nil attributes mean
	// any request.
	Reads(a admission.Attributes) []Read
	// DependsOnOthers reports whether the verdict depends on how earlier plugins changed the
	// object.
	DependsOnOthers() bool
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

// mayChange reports whether a plugin may change the object of a request that concerns it.
func mayChange(p admission.Interface, a admission.Attributes) bool {
	d, ok := p.(Described)
	return ok && d.Changes() && a.GetObject() != nil
}

// watched finds out what compiled-in plugins change in one object. Each compares the object
// with the copy that the last comparison left, unless a plugin of an Engine ran in between:
// then a new copy is made.
type watched struct {
	before runtime.Object
	// size is about how many bytes an object takes; 0 while nothing has changed.
	size int
	// chained reports whether the last change that was returned also keeps the object of before
	// in memory.
	chained bool
	// since is how many plugins of an Engine had run when the copy was made.
	since int
}

type watchedKey struct{}

// watching returns a context that carries a watched for the object of one pass.
func watching(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchedKey{}, &watched{})
}

// remember notes how the object is before a plugin runs.
func (w *watched) remember(a admission.Attributes, since int) {
	if w.before == nil || w.since != since {
		w.before, w.since, w.chained = a.GetObject().DeepCopyObject(), since, false
	}
}

// changed returns what the plugin changed since the last call; nil for nothing. An error in
// finding the change does not fail the request.
func (w *watched) changed(a admission.Attributes, o admission.ObjectInterfaces) trace.Change {
	if objects.Same(w.before, a.GetObject()) {
		return nil
	}
	if w.size == 0 {
		w.size = objects.Size(w.before)
	}
	c := &change{before: w.before, after: a.GetObject().DeepCopyObject(), kind: a.GetKind(), interfaces: o, size: w.size}
	if !w.chained {
		c.size *= 2
	}
	w.before, w.chained = c.after, true
	return c
}

// change implements trace.Change by two objects, which never change again.
type change struct {
	before, after runtime.Object
	kind          schema.GroupVersionKind
	interfaces    admission.ObjectInterfaces
	// size is about how many bytes this change keeps in memory, without those that an earlier
	// change keeps already.
	size int
}

// Patch implements trace.Change. It returns nil when the difference cannot be computed.
func (c *change) Patch() []byte {
	patch, err := objects.Difference(c.before, c.after, c.kind, c.interfaces)
	if err != nil {
		return nil
	}
	return patch
}

// Edits implements trace.Change.
func (c *change) Edits(patch []byte) []trace.Edit {
	return objects.Edits(c.before, patch, c.kind, c.interfaces)
}

// Size implements trace.Change.
func (c *change) Size() int { return c.size }
