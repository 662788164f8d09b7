package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
)

// Plugin is one link of a chain.
type Plugin struct {
	// Name identifies the plugin in metrics.
	Name string
	// Interface takes part in the passes whose interface it implements
	// (admission.MutationInterface, admission.ValidationInterface).
	Interface admission.Interface
}

// Chain joins plugins to what a server runs for every write: two passes over
// the list, in order, each ended by the first error (S9.1). The mutating pass
// is run once more when a mutating webhook changed the object (S5.16). Each
// pass and each plugin in it are measured (SEMANTICS 10).
//
// The result is safe for concurrent use if the plugins are.
func Chain(plugins ...Plugin) admission.Interface {
	links := make([]admission.Interface, len(plugins))
	for i, p := range plugins {
		links[i] = metrics.WithControllerMetrics(p.Interface, p.Name)
	}
	return metrics.WithStepMetrics(&twice{admission.NewChainHandler(links...)})
}

// chained is what the library's chain is.
type chained interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// twice runs the mutating pass again when a plugin asked for it. There is no
// third time: what a plugin asks for in the second pass stays undone.
type twice struct {
	chained
}

func (t *twice) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := t.chained.Admit(ctx, a, o); err != nil {
		return err
	}
	again := a.GetReinvocationContext()
	if !again.ShouldReinvoke() {
		return nil
	}
	again.SetIsReinvoke()
	return t.chained.Admit(ctx, a, o)
}
