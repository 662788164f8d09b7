package snapshot

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// Manifest is a webhook configuration, policy or binding in a file (S21).
type Manifest struct {
	runtime.Object
	// File is the path of the file; it must be set.
	File string
}

// Local has the manifest files and exclusion rules, which do not come from the API. It is
// immutable. Nil has neither.
type Local struct {
	static *Snapshot
	hashes map[string]string
	// exclusions are the exclusion rules of the server.
	exclusions *exclusion.Rules
}

// NewLocal compiles manifests in any order. They must contain the policy of each binding, and no
// two objects with the same name and kind. hashes identify the state of the files, by plugin. The
// error names an object that cannot be parsed; this happens only to objects that were not
// validated.
func NewLocal(manifests []Manifest, hashes map[string]string) (*Local, error) {
	var c Compiler
	for _, m := range manifests {
		source, _ := registration.SourceOf(m.Object)
		c.put(id{source: source, name: nameOf(m.Object)}, m.Object, m.File)
		if errs := c.problems(); errs != nil {
			return nil, fmt.Errorf("%s: %w", m.File, errs[0])
		}
	}
	static := c.assemble(&Registrations{})
	for i := range static.sources {
		static.sources[i].manifests = len(static.sources[i].Entries())
	}
	l := &Local{static: static, hashes: hashes}
	static.local = l
	return l, nil
}

// WithExclusions returns a copy of l with the given exclusion rules.
func (l *Local) WithExclusions(rules *exclusion.Rules) *Local {
	out := &Local{exclusions: rules}
	if l != nil {
		out.hashes = l.hashes
	}
	if static := l.Static(); static != nil {
		again := *static
		again.local = out
		out.static = &again
	}
	return out
}

// Static returns the snapshot of the manifests; nil if there are none.
func (l *Local) Static() *Snapshot {
	if l == nil {
		return nil
	}
	return l.static
}

// Hashes returns the hash of the manifest files of each plugin that has any (S21.23). The caller
// must not change it.
func (l *Local) Hashes() map[string]string {
	if l == nil {
		return nil
	}
	return l.hashes
}

// Names returns the names of the objects of the manifests, as resource.name, in order.
func (l *Local) Names() []string {
	static := l.Static()
	if static == nil {
		return nil
	}
	var names []string
	for source := range static.sources {
		resource := registration.Source(source).Descriptor().Resource
		for _, e := range static.sources[source].Entries() {
			names = append(names, resource+"."+e.Configuration)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// IsStatic reports whether an object has a name that is reserved for manifest files (S21.8,
// S13.13).
func IsStatic(obj runtime.Object) bool {
	m, ok := obj.(metav1.Object)
	return ok && registration.IsStaticName(m.GetName())
}
