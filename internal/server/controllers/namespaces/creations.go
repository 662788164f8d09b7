package namespaces

import (
	"context"
	"sync"

	"k8s.io/apiserver/pkg/admission"
)

// Creations tracks the namespaces in which objects are being created. When a webhook is slow, an
// object that was admitted just before the deletion of its namespace began may be stored long after
// that: the namespace waits for such objects. The zero value is ready. Creations is safe for
// concurrent use.
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

// Counting returns a plugin that decides like inner, and counts the creates that inner admits until
// their contexts end. inner refuses to create objects in a namespace that is being deleted.
func (c *Creations) Counting(inner admission.MutationInterface) admission.MutationInterface {
	return counting{inner, c}
}

type counting struct {
	admission.MutationInterface
	creations *Creations
}

// Admit implements admission.MutationInterface. It returns the errors of inner.
func (p counting) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	namespace := a.GetNamespace()
	if namespace == "" || a.GetOperation() != admission.Create || a.IsDryRun() {
		return p.MutationInterface.Admit(ctx, a, o)
	}
	// A create counts before inner evaluates it: if the count is zero after the deletion began,
	// inner refuses every later create.
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
