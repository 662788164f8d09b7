package dispatch

import (
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
)

// identity identifies webhooks across snapshots (S5.2), and evaluations of mutating policies
// (S18.26).
type identity struct {
	configuration, name string
	ordinal             int
	static              bool
	// invocation is set for an evaluation of a policy.
	invocation plan.Invocation
}

func identityOf(h *registration.Origin) identity {
	return identity{configuration: h.Configuration, name: h.Name, ordinal: h.Ordinal, static: h.Static()}
}

// memory is the state of the first mutating pass over a request that the second pass needs. The
// request's reinvocation context keeps it under the plugin's name (S5.24).
type memory struct {
	// invoked are the webhooks that were called, may be called again, and are not marked. marked
	// are the webhooks to call in the second pass (S5.18).
	invoked []identity
	marked  []identity
	// object is the object at the end of the first pass, encoded in kind. Both are set only if
	// invoked is not empty.
	kind   schema.GroupVersionKind
	object []byte
	// share is the memory for the answers in both passes.
	share call.Share
}

// remembered returns the memory of a request; a new one in the first pass.
func remembered(rc admission.ReinvocationContext, plugin string) *memory {
	if m, ok := rc.Value(plugin).(*memory); ok {
		return m
	}
	m := &memory{}
	rc.SetValue(plugin, m)
	return m
}

// called records that a webhook was called, even if the call failed (S5.19). repeats reports
// whether the webhook may be called again, and mutated whether it changed the object. If it did,
// called marks the webhooks that were invoked earlier, but not this one (S5.18, S18.27).
func (m *memory) called(id identity, repeats, mutated bool) {
	if mutated {
		m.markInvoked()
	}
	if repeats && !slices.Contains(m.invoked, id) {
		m.invoked = append(m.invoked, id)
	}
}

func (m *memory) markInvoked() {
	for _, id := range m.invoked {
		if !slices.Contains(m.marked, id) {
			m.marked = append(m.marked, id)
		}
	}
	m.invoked = m.invoked[:0]
}

func (m *memory) isMarked(id identity) bool { return slices.Contains(m.marked, id) }

// keep stores the object at the end of the first pass.
func (m *memory) keep(s *objects.Set) error {
	if len(m.invoked) == 0 {
		return nil
	}
	// Any kind in which the object was sent can be compared.
	m.kind, _ = s.Kind()
	object, err := m.encode(s)
	m.object = object
	return err
}

// resume marks the invoked webhooks if the object has changed since the end of the first pass
// (S5.20).
func (m *memory) resume(s *objects.Set) error {
	if len(m.invoked) == 0 {
		return nil
	}
	object, err := m.encode(s)
	if err != nil {
		return err
	}
	if !bytes.Equal(object, m.object) {
		m.markInvoked()
	}
	return nil
}

func (m *memory) encode(s *objects.Set) ([]byte, error) {
	f, err := s.As(m.kind)
	if err != nil {
		return nil, err
	}
	p, err := s.Encode(f)
	if err != nil {
		return nil, err
	}
	return p.Object, nil
}
