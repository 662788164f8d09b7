package initialization

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Reading selects the objects that a client's read may see, and whether it may repair them.
type Reading struct {
	// Hide hides uninitialized objects from the read (S11.31 to S11.33): lists leave them out, a
	// get does not find them, and a watch reports an object as added when its initialization is
	// complete.
	Hide bool
	// Show decides whether a get shows an object in spite of Hide. It is called only for
	// uninitialized objects, with their field. Nil means no.
	Show func(*initializers.Initializers) bool
	// Repair makes a get repair an object that has been uninitialized for too long,
	// before anything else (S11.50).
	Repair bool
}

// shows reports whether a get may see an uninitialized object.
func (r *Reading) shows(obj runtime.Object) bool {
	if !r.Hide {
		return true
	}
	field, err := initializers.Get(obj)
	return err == nil && r.Show != nil && r.Show(field)
}

type readerKey struct{}

// WithReading returns the context of one client's read. Reads in other contexts see all objects
// and repair none; the server's own work relies on that.
func WithReading(ctx context.Context, r Reading) context.Context {
	return context.WithValue(ctx, readerKey{}, &r)
}

func readerOf(ctx context.Context) *Reading {
	r, _ := ctx.Value(readerKey{}).(*Reading)
	return r
}

// initializedField is a field that every object has for the watch cache and for watches of etcd.
// No client can select by it. A watch compares whether the object matched before an event and
// whether it matches now, and so reports an object as added when it becomes initialized (S11.36).
const initializedField = "metadata.initialized"

var initialized = fields.OneTermEqualSelector(initializedField, "true")

// withInitialized adds the field to the fields that get returns. notice, unless nil, is called
// with each uninitialized object.
func withInitialized(get apistorage.AttrFunc, notice func(runtime.Object)) apistorage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		l, f, err := get(obj)
		if err != nil {
			return nil, nil, err
		}
		value := "true"
		if initializers.Has(obj) {
			value = "false"
			if notice != nil {
				notice(obj)
			}
		}
		if f == nil {
			f = fields.Set{}
		}
		f[initializedField] = value
		identify(obj, f)
		return l, f, nil
	}
}

// visible narrows a read to the objects that its context may see.
func visible(ctx context.Context, opts apistorage.ListOptions) apistorage.ListOptions {
	if r := readerOf(ctx); r == nil || !r.Hide {
		return opts
	}
	p := opts.Predicate
	if p.GetAttrs == nil {
		p.GetAttrs = apistorage.DefaultClusterScopedAttr
	}
	p.GetAttrs = withInitialized(p.GetAttrs, nil)
	if p.Field == nil || p.Field.Empty() {
		p.Field = initialized
	} else {
		p.Field = fields.AndSelectors(p.Field, initialized)
	}
	if p.Label == nil {
		p.Label = labels.Everything()
	}
	opts.Predicate = p
	return opts
}

// removeUninitialized takes uninitialized objects out of a list.
func removeUninitialized(list runtime.Object) error {
	hidden := 0
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		if initializers.Has(obj) {
			hidden++
		}
		return nil
	})
	if err != nil || hidden == 0 {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	return meta.SetList(list, slices.DeleteFunc(items, initializers.Has))
}

// assign copies the content of from to out, which has the same type.
func assign(out, from runtime.Object) error {
	to, err := conversion.EnforcePtr(out)
	if err != nil {
		return err
	}
	value, err := conversion.EnforcePtr(from)
	if err != nil {
		return err
	}
	to.Set(value)
	return nil
}
