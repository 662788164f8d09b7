package initialization

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// Listing is one request that lists all objects of a kind. The store looks up the objects that are kept in the
// format of the response, and reads only the others: a watch cache copies each object that it returns. It is
// for one goroutine.
type Listing struct {
	kept *kept
	form form
	kind keptKind
	// off is set when the list is read as a whole, and torn when the request read a second list.
	off, torn bool
	// data has an item for each object of the list, nil for an object that was read. It is nil if the store
	// looked up no objects.
	data [][]byte
	// read has the objects that were read, in their order.
	read []types.UID
}

type listingKey struct{}

// WithListing prepares a request for a list that is encoded by e in a version. It returns the context for the
// store, and the codec for the response. The Listing is nil if no data is kept for such requests.
func WithListing(ctx context.Context, base runtime.NegotiatedSerializer, e runtime.Encoder, gv schema.GroupVersion) (context.Context, runtime.NegotiatedSerializer, *Listing) {
	c, ok := base.(*codec)
	if !ok || c.kept == nil {
		return ctx, base, nil
	}
	f, ok := c.forms[e]
	if !ok || !f.itemByItem() {
		return ctx, base, nil
	}
	l := &Listing{kept: c.kept, form: f, kind: keptKind{version: gv.Identifier(), protobuf: f.protobuf}}
	return context.WithValue(ctx, listingKey{}, l), &listingCodec{c, l}, l
}

// Joins reports whether a list has exactly the objects that the store read for the request. If
// not, the list must be read once more: Joins makes the store read the whole list then.
func (l *Listing) Joins(list runtime.Object) bool {
	if l.data == nil || !l.torn && l.holds(list) {
		return true
	}
	l.data, l.read, l.off = nil, nil, true
	return false
}

// holds reports whether a list has the objects that were read.
func (l *Listing) holds(list runtime.Object) bool {
	i, same := 0, true
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		m, ok := obj.(metav1.ObjectMetaAccessor)
		same = same && ok && i < len(l.read) && m.GetObjectMeta().GetUID() == l.read[i]
		i++
		return nil
	})
	return err == nil && same && i == len(l.read)
}

// listingCodec is the codec for the response to one request.
type listingCodec struct {
	*codec
	listing *Listing
}

func (c *listingCodec) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	encoder := c.codec.EncoderForVersion(e, gv)
	if l, ok := encoder.(*listEncoder); ok && l.form == c.listing.form && l.version == c.listing.kind.version {
		l.listing = c.listing
	}
	return encoder
}

// The fields of every object in the watch cache by which a Listing finds its kept data. No client can select by
// them.
const (
	uidField     = "metadata.uid"
	versionField = "metadata.resourceVersion"
)

// identify adds the fields to f.
func identify(obj runtime.Object, f fields.Set) {
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		f[uidField], f[versionField] = string(m.GetObjectMeta().GetUID()), m.GetObjectMeta().GetResourceVersion()
	}
}

// unkept selects the objects that are not kept, and records all in their order. Callers that ask for its
// requirements get none.
type unkept struct {
	fields.Selector
	listing *Listing
	// hide leaves out uninitialized objects.
	hide   bool
	lookup func(uid types.UID, version string) []byte
}

func (u *unkept) Empty() bool { return false }

func (u *unkept) DeepCopySelector() fields.Selector { return u }

func (u *unkept) Matches(f fields.Fields) bool {
	if u.hide && f.Get(initializedField) == "false" {
		return false
	}
	uid := types.UID(f.Get(uidField))
	data := u.lookup(uid, f.Get(versionField))
	u.listing.data = append(u.listing.data, data)
	if data == nil {
		u.listing.read = append(u.listing.read, uid)
	}
	return data == nil
}

// list reads into list the objects that are not kept, and reports whether it did.
func (l *Listing) list(ctx context.Context, store apistorage.Interface, key string, opts apistorage.ListOptions, list runtime.Object) (bool, error) {
	p := opts.Predicate
	if l.data != nil {
		l.torn = true
		return false, nil
	}
	if l.off || !opts.Recursive || !p.Empty() || p.Limit > 0 || p.Continue != "" || opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return false, nil
	}
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return false, nil
	}
	l.kind.typ = reflect.PointerTo(reflect.TypeOf(items).Elem().Elem())
	lookup := l.kept.lookup(l.kind)
	if lookup == nil {
		l.off = true
		return false, nil
	}
	r := readerOf(ctx)
	if p.GetAttrs == nil {
		p.GetAttrs = apistorage.DefaultClusterScopedAttr
	}
	p.GetAttrs = withInitialized(p.GetAttrs, nil)
	p.Label, p.Field = labels.Everything(), &unkept{Selector: fields.Everything(), listing: l, hide: r != nil && r.Hide, lookup: lookup}
	opts.Predicate = p
	l.data = [][]byte{}
	if err := store.GetList(ctx, key, opts, list); err != nil {
		return true, err
	}
	if l.holds(list) {
		return true, nil
	}
	// A read that failed half-way was followed by a second read.
	l.data, l.read, l.off = nil, nil, true
	return false, meta.SetList(list, nil)
}
