package snapshot

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// Manifest is a registration object of a file (S21).
type Manifest struct {
	runtime.Object
	// File is the path of the file; it must be set.
	File string
}

// Local is what judges requests and does not come from the API. It is immutable, and its
// nil value is nothing.
type Local struct {
	static *Snapshot
	hashes map[string]string
	// exclusions are those of the server.
	exclusions *exclusion.Rules
}

// NewLocal compiles manifests, which may come in any order. A binding must find its policy
// among them, and there must be one object of a name and kind. hashes say which state of the
// files they are, by plugin. The error names the object that cannot be read; only one that
// was not validated has one.
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

// WithExclusions returns what is local with exclusion rules in place of those that it has.
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

// Static returns what the manifests register; nil for nothing.
func (l *Local) Static() *Snapshot {
	if l == nil {
		return nil
	}
	return l.static
}

// Hashes returns the hash of the manifest files of each plugin that has some (S21.23). The
// caller must not change it.
func (l *Local) Hashes() map[string]string {
	if l == nil {
		return nil
	}
	return l.hashes
}

// Names returns the registration objects of the manifests, as resource.name, in order.
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

// IsStatic reports whether an object has a name that only objects of manifest files have
// (S21.8, S13.13).
func IsStatic(obj runtime.Object) bool {
	m, ok := obj.(metav1.Object)
	return ok && registration.IsStaticName(m.GetName())
}
