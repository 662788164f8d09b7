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
	// Reads is what the plugin reads to judge a request; nil attributes mean any request.
	Reads(a admission.Attributes) []Read
	// DependsOnOthers reports whether the verdict depends on what the plugins before this
	// one made of the object.
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

// mayChange reports whether a plugin may change the object of a request that it is
// concerned with.
func mayChange(p admission.Interface, a admission.Attributes) bool {
	d, ok := p.(Described)
	return ok && d.Changes() && a.GetObject() != nil
}

// watched says what compiled-in plugins change of one object. The copy that one plugin's
// work is compared with serves the next one, too, unless something else came between.
type watched struct {
	before runtime.Object
	// size is about how many bytes an object takes; 0 while nothing has changed.
	size int
	// chained reports whether the change that was returned last keeps before in memory, too.
	chained bool
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

// change implements trace.Change by two objects that nobody changes any more.
type change struct {
	before, after runtime.Object
	kind          schema.GroupVersionKind
	interfaces    admission.ObjectInterfaces
	// size is how many bytes this change keeps in memory that no change before it keeps.
	size int
}

// Patch implements trace.Change. A change that cannot be shown is none.
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
