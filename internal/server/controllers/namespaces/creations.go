package namespaces

import (
	"context"
	"sync"

	"k8s.io/apiserver/pkg/admission"
)

// Creations knows in which namespaces objects are being created. An object that was
// admitted just before its namespace began to go may be stored long after that, when a
// webhook was slow: the namespace waits for it. The zero value is ready; it
// is safe for concurrent use.
type Creations struct {
	mu struct {
		sync.Mutex
		underWay map[string]int
	}
}

// UnderWay reports whether a create in the namespace was admitted and its request
// has not ended.
func (c *Creations) UnderWay(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.underWay[namespace] > 0
}

// Counting returns a plugin that does what inner does, which refuses to create
// anything in a namespace that is about to go, and counts the creates that it
// lets pass until their contexts end.
func (c *Creations) Counting(inner admission.MutationInterface) admission.MutationInterface {
	return counting{inner, c}
}

type counting struct {
	admission.MutationInterface
	creations *Creations
}

// Admit implements admission.MutationInterface. Its errors are those of inner.
func (p counting) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	namespace := a.GetNamespace()
	if namespace == "" || a.GetOperation() != admission.Create || a.IsDryRun() {
		return p.MutationInterface.Admit(ctx, a, o)
	}
	// It counts before it is judged: when the count is zero afterwards, every later
	// create is refused.
	p.creations.add(namespace, 1)
	end := func() { p.creations.add(namespace, -1) }
	if err := p.MutationInterface.Admit(ctx, a, o); err != nil {
		end()
		return err
	}
	context.AfterFunc(ctx, end)
	return nil
}

func (c *Creations) add(namespace string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.underWay == nil {
		c.mu.underWay = map[string]int{}
	}
	if c.mu.underWay[namespace] += n; c.mu.underWay[namespace] == 0 {
		delete(c.mu.underWay, namespace)
	}
}
