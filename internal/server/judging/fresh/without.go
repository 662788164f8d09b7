package fresh

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Without returns a Reader that leaves out kinds whose versions are all switched off: such a
// kind counts as empty and causes no error (S11.12). Registrations stay stored.
func Without(reader snapshot.Reader, kinds []string) snapshot.Reader {
	if len(kinds) == 0 {
		return reader
	}
	return &filtered{Reader: reader, hidden: kinds}
}

// filtered is a Reader without some kinds.
type filtered struct {
	snapshot.Reader
	hidden []string
}

// Read implements snapshot.Reader.
func (f *filtered) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	found, err := f.Reader.Read(ctx, since)
	if err != nil {
		return found, err
	}
	found.Disabled = slices.Concat(found.Disabled, f.hidden)
	found.Changes = slices.DeleteFunc(slices.Clone(found.Changes), func(c snapshot.Change) bool {
		return slices.Contains(f.hidden, c.Source.Descriptor().Kind)
	})
	if found.Kept != nil {
		found.Kept = slices.DeleteFunc(found.Kept, func(k snapshot.Kept) bool {
			return slices.Contains(f.hidden, k.Source.Descriptor().Kind)
		})
	}
	served := func(objects []runtime.Object) []runtime.Object {
		return slices.DeleteFunc(slices.Clone(objects), func(obj runtime.Object) bool {
			source, ok := registration.SourceOf(obj)
			return ok && slices.Contains(f.hidden, source.Descriptor().Kind)
		})
	}
	found.Objects = served(found.Objects)
	if rest := found.Rest; rest != nil {
		found.Rest = func(ctx context.Context, take func([]runtime.Object)) error {
			return rest(ctx, func(objects []runtime.Object) { take(served(objects)) })
		}
	}
	return found, nil
}
