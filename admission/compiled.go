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

// Predictor is a built-in admission plugin that can predict its verdict. Predict returns the error
// with which the plugin would reject the request; nil if it would admit it. Predict has no effect,
// except that it may change the object in the mutating pass. A plan has no verdict of a plugin that
// does not implement Predictor, or whose Predict returns ErrNotPredicted.
type Predictor interface {
	Predict(ctx context.Context, pass registration.Pass, a admission.Attributes, o admission.ObjectInterfaces) error
}

// ErrNotPredicted is the error of Predict if the plugin cannot evaluate the request without an
// effect.
var ErrNotPredicted = errors.New("the verdict cannot be predicted")

// Described is a built-in admission plugin that reports which requests concern it. Plans and traces
// leave out its steps for other requests.
type Described interface {
	// Concerns reports whether the plugin may change or reject a request. Concerns must be true for
	// every request that the plugin changes or rejects.
	Concerns(a admission.Attributes) bool
	// Changes reports whether the plugin may change the object of a request that concerns it. If
	// so, plans and traces include the change.
	Changes() bool
	// Reads lists the resources that the plugin reads to evaluate a request; nil attributes mean
	// any request.
	Reads(a admission.Attributes) []Read
	// DependsOnOthers reports whether the verdict depends on changes by earlier plugins.
	DependsOnOthers() bool
}

// Confined is a Described that changes only certain fields. Traces compare these fields alone after each such
// plugin, and the whole object once after the last plugin before the next plugin of an Engine. A change of another
// field is a step of its own, named Undeclared.
type Confined interface {
	// Fields lists the fields that the plugin may change: paths of Go field names from the object's type, joined
	// by dots, such as Spec.Tolerations. Paths that a type lacks have no effect; nil means all fields.
	Fields() []string
}

// Undeclared is the name of the step for a change that is outside of the fields of Confined plugins.
const Undeclared = "UndeclaredChange"

// Read is a resource that a plugin reads: in the namespace of the request if Namespaced, and
// otherwise in the cluster.
type Read struct {
	schema.GroupResource
	Namespaced bool
}

// concerns reports whether a plugin may change or reject a request.
func concerns(p admission.Interface, a admission.Attributes) bool {
	d, ok := p.(Described)
	return !ok || d.Concerns(a)
}

// mayChange reports whether a plugin may change the object of a request that concerns it.
func mayChange(p admission.Interface, a admission.Attributes) bool {
	d, ok := p.(Described)
	return ok && d.Changes() && a.GetObject() != nil
}

// watched detects the changes of one object by built-in admission plugins. It compares the object
// with the copy from the previous comparison, unless a plugin of an Engine ran in between: then a
// new copy is made.
type watched struct {
	before runtime.Object
	// size estimates the size of an object in bytes; 0 while nothing has changed.
	size int
	// chained reports whether the last returned change also keeps the previous object in memory.
	chained bool
	// since is the number of plugins of an Engine that had run when the copy was made.
	since int
	// confined reports whether only some fields were compared since the copy was made.
	confined bool
}

type watchedKey struct{}

// watching returns a context that carries a watched for the object of one pass.
func watching(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchedKey{}, &watched{})
}

// remember keeps a copy of the object before a plugin runs.
func (w *watched) remember(a admission.Attributes, since int) {
	if w.before == nil || w.since != since {
		w.before, w.since, w.chained, w.confined = a.GetObject().DeepCopyObject(), since, false, false
	}
}

// changedBy returns the change by a plugin; nil if there is none.
func (w *watched) changedBy(p admission.Interface, a admission.Attributes, o admission.ObjectInterfaces) trace.Change {
	c, ok := p.(Confined)
	if !ok || c.Fields() == nil {
		return w.changed(a, o)
	}
	w.confined = true
	if objects.SameFields(w.before, a.GetObject(), c.Fields()) {
		return nil
	}
	return w.to(objects.WithFields(w.before, a.GetObject(), c.Fields()), a, o)
}

// changed returns the change since the copy was made; nil if there is none. If the change cannot be
// computed, the request does not fail.
func (w *watched) changed(a admission.Attributes, o admission.ObjectInterfaces) trace.Change {
	w.confined = false
	if objects.Same(w.before, a.GetObject()) {
		return nil
	}
	return w.to(a.GetObject().DeepCopyObject(), a, o)
}

// to returns the change to a copy of the object, which the next comparison uses.
func (w *watched) to(after runtime.Object, a admission.Attributes, o admission.ObjectInterfaces) trace.Change {
	if w.size == 0 {
		w.size = objects.Size(w.before)
	}
	c := &change{before: w.before, after: after, kind: a.GetKind(), interfaces: o, size: w.size}
	if !w.chained {
		c.size *= 2
	}
	w.before, w.chained = c.after, true
	return c
}

// change implements trace.Change with two objects that no longer change.
type change struct {
	before, after runtime.Object
	kind          schema.GroupVersionKind
	interfaces    admission.ObjectInterfaces
	// size estimates the memory, in bytes, that this change keeps and no earlier change does.
	size int
}

// Patch implements trace.Change. It returns nil if the difference cannot be computed.
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
